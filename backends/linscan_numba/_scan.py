"""Which kernel a scan uses, and its call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan import _host
from linscan._problem import ACCUMULATE, ScanProblem
from linscan_numba import _plain, _simd, _threads, _time_first, _time_last
from linscan_numba._operands import HAS_INITIAL, HAS_RESET, IN_PLACE

Array = NDArray[Any]
Kernel = tuple[Callable[..., None], Callable[[], Callable[..., None]]]

NO_RESET = np.zeros((1, 1, 1), np.bool_)


@functools.cache
def _kernel(method: str, dtype: str, number: bool, reverse: bool) -> Kernel:
    """``(serial, threaded)`` for ``_threads.run``, compiled at their first use."""
    direction = _simd.REVERSE if reverse else _simd.FORWARD
    element = _simd.ELEMENTS[dtype]
    working = _simd.ELEMENTS[ACCUMULATE[dtype]]
    a = working if number else element
    if method == "time-first":
        return _time_first.build(direction, a, element, working, number)
    if method == "plain":
        return _plain.build(direction, a, element, number)
    return _time_last.build(method == "constant", direction, a, element, number)


def _adjacent(x: Array) -> bool:
    """Whether neighbouring columns lie side by side in memory."""
    return bool(x.strides[2] == x.itemsize and x.shape[2] != 1)


def method(problem: ScanProblem, *operands: Array) -> str:
    """The name of the kernel; ``operands``: those with columns, or none if they are not known.

    "time-first": neighbouring columns fill vectors, so the loop itself is fastest.  "constant" and
    "full": a row at a time, with one multiplier per row or one per step.  "plain": complex numbers.
    """
    if problem.dtype.startswith("complex"):
        return "plain"
    columns = problem.inner >= _simd.WIDTH[problem.dtype]
    if columns and all(_adjacent(x) for x in operands):
        return "time-first"
    return "constant" if problem.a in ("scalar", "row") and not problem.reset else "full"


def scan(
    problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
) -> tuple[Any, Any]:
    """As :class:`linscan._protocol.Backend` says."""
    dtype = problem.dtype
    shape = problem.outer, problem.time, problem.inner
    number = problem.a == "scalar"
    b_ = _host.view(b)
    x = _host.empty(shape, dtype)[0] if out is None else _host.view(out)
    how = IN_PLACE if out is not None and np.may_share_memory(x, b_) else 0
    before = _host.view(initial)
    operands = [b_, x]
    a_: Any
    if number:
        a_ = complex(a) if dtype.startswith("complex") else float(a)
    else:
        a_ = _host.view(a)
        if a_.shape[2] != 1:
            operands.append(a_)
    cuts = NO_RESET
    if problem.reset:
        how |= HAS_RESET
        cuts = _host.view(reset)
        if cuts.shape[2] != 1:
            operands.append(cuts)
    if problem.initial:
        how |= HAS_INITIAL
    if x.size:
        serial, threaded = _kernel(method(problem, *operands), dtype, number, problem.reverse)
        arrays = [b_, before if problem.initial else b_, cuts, x]
        if dtype == "float16":
            a_, *arrays = (_bits(y) for y in (a_, *arrays))
        _threads.run(serial, threaded, x.size, a_, *arrays, how)
    final = None
    if problem.final:
        final = _host.like(_last(problem, x, before), b, dtype)
    return (_host.like(x, b, dtype) if out is None else out), final


def _bits(x: Any) -> Any:
    """A float16 array as uint16, the form in which kernels take it."""
    return x.view(np.uint16) if isinstance(x, np.ndarray) and x.dtype == np.float16 else x


def _last(problem: ScanProblem, x: Array, initial: Any) -> Array:
    """The state after the last step."""
    if problem.time == 0:
        state = np.zeros((problem.outer, 1, problem.inner), x.dtype)
        if problem.initial:
            state[...] = initial
        return state
    return (x[:, :1] if problem.reverse else x[:, -1:]).copy()
