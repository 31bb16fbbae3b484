"""Which kernel a scan uses, and its call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan import _host
from linscan._problem import ACCUMULATE, ITEMSIZE, ScanProblem
from linscan._protocol import Strides
from linscan_numba import _abreast, _plain, _simd, _streaming, _threads, _time_first, _time_last
from linscan_numba._launch import HOW, Numbers, plan_of
from linscan_numba._operands import IN_PLACE, INITIAL, RESET, STREAMED, A, B, X

Array = NDArray[Any]
Run = Callable[[Sequence[int], Any, bool], None]


def scan(
    problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
) -> tuple[Any, Any]:
    """As :class:`linscan._protocol.Backend` says."""
    dtype = problem.dtype
    shape = problem.outer, problem.time, problem.inner
    x = _host.empty(shape, dtype)[0] if out is None else _host.view(out)
    before = _host.view(initial)
    if x.size:
        b_ = _host.view(b)
        a_ = None if problem.a == "scalar" else _host.view(a)
        given = a_, b_, before, _host.view(reset), x
        arrays = [y for y in given if y is not None]
        run = bind(problem, tuple(map(_host.strides, arrays)), out is None)
        in_place = out is not None and np.may_share_memory(x, b_)
        run(list(map(_host.address, arrays)), a, in_place)
    final = None
    if problem.final:
        final = _host.like(_last(problem, x, before), b, dtype)
    return (_host.like(x, b, dtype) if out is None else out), final


@functools.lru_cache(1024)
def bind(problem: ScanProblem, strides: tuple[Strides, ...], fresh: bool) -> Run:
    """As :data:`linscan._protocol.Bind` says."""
    p = problem
    shape = p.outer, p.time, p.inner
    work = p.outer * p.time * p.inner
    size = ITEMSIZE[p.dtype]
    there = {A: p.a != "scalar", B: True, INITIAL: p.initial, RESET: p.reset, X: True}
    operands = [k for k, given in there.items() if given]
    steps = dict(zip(operands, strides, strict=True))

    columns = _adjoining(2, size, shape, steps)
    swap = not columns and _adjoining(0, size, shape, steps)
    if swap:  # rows that are columns
        shape = p.inner, p.time, p.outer
        steps = {k: (inner, time, outer) for k, (outer, time, inner) in steps.items()}
    name = method(p, columns or swap)
    address = _kernel(name, p.dtype, p.a == "scalar", p.reverse).address
    streams = not fresh and _streaming.pays(work * size)
    streams &= all(step % size == 0 for step in steps[X])
    plan = plan_of(shape, 0, steps)
    number = None
    if p.a == "scalar":
        number = Numbers(functools.partial(np.array, dtype=ACCUMULATE[p.dtype]))
    start = _threads.run
    if name.startswith("long") and p.outer * p.inner < 2 * _threads.THREADS:
        start = functools.partial(_time_last.run, lanes=_simd.WIDTH[p.dtype])

    def run(addresses: Sequence[int], a: Any, in_place: bool) -> None:
        call = plan.copy()
        for k, at in zip(operands, addresses, strict=True):
            call[4 * k] = at
        if number is not None:
            _memory, call[4 * A] = number(a)  # which must outlive the call
        if in_place:
            call[HOW] += IN_PLACE
        if streams and addresses[-1] % size == 0:
            call[HOW] += STREAMED
        start(address, call, _threads.parts_of(work))

    return run


@functools.cache
def _kernel(method: str, dtype: str, number: bool, reverse: bool) -> Any:
    direction = _simd.REVERSE if reverse else _simd.FORWARD
    element = _simd.ELEMENTS[dtype]
    working = _simd.ELEMENTS[ACCUMULATE[dtype]]
    a = working if number else element
    if method == "time-first":
        return _time_first.build(direction, a, element, working)
    if method == "plain":
        return _plain.build(direction, a, element)
    constant = method.endswith("constant")
    build = _abreast.build if method.startswith("short") else _time_last.build
    return build(constant, direction, a, element)


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


def _adjoining(
    axis: int, size: int, shape: tuple[int, int, int], steps: dict[int, Strides]
) -> bool:
    """Whether neighbours along an axis lie side by side; ``a`` and ``reset`` may broadcast."""
    return (
        shape[axis] > 1
        and steps[B][axis] == steps[X][axis] == size
        and (A not in steps or steps[A][axis] in (0, size))
        and (RESET not in steps or steps[RESET][axis] in (0, 1))
    )


def _last(problem: ScanProblem, x: Array, initial: Any) -> Array:
    """The state after the last step."""
    if problem.time == 0:
        state = np.zeros((problem.outer, 1, problem.inner), x.dtype)
        if problem.initial:
            state[...] = initial
        return state
    return (x[:, :1] if problem.reverse else x[:, -1:]).copy()
