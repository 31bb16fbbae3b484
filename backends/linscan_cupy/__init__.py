"""CUDA C++ kernels, compiled at run time by CuPy (``linscan[cupy13x]``, ``linscan[cupy12x]``)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from linscan._problem import EstimatorProblem, ScanProblem
from linscan._protocol import Fused, Kernel

ESTIMATORS = ("gae", "discounted_returns", "td_lambda", "vtrace")


@functools.cache
def _missing() -> str | None:
    from linscan_cupy._driver import trouble

    found = [trouble()]
    if find_spec("cupy") is None:
        found.insert(
            0,
            "CuPy is not installed: pip install 'linscan[cupy13x]', or 'linscan[cupy12x]' for "
            "CUDA 12",
        )
    return "; and ".join(filter(None, found)) or None


class CupyBackend:
    """CuPy arrays, and torch tensors on CUDA devices, which are not copied."""

    name = "cupy"
    rank = 30

    @property
    def fused(self) -> Mapping[str, Callable[[EstimatorProblem], Fused | str]]:
        """The estimators that are done in one pass."""
        return dict.fromkeys(ESTIMATORS, self._prepare)

    def why_not(self) -> str | None:
        """None if CuPy is installed and there is a driver with a device."""
        return _missing()

    def owns(self, x: Any) -> bool:
        """CuPy arrays and torch tensors on CUDA devices."""
        cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
        if torch is not None and isinstance(x, torch.Tensor):
            return bool(x.device.type == "cuda")
        return cupy is not None and isinstance(x, cupy.ndarray)

    def supports(self, problem: ScanProblem) -> str | None:
        """Everything."""
        return None

    def explain(self, problem: ScanProblem | EstimatorProblem) -> Kernel:
        """The kernel for operands laid out as the problem's dimensions suggest."""
        from linscan_cupy import _estimators, _scan

        if isinstance(problem, EstimatorProblem):
            return _estimators.explain(problem)
        return _scan.explain(problem)

    def scan(
        self, problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
    ) -> tuple[Any, Any]:
        """See :class:`linscan._protocol.Backend`."""
        from linscan_cupy import _scan

        return _scan.scan(self._device(), problem, a, b, initial, reset, out)

    def differentiable(self) -> Callable[..., Any]:
        """See :data:`linscan._protocol.Differentiable`."""
        from linscan_torch import _autograd

        return _autograd.register(self.name, self.scan)

    def _prepare(self, problem: EstimatorProblem) -> Fused | str:
        from linscan_cupy import _estimators

        return _estimators.prepare(self._device(), problem)

    def _device(self) -> Any:
        from linscan_cupy import _device

        return _device.CUDA


BACKEND = CupyBackend()
