"""Rows whose steps lie side by side in memory: the scan happens inside vector registers.

A vector of 16 consecutive steps (8 of float64) is scanned from a zero state in log2 16 shuffles,
then the state before it joins with the running products of the multipliers.  Memory is touched
once.  A row is walked in *tiles* of 64 vectors; of its last vector only some lanes may be there.
Operands whose steps do not lie side by side, and multipliers with resets, are first gathered tile
by tile into the first-level cache, and results may be staged there, so that the arithmetic only
ever sees contiguous steps.

Products inside a vector may overflow where the loop's state would stay finite, or carry a NaN that
a reset hides from the loop.  Each tile therefore sums 0 * x over its results; if that is NaN, the
plain loop does the tile again.

Vectors and tiles are counted from the step the scan starts with, so the bits of a result depend on
neither threads nor batch nor alignment.

In every function ``direction``, ``A`` (the type of the multipliers), ``E`` (of everything else) and
``kind`` are tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from linscan import _host
from linscan_numba import _simd as simd
from linscan_numba import _threads
from linscan_numba._jit import jit
from linscan_numba._launch import HOW, kernel, line, peek, share
from linscan_numba._operands import IN_PLACE, NOWHERE, STREAMED, operands, sizes
from linscan_numba._plain import plain
from linscan_numba._simd import FLOAT64

CONSTANT = simd.Token("constant")
"""The kind of a scan with one multiplier per row and no resets.  For all others it is None."""

VECTORS = 64
"""The vectors of a tile: half of ``simd.SCRATCH`` bytes of 4-byte and 8-byte elements."""

DIRECT, STAGED, PAST_CACHES = range(3)
"""How a tile's results are written: at once; from the first-level cache; past the other caches."""


# One tile ----------------------------------------------------------------------------------------


@jit(inline=True)
def _table(kind: Any, direction: Any, A: Any, E: Any, a: int) -> Any:
    """The powers of a row's multiplier, or None where it changes from step to step."""
    if kind is None:
        return None
    w = np.float64(simd.load1(A, a))
    return simd.powers(E, direction, w), simd.power(E, w)


@jit(inline=True)
def _vector(
    direction: Any, A: Any, E: Any, table: Any, whole: bool, inside: Any,
    a: int, b: int, x: int, state: float, guard: Any,
) -> Any:  # fmt: skip
    """Scan a vector of contiguous steps: the state after it, and the sum of 0 * x."""
    y = simd.load_edge(E, b, whole, inside, simd.zeros(E))
    if table is None:
        w = simd.load_edge(A, a, whole, inside, simd.splat(A, 1.0))
        p, y = simd.scan(direction, w, y)
        power = simd.product(w)
    else:
        powers, power = table
        p = powers[0]
        y = simd.scan_constant(direction, y, powers)
    local = simd.last(direction, y)
    y = simd.fma(p, simd.splat(E, state), y)
    simd.store_edge(E, x, whole, inside, y)
    return simd.advance(power, state, local), simd.fma(simd.zeros(E), y, guard)


