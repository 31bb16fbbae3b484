"""The gradients of a scan in one pass: of ``b``, and of multipliers that are there for every step.

The gradient of ``b`` is a scan of the result's gradient in the opposite direction, with multipliers
shifted by one step; that of ``a`` is its product with the states before the steps.  Both are made
in the vectors and tiles of :mod:`linscan_numba._time_last`, and have the bits that such a scan and
product would give them, but every operand is read once.

``direction`` is that of this pass; ``E`` as in ``_time_last``.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from linscan import _host
from linscan._problem import ScanProblem
from linscan_numba import _simd as simd
from linscan_numba import _threads
from linscan_numba._abreast import STEPS
from linscan_numba._jit import jit
from linscan_numba._launch import FIRST, kernel, line, locate, place, plan_of, share, walk
from linscan_numba._operands import NOWHERE, sizes
from linscan_numba._plain import plain
from linscan_numba._time_last import VECTORS

A, X, INITIAL, G, RESET, LAM, GRAD = range(FIRST, FIRST + 7)
"""The operands: of the forward scan and its result; the result's gradient; those of b and a."""


@jit(inline=True)
def _vector(
    direction: Any, E: Any, whole: bool, inside: Any, inside_x: Any,
    a: int, x: int, g: int, reset: int, lam: int, grad: int,
    before: Any, state: float, guard: Any,
) -> Any:  # fmt: skip
    """A vector of steps: the multipliers read, the state after it, and the sum of 0 * lam.

    ``before``: the multipliers of the vector before.
    """
    y = simd.load_edge(E, g, whole, inside, simd.zeros(E))
    own = simd.load_edge(E, a, whole, inside, simd.splat(E, 1.0))
    cut = simd.never(E)
    if reset != NOWHERE:
        cut = simd.load_edge_flags(E, reset, whole, inside)
        own = simd.select(cut, simd.zeros(E), own)
    w = simd.previous(direction, own, before)
    p, y = simd.scan(direction, w, y)
    local = simd.last(direction, y)
    y = simd.fma(p, simd.splat(E, state), y)
    simd.store_edge(E, lam, whole, inside, y)
    earlier = simd.load_edge(E, x, whole, inside_x, simd.zeros(E))
    simd.store_edge(E, grad, whole, inside, simd.select(cut, simd.zeros(E), simd.mul(y, earlier)))
    state = simd.advance(simd.product(w), state, local)
    return own, state, simd.fma(simd.zeros(E), y, guard)


@jit(inline=True)
def _multiplier(E: Any, a: int, reset: int) -> Any:
    """The multiplier of a step, zero where the past is reset."""
    if reset != NOWHERE and simd.load_flag(reset):
        return simd.rounded(E, 0)
    return simd.load1(E, a)


@jit()
def _tile(
    direction: Any, E: Any, n: int, a: Any, x: Any, g: Any, reset: Any, initial: int,
    lam: int, grad: int, state: float, begins: bool, ends: bool,
) -> Any:  # fmt: skip
    """``n`` steps, at most a tile, to the addresses ``lam`` and ``grad``; the state after them.

    ``begins``, ``ends``: the first and the last of them are those of the row.  ``initial``: the
    address of the state before the forward scan.
    """
    simd.outline()
    lanes, step = simd.lanes(E), simd.step(direction, E)
    before, guard = simd.splat(E, 1.0), simd.zeros(E)
    if not begins:
        behind = reset[0] - reset[1] if reset[0] != NOWHERE else NOWHERE
        before = simd.splat(E, _multiplier(E, a[0] - step, behind))
    start = state
    lead, size = simd.lead(direction, E), lanes * step
    flags = reset[0]
    if flags != NOWHERE:
        flags += lead // simd.size(E)
    a_, x_, g_ = a[0] + lead, x[0] + step + lead, g[0] + lead
    lam_, grad_ = lam + lead, grad + lead
    whole = (n - 1) // lanes if ends else n // lanes
    rest = n - whole * lanes
    inside = simd.first_lanes(direction, E, rest)
    inside_x = simd.first_lanes(direction, E, rest - 1)
    for _ in range(whole):
        simd.claim(E, lam_ + simd.ahead(direction))
        simd.claim(E, grad_ + simd.ahead(direction))
        before, state, guard = _vector(
            direction, E, True, inside, inside_x, a_, x_, g_, flags, lam_, grad_,
            before, state, guard,
        )  # fmt: skip
        a_, x_, g_, lam_, grad_ = a_ + size, x_ + size, g_ + size, lam_ + size, grad_ + size
        if flags != NOWHERE:
            flags += lanes * reset[1]
    if ends:
        _, state, guard = _vector(
            direction, E, False, inside, inside_x, a_, x_, g_, flags, lam_, grad_,
            before, state, guard,
        )  # fmt: skip

    if simd.any_nan(guard) or math.isnan(0.0 * state):
        behind = (reset[0] - reset[1] if reset[0] != NOWHERE else NOWHERE), reset[1], 0
        after = plain(
            E,
            E,
            n,
            (a[0] - step, step, 0),
            g,
            behind,
            (lam, step, 0),
            simd.rounded(E, start),
            begins,
        )
        state = np.float64(after)
        for t in range(n - 1 if ends else n):
            d = simd.load1(E, lam + t * step) * simd.load1(E, x[0] + (t + 1) * step)
            if reset[0] != NOWHERE and simd.load_flag(reset[0] + t * reset[1]):
                d = simd.rounded(E, 0)
            simd.store1(E, grad + t * step, d)
    if ends:
        t = n - 1
        d = simd.rounded(E, 0)
        cut = reset[0] != NOWHERE and simd.load_flag(reset[0] + t * reset[1])
        if initial != NOWHERE and not cut:
            d = simd.load1(E, lam + t * step) * simd.load1(E, initial)
        simd.store1(E, grad + t * step, d)
    return state


