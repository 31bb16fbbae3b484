"""The two kernels, and what they have in common; what they scan is up to three small functions.

``LOAD(operands, place, ...)`` reads what a tile needs, as it is stored; ``PREPARE(raw, ...)`` makes
multipliers and inputs of it, in the order of the scan; ``FINISH(results, place, x, ...)`` writes.
Loads come a tile early, so that memory is busy while the tile before is scanned.

A program does one chunk of time: all of it, unless there are few rows.  Then the chunks' totals
(``products`` and ``sums``) are found first, with nothing else written; they are the multipliers and
inputs of a scan over chunks, by these same kernels; and its ``states`` are where each chunk starts.
"""

# mypy: ignore-errors
# pyright: basic

from __future__ import annotations

import triton
import triton.language as tl

from linscan_triton._tile import (
    advance,
    any_lane,
    bounded,
    choose,
    load,
    one,
    one_by_one,
    ordered,
    scan_tile,
    state_place,
    steps_in_order,
    tile_place,
    total,
    vanish,
    write,
    zeros,
)


@triton.jit
def chunk_place(plane, lane, lanes, chunk, chunks, REVERSE: tl.constexpr):
    """Where a state of a chunk lies, which are numbered as the scan goes, but kept as time goes."""
    if REVERSE:
        chunk = chunks - 1 - chunk
    return plane, lane, lanes, tl.zeros([1, 1, 1], tl.int64) + chunk, chunks


@triton.jit
def _start(
    initial,
    states,
    plane,
    lane,
    lanes,
    chunk,
    chunks,
    LANES: tl.constexpr,
    REVERSE: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
):
    """The state before a chunk, ``[LANES, 1]`` each part."""
    state = zeros(LANES, COMPLEX, ACC)
    if initial is not None:
        at = state_place(plane, lane, tl.where(chunk == 0, lanes, 0))
        state = ordered(load(initial, at, LANES, 1, 1, COMPLEX), False, ACC)
    if states is not None:
        before = tl.maximum(chunk - 1, 0)
        at = chunk_place(plane, lane, tl.where(chunk == 0, 0, lanes), before, chunks, REVERSE)
        given = ordered(load(states, at, LANES, 1, 1, COMPLEX), False, ACC)
        state = choose(chunk == 0, state, given)
    return state


@triton.jit
def _step_place(plane, lane, lanes, step, time):
    """Where one step lies: no lane is inside if it does not exist."""
    return plane, lane, tl.where(step >= 0, lanes, 0), tl.zeros([1, 1, 1], tl.int64) + step, time


