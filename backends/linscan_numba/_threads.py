"""Over how many threads a kernel's work is divided.  No bit of a result depends on it."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

import numba
from numba import config, types
from numba.np.ufunc.parallel import threading_layer
from numpy.typing import NDArray

from linscan_numba._jit import jit
from linscan_numba._launch import invoke

THREADS: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
"""At most: ``numba.set_num_threads`` may allow fewer, but to ask at every call takes too long."""

WORTHWHILE = 1 << 15
"""Elements from which on a parallel region pays where its threads wait spinning."""

WORTHWHILE_ASLEEP = 1 << 22
"""The same where they must be woken, as numba's own thread pool ("workqueue") must."""

_process = os.getpid()
_start = threading.Lock()
_layer: str | None = None


def pays(work: int) -> bool:
    """Whether to divide so many elements over threads."""
    if work < WORTHWHILE or THREADS == 1 or os.getpid() != _process:
        # After a fork the threads of the parent are gone, and OpenMP ends a child that asks for
        # them.
        return False
    return _layer != "workqueue" or work >= WORTHWHILE_ASLEEP


def run(kernel: int, plan: NDArray[Any], work: int, parts: int = THREADS) -> None:
    """Call the kernel at an address for so many elements, whole or in parts if threads pay."""
    if not pays(work):
        _serial()(kernel, plan)
        return
    global _layer
    if _layer is None or _layer == "workqueue":
        with _start:  # numba's own pool ends the process when two threads enter it at once
            _threaded()(parts, kernel, plan)
            _layer = threading_layer()
    else:
        _threaded()(parts, kernel, plan)


PLAN = types.Array(types.int64, 1, "C")


@cache
def _serial() -> Any:
    @jit(types.void(types.int64, PLAN))
    def serial(kernel: int, plan: Any) -> None:
        invoke(kernel, plan.ctypes.data, 0, 1)

    return serial


@cache
def _threaded() -> Any:
    @jit(types.void(types.int64, types.int64, PLAN), parallel=True)
    def threaded(parts: int, kernel: int, plan: Any) -> None:
        address = plan.ctypes.data
        for part in numba.prange(parts):
            invoke(kernel, address, part, parts)

    return threaded
