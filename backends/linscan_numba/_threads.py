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
"""The parts of divided work.  By ``numba.set_num_threads`` there may be fewer threads, which then
take several; to ask takes long for a small call."""

WORTHWHILE = 1 << 15
"""Elements from which on a parallel region pays where its threads wait spinning."""

WORTHWHILE_ASLEEP = 1 << 22
"""The same where they must be woken, as numba's own thread pool ("workqueue") must."""

_process = os.getpid()
_start = threading.Lock()
_layer: str | None = None


def parts_of(work: int) -> int:
    """How many parts to make of so many elements: 1 where threads would not pay, or may not be."""
    if work < WORTHWHILE or os.getpid() != _process:
        # After a fork the threads of the parent are gone, and OpenMP ends a child that asks for
        # them.
        return 1
    if _layer == "workqueue" and work < WORTHWHILE_ASLEEP:
        return 1
    return THREADS


def run(address: int, plan: NDArray[Any], parts: int) -> None:
    """Call the kernel at an address for every part of the work, over threads if there are many."""
    if parts == 1:
        _serial()(address, plan)
        return
    global _layer
    if _layer is None or _layer == "workqueue":
        with _start:  # numba's own pool ends the process when two threads enter it at once
            _threaded()(parts, address, plan)
            _layer = threading_layer()
    else:
        _threaded()(parts, address, plan)


_PLAN = types.Array(types.int64, 1, "C")


@cache
def _serial() -> Any:
    @jit(types.void(types.int64, _PLAN))
    def serial(kernel: int, plan: Any) -> None:
        invoke(kernel, plan.ctypes.data, 0, 1)

    return serial


@cache
def _threaded() -> Any:
    @jit(types.void(types.int64, types.int64, _PLAN), parallel=True)
    def threaded(parts: int, kernel: int, plan: Any) -> None:
        address = plan.ctypes.data
        for part in numba.prange(parts):
            invoke(kernel, address, part, parts)

    return threaded