@triton.jit
def rows(
    operands,
    results,
    initial,
    final,
    products,
    sums,
    states,
    real: tl.float64,
    imaginary: tl.float64,
    lanes,
    time,
    chunks,
    size,
    LANES: tl.constexpr,
    STEPS: tl.constexpr,
    V: tl.constexpr,
    KIND: tl.constexpr,
    REVERSE: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
    LOAD: tl.constexpr,
    PREPARE: tl.constexpr,
    FINISH: tl.constexpr,
):
    """Tiles of adjoining steps, one after another; ``size`` of them are a chunk."""
    blocks = tl.cdiv(lanes, LANES)
    program = tl.program_id(0)
    chunk = program % chunks
    plane = (program // chunks // blocks).to(tl.int64)
    lane = (program // chunks % blocks).to(tl.int64) * LANES
    tiles = tl.cdiv(time, STEPS)
    begin = chunk * size
    count = tl.minimum(tiles - begin, size)
    tile = begin
    ahead = 1
    first = 0
    if REVERSE:
        tile = tiles - 1 - begin
        ahead = -1
        first = time - 1
    if initial is not None:
        first = -1

    state = zeros(LANES, COMPLEX, ACC)
    if products is None:
        state = _start(
            initial, states, plane, lane, lanes, chunk, chunks, LANES, REVERSE, COMPLEX, ACC
        )
    else:
        product = one(LANES, COMPLEX, ACC)
        poison = tl.zeros([LANES, 1], ACC)
    place = tile_place(plane, lane, lanes, tile, time, STEPS, V, REVERSE)
    raw = LOAD(operands, place, LANES, V, 1, KIND, COMPLEX)
    for k in range(count):
        now = raw
        here = place
        step = steps_in_order(tile, STEPS, REVERSE)
        more = k + 1 < count
        tile = tl.where(more, tile + ahead, tile)
        place = tile_place(plane, lane, tl.where(more, lanes, 0), tile, time, STEPS, V, REVERSE)
        raw = LOAD(operands, place, LANES, V, 1, KIND, COMPLEX)
        a, b, cut, kept = PREPARE(
            now, real, imaginary, step, first, time, LANES, KIND, REVERSE, COMPLEX, ACC
        )
        x, after, so_far, doubtful = scan_tile(a, b, state, len(cut) == 1)
        if any_lane(doubtful):
            now = LOAD(operands, here, LANES, V, 1, KIND, COMPLEX)
            a, b, cut, kept = PREPARE(
                now, real, imaginary, step, first, time, LANES, KIND, REVERSE, COMPLEX, ACC
            )
            exact, last = one_by_one(a, b, cut, state)
            x = choose(doubtful, exact, x)
            after = choose(doubtful, last, after)
        state = after
        if products is None:
            FINISH(results, here, x, kept, LANES, V, 1, REVERSE)
        else:
            product, poison = total(product, poison, a, so_far)

    if products is not None:
        at = chunk_place(plane, lane, lanes, chunk, chunks, REVERSE)
        write(products, at, product, LANES, 1, 1, False)
        write(sums, at, state, LANES, 1, 1, False)
    if final is not None:
        at = state_place(plane, lane, tl.where(chunk == chunks - 1, lanes, 0))
        write(final, at, state, LANES, 1, 1, False)


@triton.jit
def columns(
    operands,
    results,
    initial,
    final,
    products,
    sums,
    states,
    real: tl.float64,
    imaginary: tl.float64,
    lanes,
    time,
    chunks,
    size,
    LANES: tl.constexpr,
    STEPS: tl.constexpr,
    W: tl.constexpr,
    KIND: tl.constexpr,
    REVERSE: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
    LOAD: tl.constexpr,
    PREPARE: tl.constexpr,
    FINISH: tl.constexpr,
):
    """The loop itself in every lane.  ``STEPS`` steps are loaded at once; ``size`` times, a chunk."""
    blocks = tl.cdiv(lanes, LANES)
    program = tl.program_id(0)
    block = program % blocks
    lane = block.to(tl.int64) * LANES
    chunk = program // blocks % chunks
    plane = (program // blocks // chunks).to(tl.int64)
    groups = tl.cdiv(time, STEPS)
    begin = chunk * size
    count = tl.minimum(groups - begin, size)
    ahead = 1
    step = tl.cast(begin, tl.int64) * STEPS
    first = 0
    if REVERSE:
        ahead = -1
        step = time - 1 - step
        first = time - 1
    if initial is not None:
        first = -1

    zero = zeros(LANES, COMPLEX, ACC)
    state = zero
    if products is None:
        state = _start(
            initial, states, plane, lane, lanes, chunk, chunks, LANES, REVERSE, COMPLEX, ACC
        )
    else:
        product = one(LANES, COMPLEX, ACC)
        poison = tl.zeros([LANES, 1], ACC)
    for _ in range(count):
        raws = ()
        for u in tl.static_range(STEPS):
            place = _step_place(plane, lane, lanes, step + ahead * u, time)
            raws = raws + (LOAD(operands, place, LANES, 1, W, KIND, COMPLEX),)
        for u in tl.static_range(STEPS):
            place = _step_place(plane, lane, lanes, step + ahead * u, time)
            here = tl.reshape(place[3], [1, 1])
            a, b, cut, kept = PREPARE(
                raws[u], real, imaginary, here, first, time, LANES, KIND, REVERSE, COMPLEX, ACC
            )
            after = advance(a, state, b)
            if len(cut) == 1:
                after = choose(cut[0], b, after)
            state = after
            if products is None:
                FINISH(results, place, state, kept, LANES, 1, W, REVERSE)
            else:
                product = advance(a, product, zero)
                poison = poison + vanish(a)
        step = step + ahead * STEPS

    if products is not None:
        at = chunk_place(plane, lane, lanes, chunk, chunks, REVERSE)
        write(products, at, bounded(product, poison), LANES, 1, 1, False)
        write(sums, at, state, LANES, 1, 1, False)
    if final is not None:
        at = state_place(plane, lane, tl.where(chunk == chunks - 1, lanes, 0))
        write(final, at, state, LANES, 1, 1, False)
