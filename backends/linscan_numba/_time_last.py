"""Rows whose steps lie side by side in memory: the scan happens inside vector registers.

A vector of 16 consecutive steps (8 of float64) is scanned from a zero state in log2 16 shuffles,
then the state before it joins with the running products of the multipliers.  Memory is touched
once.  A row is walked in *tiles* of 64 vectors.  Operands whose steps do not lie side by side, and
multipliers with resets, are first gathered tile by tile into the first-level cache, and results may
be staged there, so that the arithmetic only ever sees contiguous steps.

Products inside a vector may overflow where the loop's state would stay finite, or carry a NaN that
a reset hides from the loop.  Each tile therefore sums 0 * x over its results; if that is NaN, the
plain loop does the tile again.

Vectors and tiles are counted from the step the scan starts with, so the bits of a result depend on
neither threads nor batch nor alignment.

In every function ``direction``, ``A`` (the type of the multipliers), ``E`` (of everything else) and
``kind`` are tokens.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numba
import numpy as np
from numba import types

from linscan_numba import _simd as simd
from linscan_numba._jit import jit
from linscan_numba._operands import IN_PLACE, NOWHERE, line, located, signature
from linscan_numba._plain import plain

CONSTANT = simd.Token("constant")
"""The kind of a scan with one multiplier per row and no resets.  For all others it is None."""

VECTORS = 64
"""The vectors of a tile: ``simd.SCRATCH`` bytes of 4-byte and 8-byte elements."""

DIRECT, STAGED, STREAMED = range(3)
"""How a tile's results are written: at once; from the first-level cache; past the other caches."""

STREAM_FROM = 1 << 25
"""From as many bytes of results on, they are streamed: they would not stay in the caches anyway."""


# One tile ----------------------------------------------------------------------------------------


@jit(inline=True)
def _table(kind: Any, direction: Any, A: Any, E: Any, a: Any, row: Any) -> Any:
    """The powers of a row's multiplier, or None where it changes from step to step."""
    if kind is None:
        return None
    w = np.float64(simd.load1(A, line(a, row, 0)[0]))
    return simd.powers(E, direction, w), simd.power(E, w)


@jit(inline=True)
def _vectors(
    direction: Any, A: Any, E: Any, table: Any, n: int, a: int, b: int, x: int, state: float
) -> Any:
    """Scan ``n`` vectors of contiguous steps: the state after them, and the sum of 0 * x."""
    zero = guard = simd.zeros(E)
    a += simd.lead(direction, A)
    b += simd.lead(direction, E)
    x += simd.lead(direction, E)
    for _ in range(n):
        y = simd.load(E, b)
        if table is None:
            w = simd.load(A, a)
            p, y = simd.scan(direction, w, y)
            power = simd.product(w)
        else:
            powers, power = table
            p = powers[0]
            y = simd.scan_constant(direction, y, powers)
        local = simd.last(direction, y)
        y = simd.fma(p, simd.splat(E, state), y)
        simd.store(E, x, y)
        guard = simd.fma(zero, y, guard)
        state = simd.advance(power, state, local)
        a += simd.lanes(A) * simd.step(direction, A)
        b += simd.lanes(E) * simd.step(direction, E)
        x += simd.lanes(E) * simd.step(direction, E)
    return state, simd.total(guard)


@jit()
def _move(E: Any, n: int, source: int, source_step: int, target: int, target_step: int) -> None:
    for _ in range(n):
        simd.store1(E, target, simd.load1(E, source))
        source += source_step
        target += target_step


@jit()
def _move_multipliers(A: Any, n: int, a: Any, reset: Any, target: int, step: int) -> None:
    """Gather multipliers, zero where the past is reset."""
    for t in range(n):
        w = simd.load1(A, a[0] + t * a[1])
        if reset[0] != NOWHERE and simd.load_flag(reset[0] + t * reset[1]):
            w = simd.rounded(A, 0)
        simd.store1(A, target + t * step, w)


