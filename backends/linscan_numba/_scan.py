"""Which kernel a scan uses, and its call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan import _host
from linscan._problem import ACCUMULATE, ScanProblem
from linscan_numba import _abreast, _plain, _simd, _streaming, _threads, _time_first, _time_last
from linscan_numba._operands import HAS_INITIAL, HAS_RESET, IN_PLACE, STREAMED

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
    constant = method.endswith("constant")
    if method.startswith("short"):
        return _abreast.build(constant, direction, a, element, number)
    return _time_last.build(constant, direction, a, element, number)


def method(problem: ScanProblem, columns: bool) -> str:
    """The name of the kernel; ``columns``: neighbouring ones lie side by side in memory.

    "time-first": then the loop itself runs on vectors of columns.  "short": it runs on vectors of
    rows.  "long": a row at a time, its steps in vectors.  The last two with "constant" multipliers,
    one per row, or "full" ones.  "plain": complex numbers.
    """
    if problem.dtype.startswith("complex"):
        return "plain"
    if columns:
        return "time-first"
    length = "short" if problem.time <= _abreast.STEPS else "long"
    constant = problem.a in ("scalar", "row") and not problem.reset
    return f"{length}, constant" if constant else f"{length}, full"


def _adjoining(axis: int, b: Array, x: Array, *others: Any) -> bool:
    """Whether neighbours along an axis lie side by side in memory.

    ``others`` may be the same for all of them, or a number.
    """
    return bool(
        x.shape[axis] > 1
        and b.shape[axis] > 1
        and x.strides[axis] == b.strides[axis] == x.itemsize
        and all(
            np.ndim(y) == 0 or y.shape[axis] == 1 or y.strides[axis] == y.itemsize for y in others
        )
    )


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
    if out is not None and _streaming.pays(x.nbytes):
        how |= STREAMED
    before = _host.view(initial)
    a_: Any = _host.view(a)
    if number:
        a_ = complex(a) if dtype.startswith("complex") else float(a)
    cuts = NO_RESET
    if problem.reset:
        how |= HAS_RESET
        cuts = _host.view(reset)
    if problem.initial:
        how |= HAS_INITIAL
    if x.size:
        columns = _adjoining(2, b_, x, a_, cuts)
        rows = not columns and _adjoining(0, b_, x, a_, cuts)
        kernel = method(problem, columns or rows)
        serial, threaded = _kernel(kernel, dtype, number, problem.reverse)
        arrays = [a_, b_, before if problem.initial else b_, cuts, x]
        if rows:  # they are columns
            arrays = [y if np.ndim(y) == 0 else y.transpose(2, 1, 0) for y in arrays]
        if dtype == "float16":
            arrays = [_bits(y) for y in arrays]
        _threads.run(serial, threaded, x.size, *arrays, how)
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
