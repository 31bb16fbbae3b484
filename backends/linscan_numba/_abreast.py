"""Short rows, side by side: each lane of a vector is a row, and all run the loop together.

A few vectors of steps per row would not pay for what :mod:`linscan_numba._time_last` does once per
row.  Here every element is what the loop makes of it.  Rows that do not fill a vector, and rows
whose steps do not lie side by side in memory, are walked one at a time to the same bits.

``direction``, ``A``, ``E`` and ``kind`` as in ``_time_last``.
"""

from __future__ import annotations

from typing import Any

from linscan_numba import _simd as simd
from linscan_numba._jit import jit
from linscan_numba._launch import HOW, kernel, line, peek, share
from linscan_numba._operands import NOWHERE, STREAMED, operands, sizes
from linscan_numba._plain import plain
from linscan_numba._time_last import CONSTANT, VECTORS, stream

STEPS = VECTORS
"""Rows of at most so many steps are short: as many as there are lanes fill half a scratch."""


@jit(inline=True)
def _by_row(swap: bool, x: Any) -> Any:
    """An operand's strides in the order: of a group of rows, of time, of the rows in a group."""
    return (x[0], x[3], x[2], x[1]) if swap else x


@jit(inline=True)
def _next(w: Any, state: Any, b: Any, cut: Any) -> Any:
    return simd.select(cut, b, simd.fma(w, state, b))


@jit(inline=True)
def _four(
    kind: Any, direction: Any, A: Any, E: Any, n: Any,
    w: Any, a: Any, b: Any, reset: Any, x: Any, t: int, state: Any, first: Any,
) -> Any:  # fmt: skip
    """Scan four steps of a vector of rows, or the first ``n``; the state after them.

    ``w``: the multipliers of the rows if they do not change.  ``first``: where no state precedes.
    """
    y = simd.load_rows(direction, E, b[0] + t * b[1], b[2], n)
    p = w, w, w, w
    no = simd.never(E)
    cuts = no, no, no, no
    if kind is None:
        if a[1] != 0:
            p = simd.load_rows(direction, A, a[0] + t * a[1], a[2], n)
        if reset[0] != NOWHERE:
            cuts = simd.load_rows_flags(direction, E, reset[0] + t * reset[1], reset[2], n)
    x0 = _next(p[0], state, y[0], simd.either(first, cuts[0]))
    x1 = _next(p[1], x0, y[1], cuts[1])
    x2 = _next(p[2], x1, y[2], cuts[2])
    x3 = _next(p[3], x2, y[3], cuts[3])
    simd.store_rows(direction, E, x[0] + t * x[1], x[2], n, (x0, x1, x2, x3))
    return x3


@jit(inline=True)
def _vector_of_rows(
    kind: Any, direction: Any, A: Any, E: Any, steps: int,
    a: Any, b: Any, initial: Any, reset: Any, x: Any,
) -> None:  # fmt: skip
    """Scan as many rows as a vector has lanes."""
    no_state = initial[0] == NOWHERE
    state = simd.zeros(E) if no_state else simd.load_apart(E, initial[0], initial[2])
    first = simd.first_lanes(direction, E, simd.lanes(E) if no_state else 0)
    w = simd.zeros(A)
    if a[1] == 0:
        w = simd.splat(A, simd.load1(A, a[0])) if a[2] == 0 else simd.load_apart(A, a[0], a[2])
    whole = steps // simd.SIDE * simd.SIDE
    for t in range(0, whole, simd.SIDE):
        state = _four(kind, direction, A, E, None, w, a, b, reset, x, t, state, first)
        first = simd.never(E)
    if whole != steps:
        _four(kind, direction, A, E, steps - whole, w, a, b, reset, x, whole, state, first)


@jit()
def _part(kind: Any, direction: Any, A: Any, E: Any, plan: int, part: int, parts: int) -> None:
    """Scan one of ``parts`` parts of the rows."""
    outer, steps, inner = sizes(plan)
    a_, b_, initial_, reset_, x_ = operands(direction, plan)
    swap = outer > inner
    groups, rows = (inner, outer) if swap else (outer, inner)
    a_, b_, reset_, x_ = (
        _by_row(swap, a_),
        _by_row(swap, b_),
        _by_row(swap, reset_),
        _by_row(swap, x_),
    )
    initial_ = _by_row(swap, initial_)
    step, a_step = simd.step(direction, E), simd.step(direction, A)
    flag_step = -1 if simd.is_reverse(direction) else 1
    adjoining = (
        b_[2] == step and x_[2] == step and (a_[2] == a_step or a_[2] == 0)
        and (reset_[0] == NOWHERE or reset_[2] == flag_step)
    )  # fmt: skip
    n = simd.lanes(E)
    row_size = steps * simd.size(E)
    streamed = (
        adjoining and x_[3] == row_size
        and peek(plan, HOW) & STREAMED != 0
    )  # fmt: skip
    staged = simd.scratch()
    back = min(0, (steps - 1) * step)
    units = (rows + n - 1) // n
    begin, end = share(groups * units, part, parts)
    for k in range(begin, end):
        group, row = k // units, k % units * n
        if adjoining and row + n <= rows:
            to = line(x_, group, 0, row)
            here = (staged - back, step, row_size) if streamed else to
            _vector_of_rows(
                kind, direction, A, E, steps,
                line(a_, group, 0, row), line(b_, group, 0, row),
                line(initial_, group, 0, row), line(reset_, group, 0, row), here,
            )  # fmt: skip
            if streamed:
                stream(E, n * steps, staged, to[0] + back)
        else:
            for r in range(row, min(row + n, rows)):
                no_state = initial_[0] == NOWHERE
                state = simd.rounded(E, 0)
                if not no_state:
                    state = simd.load1(E, line(initial_, group, 0, r)[0])
                plain(
                    A, E, steps, line(a_, group, 0, r), line(b_, group, 0, r),
                    line(reset_, group, 0, r), line(x_, group, 0, r), state, no_state,
                )  # fmt: skip
    if streamed:
        simd.fence()


def build(constant: bool, direction: simd.Token, A: simd.Token, E: simd.Token) -> Any:
    """The kernel; ``constant``: one multiplier per row and no resets."""
    kind = CONSTANT if constant else None

    def run(plan, part, parts):  # type: ignore[no-untyped-def]
        _part(kind, direction, A, E, plan, part, parts)

    return kernel(run)