@jit()
def stream(E: Any, n: int, source: int, target: int) -> None:
    """Copy ``n`` elements past the caches, to any address that is a multiple of their size."""
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
    direction: Any,
    A: Any,
    E: Any,
    table: Any,
    n: int,
    a: Any,
    b: Any,
    reset: Any,
    x: Any,
    state: float,
    fresh: bool,
    write: int,
    scratch: Any,
) -> float:
    """Scan ``n`` steps, at most a tile, of the lines of a row; the state after them."""
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

    whole = n // simd.lanes(E)
    after, guard = _vectors(direction, A, E, table, whole, a_from, b_from, to, state)
    for t in range(whole * simd.lanes(E), n):
        w = simd.load1(A, a_from + t * a_step) if table is None else simd.load1(A, a[0])
        after = w * after + simd.load1(E, b_from + t * step)
        y = simd.rounded(E, after)
        simd.store1(E, to + t * step, y)
        guard += 0.0 * y
    if math.isnan(guard + 0.0 * after):
        y = plain(A, E, n, a, b, reset, (to, step), simd.rounded(E, state), fresh)
        after = np.float64(y)

    if write == STREAMED:
        stream(E, n, to + back, x[0] + back)
    elif write == STAGED:
        _move(E, n, to, step, x[0], x[1])
    return after


# Rows --------------------------------------------------------------------------------------------


@jit(inline=True)
def _writing(direction: Any, E: Any, x: Any, to: Any, how: int) -> int:
    """How to write the results; ``to``: where they go."""
    if to[2] != simd.step(direction, E):
        return STAGED
    if x.size * simd.size(E) >= STREAM_FROM and to[0] % simd.size(E) == 0:
        return STREAMED
    return STAGED if how & IN_PLACE != 0 else DIRECT


@jit(inline=True)
def _tiles(E: Any, steps: int) -> int:
    length = VECTORS * simd.lanes(E)
    return (steps + length - 1) // length


@jit(inline=True)
def _bounds(part: int, parts: int, n: int) -> Any:
    """Where a part of ``n`` things begins and ends."""
    return n * part // parts, n * (part + 1) // parts


@jit(inline=True)
def _before(E: Any, initial: Any, row: Any) -> float:
    """The state before the first step of a row."""
    return 0.0 if initial[0] == NOWHERE else np.float64(simd.load1(E, line(initial, row, 0)[0]))


@jit()
def _piece(
    direction: Any, A: Any, E: Any, table: Any, steps: int, tiles: Any,
    row: Any, operands: Any, state: float, write: int, scratch: Any, states: int,
) -> float:  # fmt: skip
    """Scan tiles ``tiles[0]`` to ``tiles[1]`` of a row from ``state``; the state after them.

    Unless ``states`` is NOWHERE, the state after each tile goes there.
    """
    a, b, initial, reset, x = operands
    length = VECTORS * simd.lanes(E)
    for tile in range(tiles[0], tiles[1]):
        t = tile * length
        state = _tile(
            direction, A, E, table, min(length, steps - t),
            line(a, row, t), line(b, row, t), line(reset, row, t), line(x, row, t),
            state, tile == 0 and initial[0] == NOWHERE, write, scratch,
        )  # fmt: skip
        if states != NOWHERE:
            simd.store1(simd.FLOAT64, states + tile * 8, state)
    return state


@jit()
def _rows(
    kind: Any, direction: Any, A: Any, E: Any, part: int, parts: int,
    a: Any, b: Any, initial: Any, reset: Any, x: Any, how: int,
) -> None:  # fmt: skip
    """Scan one of ``parts`` parts of the rows, row after row."""
    operands = located(direction, A, simd.scratch(), a, b, initial, reset, x, how)
    write = _writing(direction, E, x, operands[4], how)
    outer, steps, inner = x.shape
    start, stop = _bounds(part, parts, outer * inner)
    scratch = simd.scratch(), simd.scratch(), simd.scratch()
    tiles = 0, _tiles(E, steps)
    multipliers, _, before, _, _ = operands
    table = _table(kind, direction, A, E, multipliers, (0, 0))
    for r in range(start, stop):
        row = r // inner, r % inner
        if multipliers[1] != 0 or multipliers[3] != 0:
            table = _table(kind, direction, A, E, multipliers, row)
        state = _before(E, before, row)
        _piece(direction, A, E, table, steps, tiles, row, operands, state, write, scratch, NOWHERE)
    if write == STREAMED:
        simd.fence()


