"""What the suites share: the targets, how a call is set up and timed, the data.

asv knows a benchmark's version by the source of its function and of ``setup``, not by what is here
or in ``prepare``.  Whoever changes what is measured sets ``version`` in the class.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import linscan

from .arrays import Arrays, Call, Cupy, Numpy, Torch, TorchCuda

TARGETS = ["numpy:cpu", "numba:cpu", "torch:cpu", "torch:cuda", "triton:cuda", "cupy:cuda"]
"""A backend and a device.  The same list on every machine, so that their results line up."""

ARRAYS: dict[str, Callable[[], Arrays]] = {
    "numpy:cpu": Numpy,
    "numba:cpu": Numpy,
    "torch:cpu": Torch,
    "torch:cuda": TorchCuda,
    "triton:cuda": TorchCuda,
    "cupy:cuda": Cupy,
}
TENSORS: dict[str, Callable[[], Arrays]] = {"cpu": Torch, "cuda": TorchCuda}

GAMMA, LAM = 0.99, 0.95
ROWS, LONG_ROW, TIME_FIRST = (64, 65536), (1, 1 << 22), (4096, 1024)

SMALL = "LINSCAN_ASV_SMALL" in os.environ
"""Tiny arrays and one sample: does all of it run?"""

SAMPLE = 0.05
"""The seconds that go into one sample, if that is at least three turns and at most fifteen."""

Shape = tuple[int, ...]


class Work(NamedTuple):
    """A call, and how many bytes a copy that does as much reads and writes."""

    fresh: Call
    """The call as people write it, with fresh results."""
    into: Call
    """The call that is compared with a copy: into existing arrays, where there is an ``out``."""
    size: int


class OnTargets(ABC):
    """One call on every target, and the time that its caller waits for."""

    arrays: Any
    tensors = False
    """Whether every backend is given torch tensors."""
    number = 1
    repeat = (3, 10, 0.5)
    rounds = 1
    warmup_time = 0

    @abstractmethod
    def prepare(self, backend: str, arrays: Any, case: str) -> Work:
        """Make the operands and the call."""

    def setup(self, target: str, case: str) -> None:
        """Prepare and warm up: once per process, though asv asks before every sample."""
        if hasattr(self, "work"):
            return
        self.arrays = arrays_of(target, self.tensors)
        try:
            work = self.prepare(target.partition(":")[0], self.arrays, case)
            work.fresh()
        except ImportError as error:  # a backend that cannot run here
            raise NotImplementedError(str(error)) from error
        except AttributeError as error:
            if error.obj is not linscan:
                raise
            raise NotImplementedError(f"an older linscan: {error}") from error
        self.arrays.wait()
        self.work = work

    def time_call(self, target: str, case: str) -> None:
        """What a caller waits for."""
        self.work.fresh()
        self.arrays.wait()


class AgainstCopy(OnTargets):
    """The same, and how far it is from the speed of memory."""

    def track_slowdown(self, target: str, case: str) -> dict[str, Any]:
        """The call's time over that of a copy of as many bytes.

        They take turns, since machines drift; a sample is the best of several over the best of as
        many, since machines are interrupted.  asv treats samples like those of ``time_*``: it takes
        their median, and tells noise from a change.
        """
        arrays, work = self.arrays, self.work.into
        copy = arrays.copy(self.work.size // 2)

        def turn() -> tuple[float, float]:
            return arrays.seconds(work), arrays.seconds(copy)

        turn()
        turns = 1 if SMALL else round(min(max(SAMPLE / sum(turn()), 3), 15))
        samples: list[float] = []
        enough = perf_counter() + 1
        while len(samples) < 4 or (len(samples) < 20 and perf_counter() < enough):
            best, floor = map(min, zip(*(turn() for _ in range(turns)), strict=True))
            samples.append(round(best / floor, 3))
            if SMALL:
                break
        return {"samples": samples, "number": 1}

    track_slowdown.unit = "× copy, lower is better"  # type: ignore[attr-defined]
    track_slowdown.rounds = 2  # type: ignore[attr-defined]


def arrays_of(target: str, tensors: bool = False) -> Arrays:
    """The arrays that the target is given; NotImplementedError says why it cannot be."""
    backend, _, device = target.partition(":")
    arrays = TENSORS[device] if tensors else ARRAYS[target]
    needed = {backend, "torch"} if arrays in TENSORS.values() else {backend}
    for package in sorted(needed):
        if find_spec(package) is None:
            raise NotImplementedError(f"{package} is not installed")
    if device == "cuda" and not has_gpu():
        raise NotImplementedError("there is no GPU")
    if not entry_points(group="linscan.backends", name=backend):
        raise NotImplementedError(f"this linscan has no backend {backend!r}")
    return arrays()


def has_gpu() -> bool:
    """Whether a GPU's driver may be there: torch takes a second to say that none is."""
    drivers = "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"
    return sys.platform != "linux" or any(map(os.path.exists, drivers))


def sized(shape: Shape) -> Shape:
    """The shape, or a tiny one."""
    return tuple(min(n, 128) for n in shape) if SMALL else shape


@cache
def normal(seed: int, shape: Shape) -> np.ndarray:
    """Standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@cache
def uniform(seed: int, shape: Shape) -> np.ndarray:
    """Numbers between 0 and 1."""
    return np.random.default_rng(seed).random(shape, np.float32)