@jit(inline=True)
def _vectors(
    direction: Any, A: Any, E: Any, table: Any, n: int, a: int, b: int, x: int, state: float
) -> Any:
    """Scan ``n`` contiguous steps: the state after them, and whether the loop has to do it."""
    guard = simd.zeros(E)
    a += simd.lead(direction, A)
    b += simd.lead(direction, E)
    x += simd.lead(direction, E)
    rest = n % simd.lanes(E)
    inside = simd.first_lanes(direction, E, rest)
    for _ in range(n // simd.lanes(E)):
        simd.claim(E, x + simd.ahead(direction))
        state, guard = _vector(direction, A, E, table, True, inside, a, b, x, state, guard)
        a += simd.lanes(A) * simd.step(direction, A)
        b += simd.lanes(E) * simd.step(direction, E)
        x += simd.lanes(E) * simd.step(direction, E)
    if rest != 0:
        state, guard = _vector(direction, A, E, table, False, inside, a, b, x, state, guard)
    return state, simd.any_nan(guard) or math.isnan(0.0 * state)


@jit()
def _move(E: Any, n: int, source: int, source_step: int, target: int, target_step: int) -> None:
    simd.outline()
    for _ in range(n):
        simd.store1(E, target, simd.load1(E, source))
        source += source_step
        target += target_step


@jit()
def _move_multipliers(A: Any, n: int, a: Any, reset: Any, target: int, step: int) -> None:
    """Gather multipliers, zero where the past is reset."""
    simd.outline()
    for t in range(n):
        w = simd.load1(A, a[0] + t * a[1])
        if reset[0] != NOWHERE and simd.load_flag(reset[0] + t * reset[1]):
            w = simd.rounded(A, 0)
        simd.store1(A, target + t * step, w)


@jit()
def stream(E: Any, n: int, source: int, target: int) -> None:
    """Copy ``n`` elements past the caches, to any address that is a multiple of their size."""
    simd.outline()
    size = simd.size(E)
    width = simd.lanes(E) * size
    head = min(n, (-target & (width - 1)) // size)
    _move(E, head, source, size, target, size)
    done = head * size
    for _ in range((n - head) // simd.lanes(E)):
        simd.stream(E, target + done, simd.load(E, source + done))
        done += width
    _move(E, n - done // size, source + done, size, target + done, size)


@jit()
def _tile(
    direction: Any, A: Any, E: Any, table: Any, n: int, a: Any, b: Any, reset: Any, x: Any,
    state: float, no_state: bool, write: int, scratch: Any,
) -> Any:  # fmt: skip
    """Scan ``n`` steps, at most a tile, of the lines of a row; the state after them."""
    simd.outline()
    a_step = simd.step(direction, A)
    step = simd.step(direction, E)
    back = min(0, (n - 1) * step)
    a_from, b_from, to = a[0], b[0], x[0]
    if table is None and (a[1] != a_step or reset[0] != NOWHERE):
        a_from = scratch[0] - min(0, (n - 1) * a_step)
        _move_multipliers(A, n, a, reset, a_from, a_step)
    if b[1] != step:
        b_from = scratch[1] - back
        _move(E, n, b[0], b[1], b_from, step)
    if write != DIRECT:
        to = scratch[2] - back

    after, failed = _vectors(direction, A, E, table, n, a_from, b_from, to, state)
    if failed:
        y = plain(A, E, n, a, b, reset, (to, step, 0), simd.rounded(E, state), no_state)
        after = np.float64(y)

    if write == PAST_CACHES:
        stream(E, n, to + back, x[0] + back)
    elif write == STAGED:
        _move(E, n, to, step, x[0], x[1])
    return after


# Rows --------------------------------------------------------------------------------------------
#
# Many rows are divided over the threads.  Of few long rows each is: every thread scans a part of it
# as if the state before were zero.  Then each later part is redone from the true state, until a
# tile ends in the very state it ended in before: from there on every bit is what it would be
# anyway.  Unless |a| is 1, that is soon.

ROWS, PARTS, SETTLING = range(3)
"""The phases of a scan: whole rows; or parts of rows, then what has to be redone of them."""

PHASE, DIVISIONS, STATES = range(HOW + 1, HOW + 4)
"""Numbers in the plan: the phase; if rows are divided, the parts of each, and the address of the
states after every tile of every row."""


@jit(inline=True)
def _tiles(E: Any, steps: int) -> Any:
    length = VECTORS * simd.lanes(E)
    return (steps + length - 1) // length


@jit(inline=True)
def _same(x: float, y: float) -> bool:
    """Whether two numbers have the same bits; never so if they are NaN."""
    return x == y and math.copysign(1.0, x) == math.copysign(1.0, y)


@jit(inline=True)
def _writing(direction: Any, E: Any, to: Any, how: int) -> int:
    """How to write the results; ``to``: where they go."""
    if to[2] != simd.step(direction, E):
        return STAGED
    if how & STREAMED != 0:
        return PAST_CACHES
    return STAGED if how & IN_PLACE != 0 else DIRECT


@jit()
def _task(kind: Any, direction: Any, A: Any, E: Any, plan: int, task: int, tasks: int) -> None:
    """One of the tasks of a phase: some rows; a part of a row; or a row to settle."""
    outer, steps, inner = sizes(plan)
    phase, parts, states = peek(plan, PHASE), peek(plan, DIVISIONS), peek(plan, STATES)
    a_, b_, initial_, reset_, x_ = operands(direction, plan)
    no_state = initial_[0] == NOWHERE
    write = _writing(direction, E, x_, peek(plan, HOW))
    scratch = simd.scratch(), simd.scratch(), simd.scratch()
    length = VECTORS * simd.lanes(E)
    tiles = _tiles(E, steps)
    start, end = share(outer * inner, task, tasks)
    if phase == PARTS:
        start, end = task // parts, task // parts + 1
    for r in range(start, end):
        o, i = r // inner, r % inner
        if r == start or a_[1] != 0 or a_[3] != 0:
            table = _table(kind, direction, A, E, line(a_, o, 0, i)[0])
        tile, stop = 0, tiles
        if phase == PARTS:
            tile, stop = share(tiles, task % parts, parts)
        elif phase == SETTLING:
            tile = share(tiles, 1, parts)[0]
        after = states + r * tiles * simd.size(FLOAT64)
        state = 0.0
        if phase == SETTLING:
            state = simd.load1(FLOAT64, after + (tile - 1) * simd.size(FLOAT64))
        elif tile == 0 and not no_state:
            state = np.float64(simd.load1(E, line(initial_, o, 0, i)[0]))
        while tile < stop:
            t = tile * length
            state = _tile(
                direction, A, E,
                table,  # pyright: ignore[reportPossiblyUnboundVariable]
                min(length, steps - t),
                line(a_, o, t, i), line(b_, o, t, i), line(reset_, o, t, i), line(x_, o, t, i),
                state, no_state and tile == 0, write, scratch,
            )  # fmt: skip
            if phase != ROWS:
                place = after + tile * simd.size(FLOAT64)
                former = simd.load1(FLOAT64, place)
                simd.store1(FLOAT64, place, state)
                if phase == SETTLING and _same(state, former):
                    part = ((tile + 1) * parts - 1) // tiles
                    tile = share(tiles, part, parts)[1] - 1  # the rest of this part is right
                    state = simd.load1(FLOAT64, after + tile * simd.size(FLOAT64))
            tile += 1
    if write == PAST_CACHES:
        simd.fence()


def build(constant: bool, direction: simd.Token, A: simd.Token, E: simd.Token) -> Any:
    """The kernel; ``constant``: one multiplier per row and no resets."""
    kind = CONSTANT if constant else None

    def run(plan, part, parts):  # type: ignore[no-untyped-def]
        _task(kind, direction, A, E, plan, part, parts)

    return kernel(run)


def run(address: int, plan: NDArray[Any], parts: int, lanes: int) -> None:
    """Run a kernel whose vectors have so many lanes."""
    outer, steps, inner, how = map(int, plan[: HOW + 1])
    rows, tiles = outer * inner, -(-steps // (VECTORS * lanes))
    if parts > 1:
        parts = numba.get_num_threads()  # a part too many costs more here than to ask
    if parts == 1 or rows >= 2 * parts or tiles < 4 * parts or how & IN_PLACE:
        _threads.run(address, plan, parts)
        return
    states = np.empty((rows, tiles))
    plan[[DIVISIONS, STATES]] = parts, _host.address(states)
    for phase, tasks in ((PARTS, rows * parts), (SETTLING, rows)):
        plan[PHASE] = phase
        _threads.run(address, plan, tasks)
