"""The loop itself: for types without vectors, and where a vector met what only the loop knows."""

from __future__ import annotations

from typing import Any

from linscan_numba import _simd as simd
from linscan_numba._jit import jit
from linscan_numba._launch import kernel, line, share
from linscan_numba._operands import NOWHERE, operands, sizes


@jit()
def plain(
    A: Any, E: Any, n: int, a: Any, b: Any, reset: Any, x: Any, state: Any, no_state: bool
) -> Any:  # fmt: skip
    """Run ``n`` steps of one row from ``state``, in the working type; the state after them.

    The operands are lines, ``reset`` one at NOWHERE where there is none.  ``no_state``: there is no
    state before the first step, whose multiplier is then not read.
    """
    simd.outline()
    for t in range(n):
        y = simd.load1(E, b[0] + t * b[1])
        if not (no_state and t == 0) and not (
            reset[0] != NOWHERE and simd.load_flag(reset[0] + t * reset[1])
        ):
            y = simd.fma(simd.load1(A, a[0] + t * a[1]), state, y)
        simd.store1(E, x[0] + t * x[1], y)
        state = y
    return state


SIDE = 64
"""A group of columns takes as many steps, one column after the other, before it goes on: so what
lies side by side in memory is read together, whatever the layout."""


@jit()
def _part(direction: Any, A: Any, E: Any, plan: int, part: int, parts: int) -> None:
    """Scan one of ``parts`` parts of the columns."""
    outer, steps, inner = sizes(plan)
    a_, b_, initial_, reset_, x_ = operands(direction, plan)
    no_state = initial_[0] == NOWHERE
    states = simd.scratch()
    groups = (inner + SIDE - 1) // SIDE
    begin, end = share(outer * groups, part, parts)
    for k in range(begin, end):
        o, left = k // groups, k % groups * SIDE
        for t in range(0, steps, SIDE):
            for i in range(left, min(inner, left + SIDE)):
                place = states + (i - left) * simd.size(E)
                state = simd.rounded(E, 0)
                if t > 0:
                    state = simd.load1(E, place)
                elif not no_state:
                    state = simd.load1(E, line(initial_, o, 0, i)[0])
                state = plain(
                    A, E, min(SIDE, steps - t), line(a_, o, t, i), line(b_, o, t, i),
                    line(reset_, o, t, i), line(x_, o, t, i), state, no_state and t == 0,
                )  # fmt: skip
                simd.store1(E, place, state)


def build(direction: simd.Token, A: simd.Token, E: simd.Token) -> Any:
    """The kernel."""

    def run(plan, part, parts):  # type: ignore[no-untyped-def]
        _part(direction, A, E, plan, part, parts)

    return kernel(run)
