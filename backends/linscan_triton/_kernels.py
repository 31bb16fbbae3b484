"""The two kernels, and what they have in common; what they scan is up to three small functions.

``LOAD(operands, place, ...)`` reads what a tile needs, as it is stored; ``PREPARE(raw, ...)`` makes
multipliers and inputs of it, in the order of the scan; ``FINISH(results, place, x, before, ...)``
writes: ``before`` is the state before the tile.
Loads come a tile early, so that memory is busy while the tile before is scanned.  What a tile hands
on to the next, besides the state, is what ``PREPARE`` returns last, and at first what
``START(operands, ...)`` returns.

A program does one chunk of time: all of it, unless there are few rows.  Then the chunks' totals
(``products``, ``sums`` and ``cuts``) are found first, with nothing else written; they are the
multipliers, inputs and resets of a scan over chunks, by these same kernels; and its ``states`` are
where each chunk starts.

A product of a chunk that overflows or vanishes is kept finite and nonzero: times a zero state it is
zero, and times an infinite one infinite, as in the loop.  Times a tiny state it may differ from the
loop; and after a chunk with an infinite multiplier there may be NaN where the loop is infinite.
"""

# mypy: ignore-errors
# pyright: basic

from __future__ import annotations

import triton
import triton.language as tl

from linscan_triton._tile import (
    advance,
    any_lane,
    any_step,
    bounded,
    choose,
    flaw,
    load,
    one,
    one_by_one,
    ordered,
    scan_tile,
    state_place,
    steps_in_order,
    tile_place,
    times,
    total,
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
    cuts,
    states,
    n0: tl.float64,
    n1: tl.float64,
    n2: tl.float64,
    n3: tl.float64,
    n4: tl.float64,
    n5: tl.float64,
    lanes,
    time,
    chunks,
    size,
    LANES: tl.constexpr,
    STEPS: tl.constexpr,
    V: tl.constexpr,
    ONCE: tl.constexpr,
    KIND: tl.constexpr,
    REVERSE: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
    START: tl.constexpr,
    LOAD: tl.constexpr,
    PREPARE: tl.constexpr,
    FINISH: tl.constexpr,
):
    """Tiles of adjoining steps, one after another; ``size`` of them are a chunk.

    ``ONCE``: all of time is one tile.
    """
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
        flaws = tl.zeros([LANES, 1], ACC)
        crossed = tl.zeros([LANES, 1], tl.int1)
    before = None
    if products is not None or states is not None:
        edge = tl.cast(tile, tl.int64) * STEPS - 1
        if REVERSE:
            edge += STEPS + 1
        before = _step_place(plane, lane, lanes, edge, time)
    at = state_place(plane, lane, lanes)
    numbers = n0, n1, n2, n3, n4, n5
    handed = START(operands, numbers, at, before, LANES, KIND, COMPLEX, ACC)
    place = tile_place(plane, lane, lanes, tile, time, STEPS, V, REVERSE)
    raw = LOAD(operands, place, LANES, V, 1, KIND, COMPLEX)
    for k in range(count):
        now = raw
        here = place
        step = steps_in_order(tile, STEPS, REVERSE)
        if not ONCE:
            more = k + 1 < count
            tile = tl.where(more, tile + ahead, tile)
            inside = tl.where(more, lanes, 0)
            place = tile_place(plane, lane, inside, tile, time, STEPS, V, REVERSE)
            raw = LOAD(operands, place, LANES, V, 1, KIND, COMPLEX)
        a, b, cut, kept, next_handed = PREPARE(
            now, raw, handed, step, first, time, KIND, REVERSE, COMPLEX, ACC
        )
        x, after, so_far, doubtful = scan_tile(a, b, state, len(cut) == 1)
        if any_lane(doubtful):
            now = LOAD(operands, here, LANES, V, 1, KIND, COMPLEX)
            a, b, cut, kept, _ = PREPARE(
                now, raw, handed, step, first, time, KIND, REVERSE, COMPLEX, ACC
            )
            exact, last = one_by_one(a, b, cut, (step >= 0) & (step < time), state)
            x = choose(doubtful, exact, x)
            after = choose(doubtful, last, after)
        if products is None:
            FINISH(results, here, x, state, kept, LANES, V, 1, REVERSE)
        else:
            product, flaws = total(product, flaws, a, so_far)
            if len(cut) == 1:
                crossed = crossed | any_step(cut[0])
        state = after
        handed = next_handed

    if products is not None:
        at = chunk_place(plane, lane, lanes, chunk, chunks, REVERSE)
        write(products, at, product, LANES, 1, 1, False)
        write(sums, at, state, LANES, 1, 1, False)
        if cuts is not None:
            write(cuts, at, (crossed,), LANES, 1, 1, False)
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
    cuts,
    states,
    n0: tl.float64,
    n1: tl.float64,
    n2: tl.float64,
    n3: tl.float64,
    n4: tl.float64,
    n5: tl.float64,
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
    START: tl.constexpr,
    LOAD: tl.constexpr,
    PREPARE: tl.constexpr,
    FINISH: tl.constexpr,
):
    """The loop itself in every lane.  ``STEPS`` steps are loaded at once, and ``size`` times."""
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

    state = zeros(LANES, COMPLEX, ACC)
    if products is None:
        state = _start(
            initial, states, plane, lane, lanes, chunk, chunks, LANES, REVERSE, COMPLEX, ACC
        )
    else:
        product = one(LANES, COMPLEX, ACC)
        flaws = tl.zeros([LANES, 1], ACC)
        crossed = tl.zeros([LANES, 1], tl.int1)
    before = None
    if products is not None or states is not None:
        before = _step_place(plane, lane, lanes, step - ahead, time)
    at = state_place(plane, lane, lanes)
    numbers = n0, n1, n2, n3, n4, n5
    handed = START(operands, numbers, at, before, LANES, KIND, COMPLEX, ACC)
    for _ in range(count):
        raws = ()
        for u in tl.static_range(STEPS):
            place = _step_place(plane, lane, lanes, step + ahead * u, time)
            raws = raws + (LOAD(operands, place, LANES, 1, W, KIND, COMPLEX),)
        for u in tl.static_range(STEPS):
            place = _step_place(plane, lane, lanes, step + ahead * u, time)
            here = tl.reshape(place[3], [1, 1])
            a, b, cut, kept, handed = PREPARE(
                raws[u], raws[u], handed, here, first, time, KIND, REVERSE, COMPLEX, ACC
            )
            after = advance(a, state, b)
            if len(cut) == 1:
                after = choose(cut[0], b, after)
            if COMPLEX:  # else 1 * x + 0 is x, infinite or not
                after = choose((here >= 0) & (here < time), after, state)
            if products is None:
                FINISH(results, place, after, state, kept, LANES, 1, W, REVERSE)
            else:
                product = times(a, product)
                flaws = flaws + flaw(a)
                if len(cut) == 1:
                    crossed = crossed | cut[0]
            state = after
        step = step + ahead * STEPS

    if products is not None:
        at = chunk_place(plane, lane, lanes, chunk, chunks, REVERSE)
        write(products, at, bounded(product, flaws), LANES, 1, 1, False)
        write(sums, at, state, LANES, 1, 1, False)
        if cuts is not None:
            write(cuts, at, (crossed,), LANES, 1, 1, False)
    if final is not None:
        at = state_place(plane, lane, tl.where(chunk == chunks - 1, lanes, 0))
        write(final, at, state, LANES, 1, 1, False)
