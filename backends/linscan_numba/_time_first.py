"""Neighbouring columns side by side in memory: the loop itself, a vector of columns at a time.

Of few columns a vector is walked at a time, and its state stays in a register.  Many are taken in
blocks.  A block is walked step by step.  Its state, the step before, stays in the first-level
cache, from where results may be streamed past the caches.  The same columns of the next step are a
long way off in memory, so they are asked for one step ahead.

``direction``, ``A``, ``E`` as in ``_time_last``; ``W`` is the working type of ``E``.
"""

from __future__ import annotations

from typing import Any

from linscan_numba import _simd as simd
from linscan_numba._jit import jit
from linscan_numba._launch import (
    FEW,
    HOW,
    STEPS_AHEAD,
    kernel,
    line,
    peek,
    share,
    vectors_of_a_block,
)
from linscan_numba._operands import NOWHERE, STREAMED, operands, sizes
from linscan_numba._time_last import stream

COLUMNS = 64
"""The vectors of a block at most: a step of it, kept as the state, fits in one scratch."""


@jit(inline=True)
def _gather(E: Any, W: Any, width: int, initial: Any, place: int) -> None:
    """Put the states before the first step side by side."""
    for j in range(width):
        simd.store1(W, place + j * simd.size(W), simd.load1(E, initial[0] + j * initial[2]))


@jit()
def _block(
    A: Any, E: Any, W: Any, width: int, steps: int,
    a: Any, b: Any, initial: Any, reset: Any, x: Any, streamed: bool,
) -> None:  # fmt: skip
    """Scan ``width`` neighbouring columns."""
    simd.outline()
    n = simd.lanes(E)
    state = simd.scratch()
    if initial[0] != NOWHERE:
        _gather(E, W, width, initial, state)
    for t in range(steps):
        a_from, b_from, to = a[0] + t * a[1], b[0] + t * b[1], x[0] + t * x[1]
        cut = reset[0] + t * reset[1]
        no_state = t == 0 and initial[0] == NOWHERE
        everywhere = (
            simd.splat(A, simd.load1(A, a_from)) if a[2] == 0 and not no_state else simd.zeros(A)
        )
        for j in range(0, width - n + 1, n):
            b_here = b_from + j * simd.size(E)
            here = state + j * simd.size(W)
            y = simd.load(E, b_here)
            simd.prefetch(b_here + b[1])
            if not no_state:
                w = everywhere
                if a[2] != 0:
                    w = simd.load(A, a_from + j * simd.size(A))
                    simd.prefetch(a_from + j * simd.size(A) + a[1])
                z = simd.fma(w, simd.load(W, here), y)
                if reset[0] == NOWHERE:
                    y = z
                elif reset[2] != 0:
                    y = simd.select(simd.load_flags(E, cut + j), y, z)
                elif not simd.load_flag(cut):
                    y = z
            simd.store(W, here, y)
            if not streamed:
                simd.claim(E, to + j * simd.size(E) + x[1])
                simd.store(E, to + j * simd.size(E), y)
        for j in range(width - width % n, width):
            y = simd.load1(E, b_from + j * simd.size(E))
            if not no_state and not (reset[0] != NOWHERE and simd.load_flag(cut + j * reset[2])):
                y = simd.fma(
                    simd.load1(A, a_from + j * a[2]), simd.load1(W, state + j * simd.size(W)), y
                )
            simd.store1(W, state + j * simd.size(W), y)
            simd.store1(E, to + j * simd.size(E), y)
        if streamed:
            stream(W, width - width % n, state, to)


@jit()
def _narrow(
    A: Any, E: Any, W: Any, width: int, steps: int,
    a: Any, b: Any, initial: Any, reset: Any, x: Any,
) -> None:  # fmt: skip
    """Scan no more columns than fill a vector; their state stays in a register."""
    simd.outline()
    inside = simd.first_lanes(simd.FORWARD, E, width)
    no_state = initial[0] == NOWHERE
    state = w = simd.zeros(E)
    if not no_state:
        place = simd.scratch()
        _gather(E, W, width, initial, place)
        state = simd.load(W, place)
    for t in range(steps):
        y = simd.load_edge(E, b[0] + t * b[1], False, inside, simd.zeros(E))
        if not (no_state and t == 0):
            if a[2] == 0:
                w = simd.splat(A, simd.load1(A, a[0] + t * a[1]))
            else:
                w = simd.load_edge(A, a[0] + t * a[1], False, inside, simd.zeros(A))
            z = simd.fma(w, state, y)
            if reset[0] == NOWHERE:
                y = z
            elif reset[2] != 0:
                flags = simd.load_edge_flags(E, reset[0] + t * reset[1], False, inside)
                y = simd.select(flags, y, z)
            elif not simd.load_flag(reset[0] + t * reset[1]):
                y = z
        simd.claim(E, x[0] + (t + STEPS_AHEAD) * x[1])
        simd.store_edge(E, x[0] + t * x[1], False, inside, y)
        state = y


@jit()
def _columns(direction: Any, A: Any, E: Any, W: Any, plan: int, part: int, parts: int) -> None:
    """Scan one of ``parts`` parts of the columns, block after block."""
    outer, steps, inner = sizes(plan)
    a_, b_, initial_, reset_, x_ = operands(direction, plan)
    streamed = simd.size(E) == simd.size(W) and peek(plan, HOW) & STREAMED != 0
    n = simd.lanes(E)
    width = vectors_of_a_block(outer, inner, n, COLUMNS, parts) * n
    few = inner <= FEW * n
    if few:
        width = n
    blocks = (inner + width - 1) // width
    begin, end = share(outer if few else outer * blocks, part, parts)
    if few:
        begin, end = begin * blocks, end * blocks
    for k in range(begin, end):
        o, j = k // blocks, k % blocks * width
        a_from, b_from, before = (
            line(a_, o, 0, j),
            line(b_, o, 0, j),
            line(initial_, o, 0, j),
        )
        cut, to = line(reset_, o, 0, j), line(x_, o, 0, j)
        if few:
            _narrow(A, E, W, min(n, inner - j), steps, a_from, b_from, before, cut, to)
        else:
            _block(
                A, E, W, min(width, inner - j), steps, a_from, b_from, before, cut, to, streamed
            )  # fmt: skip
    if streamed:
        simd.fence()


def build(direction: simd.Token, A: simd.Token, E: simd.Token, W: simd.Token) -> Any:
    """The kernel."""

    def run(plan, part, parts):  # type: ignore[no-untyped-def]
        _columns(direction, A, E, W, plan, part, parts)

    return kernel(run)
