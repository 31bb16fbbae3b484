"""The gradients of a scan in one pass: of ``b``, and of multipliers that are there for every step.

The gradient of ``b`` is a scan of the result's gradient in the opposite direction, with multipliers
shifted by one step; that of ``a`` is its product with the states before the steps.  Both are made
in the vectors and tiles of :mod:`linscan_numba._time_last`, and have the bits that two passes would
give them, but every operand is read once.

``direction`` is that of this pass; ``E`` as in ``_time_last``.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numba
import numpy as np
from numba import types

from linscan import _host
from linscan._problem import ScanProblem
from linscan_numba import _simd as simd
from linscan_numba import _threads
from linscan_numba._abreast import STEPS
from linscan_numba._jit import jit
from linscan_numba._operands import (
    HAS_INITIAL,
    HAS_RESET,
    NOWHERE,
    along,
    array,
    line,
    locate,
    optional,
)
from linscan_numba._plain import plain
from linscan_numba._time_last import VECTORS

NO_RESET = np.zeros((1, 1, 1), np.bool_)


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
        behind = (reset[0] - reset[1] if reset[0] != NOWHERE else NOWHERE), reset[1]
        after = plain(
            E, E, n, (a[0] - step, step), g, behind, (lam, step), simd.rounded(E, start), begins
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
def _rows(
    direction: Any, E: Any, part: int, parts: int,
    a: Any, x: Any, initial: Any, g: Any, reset: Any, lam: Any, grad: Any, how: int,
) -> None:  # fmt: skip
    """One of ``parts`` parts of the rows."""
    outer, steps, _ = lam.shape
    a_, x_ = along(direction, steps, locate(a)), along(direction, steps, locate(x))
    g_ = along(direction, steps, locate(g))
    initial_ = optional(how & HAS_INITIAL != 0, locate(initial))
    reset_ = optional(how & HAS_RESET != 0, along(direction, steps, locate(reset)))
    lam_, grad_ = along(direction, steps, locate(lam)), along(direction, steps, locate(grad))
    length = VECTORS * simd.lanes(E)
    for r in range(outer * part // parts, outer * (part + 1) // parts):
        row = r, 0
        state = 0.0
        for t in range(0, steps, length):
            n = min(length, steps - t)
            state = _tile(
                direction, E, n, line(a_, row, t), line(x_, row, t), line(g_, row, t),
                line(reset_, row, t), line(initial_, row, 0)[0],
                line(lam_, row, t)[0], line(grad_, row, t)[0],
                state, t == 0, t + n == steps,
            )  # fmt: skip


@functools.cache
def _kernel(dtype: str, reverse: bool) -> Any:
    """``(serial, threaded)`` for ``_threads.run``; ``reverse``: the direction of this pass."""
    E = simd.ELEMENTS[dtype]
    direction = simd.REVERSE if reverse else simd.FORWARD
    operand = array(E)
    arguments = (*(operand,) * 4, array("bool"), *(operand,) * 2, types.int64)

    @jit(arguments)
    def serial(
        a: Any, x: Any, initial: Any, g: Any, reset: Any, lam: Any, grad: Any, how: int
    ) -> None:
        _rows(direction, E, 0, 1, a, x, initial, g, reset, lam, grad, how)

    def threads() -> Any:
        @jit((types.int64, *arguments), parallel=True)
        def threaded(
            parts: int, a: Any, x: Any, initial: Any, g: Any, reset: Any, lam: Any, grad: Any,
            how: int,
        ) -> None:  # fmt: skip
            for part in numba.prange(parts):
                _rows(direction, E, np.int64(part), parts, a, x, initial, g, reset, lam, grad, how)

        return threaded

    return serial, functools.cache(threads)


def _contiguous(x: Any, shape: tuple[int, ...]) -> bool:
    """Whether the steps of a row lie side by side in memory."""
    return bool(x.shape == shape and x.strides[1] == x.itemsize)


def backward(
    problem: ScanProblem, a: Any, x: Any, initial: Any, g: Any, reset: Any
) -> tuple[Any, Any] | None:
    """The gradients of ``b`` and of ``a``, or None where two passes are made instead.

    ``problem`` is the forward scan's; its multipliers must be full and its steps contiguous, in
    float32 or float64, and there must be a long row for every thread.
    """
    shape = problem.outer, problem.time, problem.inner
    if (
        problem.dtype not in ("float32", "float64")
        or problem.inner != 1
        or problem.time <= STEPS
        or problem.outer < numba.get_num_threads()
    ):
        return None
    a_, x_, g_ = _host.view(a), _host.view(x), _host.view(g)
    if not all(_contiguous(y, shape) for y in (a_, x_, g_)):
        return None
    how, before, cuts = 0, x_, NO_RESET
    if initial is not None:
        how, before = HAS_INITIAL, _host.view(initial)
    if reset is not None:
        how, cuts = how | HAS_RESET, _host.view(reset)
        if not _contiguous(cuts, (len(cuts), problem.time, 1)):
            return None
    lam, grad = _host.empty(shape, problem.dtype, 2)
    serial, threaded = _kernel(problem.dtype, not problem.reverse)
    _threads.run(serial, threaded, lam.size, a_, x_, before, g_, cuts, lam, grad, how)
    return _host.like(lam, g, problem.dtype), _host.like(grad, g, problem.dtype)