@jit()
def _rows(direction: Any, E: Any, plan: int, part: int, parts: int) -> None:
    """One of ``parts`` parts of the rows."""
    outer, steps, _ = sizes(plan)
    a_, x_ = walk(direction, plan, A), walk(direction, plan, X)
    g_, reset_ = walk(direction, plan, G), walk(direction, plan, RESET)
    lam_ = walk(direction, plan, LAM)
    grad_ = walk(direction, plan, GRAD)
    initial_ = locate(plan, INITIAL)
    length = VECTORS * simd.lanes(E)
    begin, end = share(outer, part, parts)
    for r in range(begin, end):
        state = 0.0
        for t in range(0, steps, length):
            n = min(length, steps - t)
            state = _tile(
                direction, E, n, line(a_, r, t, 0), line(x_, r, t, 0), line(g_, r, t, 0),
                line(reset_, r, t, 0), line(initial_, r, 0, 0)[0],
                line(lam_, r, t, 0)[0], line(grad_, r, t, 0)[0],
                state, t == 0, t + n == steps,
            )  # fmt: skip


@cache
def build(dtype: str, reverse: bool) -> Any:
    """The kernel; ``reverse``: the direction of this pass."""
    E = simd.ELEMENTS[dtype]
    direction = simd.REVERSE if reverse else simd.FORWARD

    def run(plan, part, parts):  # type: ignore[no-untyped-def]
        _rows(direction, E, plan, part, parts)

    return kernel(run)


def _contiguous(x: Any, shape: tuple[int, ...]) -> bool:
    """Whether the steps of a row lie side by side in memory."""
    return bool(x.shape == shape and x.strides[1] == x.itemsize)


def backward(
    problem: ScanProblem, a: Any, x: Any, initial: Any, g: Any, reset: Any
) -> tuple[Any, Any] | None:
    """The gradients of ``b`` and of ``a``, or None where two passes are made instead.

    ``problem`` is the forward scan's; its multipliers must be full and its steps contiguous, in
    float32 or float64, and its rows long.  Their number and that of the threads do not count, since
    the two passes of autograd round differently.
    """
    shape = problem.outer, problem.time, problem.inner
    if problem.dtype not in ("float32", "float64") or problem.inner != 1 or problem.time <= STEPS:
        return None
    arrays = {A: _host.view(a), X: _host.view(x), G: _host.view(g)}
    if not all(_contiguous(y, shape) for y in arrays.values()):
        return None
    if initial is not None:
        arrays[INITIAL] = _host.view(initial)
    if reset is not None:
        arrays[RESET] = cuts = _host.view(reset)
        if not _contiguous(cuts, (len(cuts), problem.time, 1)):
            return None
    arrays[LAM], arrays[GRAD] = results = _host.empty(shape, problem.dtype, 2)
    plan = plan_of(shape, 0)
    place(plan, arrays)
    address = build(problem.dtype, not problem.reverse).address
    _threads.run(address, plan, _threads.parts_of(results[0].size))
    lam, grad = (_host.like(y, g, problem.dtype) for y in results)
    return lam, grad