# Few long rows -----------------------------------------------------------------------------------
#
# Each thread scans a part of the row as if the state before it were zero.  Then each later part is
# redone from the true state, until a tile ends in the very state it ended in before: from there on
# every bit is what it would be anyway.  Unless |a| is 1, that is soon.


@jit(inline=True)
def _place(states: Any, r: int) -> int:
    """The address of the states of a row."""
    return np.int64(states.ctypes.data) + r * np.int64(states.strides[0])


@jit()
def _part(
    kind: Any, direction: Any, A: Any, E: Any, r: int, part: int, parts: int, states: Any,
    a: Any, b: Any, initial: Any, reset: Any, x: Any, how: int,
) -> None:  # fmt: skip
    """Scan a part of a row, from a state of zero unless it is the first part."""
    operands = located(direction, A, simd.scratch(), a, b, initial, reset, x, how)
    write = _writing(direction, E, x, operands[4], how)
    _, steps, inner = x.shape
    row = r // inner, r % inner
    table = _table(kind, direction, A, E, operands[0], row)
    scratch = simd.scratch(), simd.scratch(), simd.scratch()
    _piece(
        direction, A, E, table, steps, _bounds(part, parts, _tiles(E, steps)), row, operands,
        _before(E, operands[2], row) if part == 0 else 0.0, write, scratch, _place(states, r),
    )  # fmt: skip
    if write == STREAMED:
        simd.fence()


@jit()
def _settle(
    kind: Any, direction: Any, A: Any, E: Any, r: int, parts: int, states: Any,
    a: Any, b: Any, initial: Any, reset: Any, x: Any, how: int,
) -> None:  # fmt: skip
    """Redo the later parts of a row from the true states, as far as that changes anything."""
    operands = located(direction, A, simd.scratch(), a, b, initial, reset, x, how)
    write = _writing(direction, E, x, operands[4], how)
    _, steps, inner = x.shape
    row = r // inner, r % inner
    scratch = simd.scratch(), simd.scratch(), simd.scratch()
    table = _table(kind, direction, A, E, operands[0], row)
    for part in range(1, parts):
        first, stop = _bounds(part, parts, _tiles(E, steps))
        state = states[r, first - 1]
        for tile in range(first, stop):
            former = states[r, tile]
            state = _piece(
                direction, A, E, table, steps, (tile, tile + 1), row, operands, state, write,
                scratch, _place(states, r),
            )  # fmt: skip
            if state == former and math.copysign(1.0, state) == math.copysign(1.0, former):
                break
    if write == STREAMED:
        simd.fence()


# Entries -----------------------------------------------------------------------------------------


def build(
    constant: bool, direction: simd.Token, A: simd.Token, E: simd.Token, number: bool
) -> tuple[Any, Any]:
    """``(serial, threaded)``: the kernels of one kind, for ``_threads.run``.

    ``constant``: one multiplier per row and no resets.  ``number``: it is not an array.
    """
    kind = CONSTANT if constant else None
    arguments = signature(A, E, number)

    @jit(arguments)
    def serial(a: Any, b: Any, initial: Any, reset: Any, x: Any, how: int) -> None:
        _rows(kind, direction, A, E, 0, 1, a, b, initial, reset, x, how)

    def threads() -> Any:
        @jit((types.int64, *arguments), parallel=True)
        def threaded(
            parts: int, a: Any, b: Any, initial: Any, reset: Any, x: Any, how: int
        ) -> None:
            outer, steps, inner = x.shape
            rows, tiles = outer * inner, _tiles(E, steps)
            if rows >= 2 * parts or tiles < 4 * parts or how & IN_PLACE != 0:
                for part in numba.prange(parts):
                    _rows(kind, direction, A, E, part, parts, a, b, initial, reset, x, how)
            else:
                states = np.empty((rows, tiles))
                for i in numba.prange(rows * parts):
                    _part(
                        kind, direction, A, E, i // parts, i % parts, parts, states,
                        a, b, initial, reset, x, how,
                    )  # fmt: skip
                for r in numba.prange(rows):
                    _settle(kind, direction, A, E, r, parts, states, a, b, initial, reset, x, how)

        return threaded

    return serial, functools.cache(threads)
