"""What a test runs on: one backend, with the arrays of one library, on one device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

import linscan
from linscan._dispatch import registry
from linscan._problem import ScanProblem
from linscan.testing._interpreter import interpreting, quicken

Array = NDArray[Any]

DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
SIXTEEN_BITS = ("float16", "bfloat16")


@dataclass(frozen=True)
class Engine:
    """Makes arrays of ``library`` on ``device`` and calls linscan with ``backend``."""

    backend: str
    library: str
    device: str = "cpu"

    def __str__(self) -> str:
        return "-".join((self.backend, self.library, *([self.device] * (self.device != "cpu"))))

    @property
    def tiled(self) -> bool:
        """Whether it goes through time in the tiles of GPUs, whose error may be larger."""
        return self.device != "cpu" or (self.backend == "triton" and interpreting())

    @property
    def xp(self) -> Any:
        """The library itself."""
        return import_module(self.library)

    def array(self, x: Any, dtype: str | None = None) -> Any:
        """``x`` as a contiguous array of its own, of that dtype; None stays None."""
        if x is None:
            return None
        if self.library != "torch":
            return self.xp.asarray(np.array(x, dtype))
        torch = self.xp
        given = torch.from_numpy(np.array(x))
        return given.to(device=self.device, dtype=None if dtype is None else getattr(torch, dtype))

    def numpy(self, x: Any) -> Array:
        """``x`` in NumPy; 16-bit numbers as float64, which holds them exactly."""
        if self.library == "cupy":
            x = self.xp.asnumpy(x)
        if isinstance(x, np.ndarray):
            return x.astype(np.float64) if x.dtype == np.float16 else x
        torch = self.xp
        x = x.detach().cpu()
        wide: Array = (x.to(torch.float64) if x.dtype.itemsize == 2 else x).numpy()
        return wide

    def dtype_of(self, x: Any) -> str:
        """The name of its dtype."""
        return str(x.dtype).removeprefix("torch.")

    def why_not(self, dtype: str) -> str | None:
        """None when the backend takes such arrays; it may decline 16-bit numbers and no others."""
        if dtype == "bfloat16" and self.library != "torch":
            return "NumPy has no bfloat16"
        backend = registry()[self.backend]
        assert not isinstance(backend, str)
        return backend.supports(ScanProblem(1, 1, 1, dtype, "full"))

    def scan(self, a: Any, b: Any, initial: Any = None, **options: Any) -> Any:
        """``linscan.scan`` on this backend."""
        return linscan.scan(a, b, initial, backend=self.backend, **options)

    def estimate(self, name: str, *args: Any, **options: Any) -> Any:
        """The estimator of that name on this backend."""
        return getattr(linscan, name)(*args, backend=self.backend, **options)

    def gae(self, *args: Any, **options: Any) -> Any:
        """``linscan.gae`` on this backend."""
        return linscan.gae(*args, backend=self.backend, **options)

    def discounted_returns(self, *args: Any, **options: Any) -> Any:
        """``linscan.discounted_returns`` on this backend."""
        return linscan.discounted_returns(*args, backend=self.backend, **options)

    def td_lambda(self, *args: Any, **options: Any) -> Any:
        """``linscan.td_lambda`` on this backend."""
        return linscan.td_lambda(*args, backend=self.backend, **options)


def named() -> list[str]:
    """The backends that ``LINSCAN_TEST_BACKENDS`` asks for; none means all."""
    return [name for name in os.environ.get("LINSCAN_TEST_BACKENDS", "").split(",") if name]


def engines() -> Iterator[tuple[Engine, str | None]]:
    """Every engine to test, and why it cannot run here."""
    if interpreting():
        quicken()
    for name in named() or linscan.backends():
        backend = registry().get(name, "it is not installed")
        reason = backend if isinstance(backend, str) else backend.why_not()
        owned = [Engine(name, "none")]
        if not isinstance(backend, str) and reason is None:
            owned = [
                engine
                for library, device in _places()
                if backend.owns((engine := Engine(name, library, device)).array([0.0]))
            ]
            if not owned:
                owned, reason = [Engine(name, "none")], "it owns no array that can be made here"
        yield from ((engine, reason) for engine in owned)


def _places() -> Iterator[tuple[str, str]]:
    yield "numpy", "cpu"
    if find_spec("torch") is not None:
        yield "torch", "cpu"
        if import_module("torch").cuda.is_available():
            yield "torch", "cuda"
    if find_spec("cupy") is not None and import_module("cupy").is_available():
        yield "cupy", "cuda"
