"""The recurrence of the return estimators, in one pass over their operands.

Every estimator is the same reverse scan with other weights::

    x[t] = r[t] + on * n[t] (- v[t]) + keep * x[t + 1]     where the trace goes on
    x[t] = r[t] + cut * n[t] (- v[t])                      where it ends

and every kernel has the same shape: load some steps, form what each of them adds
(:func:`prologue`), scan, write the results (:func:`epilogue`).  :func:`rows` scans consecutive
steps of a row inside a register; :func:`columns` has neighbouring columns side by side in one, and
:func:`short_rows` has rows; and :func:`serial` takes one step after the other: what is rare,
operands with other strides, and whatever was not finite when it came out of a register.

Each kernel is made for a dtype and for what a problem has: advantages, flags, a mask.  Those are
tokens, or None, for which numba drops the code.
"""

# mypy: disallow-untyped-calls=False, disallow-untyped-defs=False

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from linscan_numba import _simd as simd
from linscan_numba._jit import jit
from linscan_numba._launch import FIRST, HOW, INNER, OUTER, TIME, kernel, line, peek, share, step
from linscan_numba._simd import FLOAT64, FORWARD, REVERSE, SCRATCH, Token

REWARDS, VALUES, NEXT_VALUES, LAST_VALUES, FINAL_VALUES = range(FIRST, FIRST + 5)
"""The operands.  ``FINAL_VALUES`` follow a truncated step."""
FLAGS = ENDED, TRUNCATED, MASK = range(FIRST + 5, FIRST + 8)
"""The bools."""
RESULTS = ADVANTAGES, RETURNS = range(FIRST + 8, FIRST + 10)
WEIGHTS = FIRST + 10
"""Along time: of the next value where the trace goes on and where it ends; of the next state."""

GIVEN, CARRIED, CURRENT, STREAMED = 1, 2, 4, 8
"""What a call has, added up: next values; results at masked steps, which are the state passing by;
truncated steps that are followed by their own value; results that are written past the caches."""

NARROWEST = 16
"""The vectors of a block of columns at least: it costs something per step, however narrow it is."""

PRESENT = Token("present")


class Weights(NamedTuple):
    """Of the next value, where the trace goes on and where it ends; and of the next state."""

    on: Any
    cut: Any
    keep: Any
    zero: Any


class State(NamedTuple):
    """What a step hands on to the one before it."""

    x: float
    value: float
    """What follows the valid step to come."""
    ended: bool
    """Whether a hole since the last valid step holds this flag: it acts on the one to come."""
    truncated: bool
    stopped: bool
    """Whether for this or another reason the trace does not go on from the valid step to come."""


@jit(inline=True)
def prologue(
    reward: Any,
    value: Any,
    n: Any,
    final: Any,
    ended: Any,
    truncated: Any,
    w: Weights,
    cut: Any,
    advantages: Any,
) -> Any:
    """What steps add to the state, of numbers or of vectors.  ``cut``: where the trace ends."""
    if cut is None:
        gain = w.on
    else:
        n = simd.select(ended, w.zero, simd.select(truncated, final, n))
        gain = simd.select(cut, w.cut, w.on)
    delta = simd.fma(gain, n, reward)
    if advantages is None:
        return delta
    return simd.sub(delta, value)


@jit(inline=True)
def epilogue(x: Any, value: Any, shown: Any, zero: Any, advantages: Any) -> Any:
    """``(advantages, returns)`` of steps; both the same where only returns are wanted."""
    returns = x
    if advantages is not None:
        returns = simd.add(x, value)
    return simd.select(shown, x, zero), simd.select(shown, returns, zero)


@jit(inline=True)
def weights(token: Token, plan: int, row: int, column: int) -> Weights:
    """The weights of a row and column."""
    address, by = line(plan, WEIGHTS, row, column), step(plan, WEIGHTS)
    return Weights(
        simd.rounded(token, simd.load1(FLOAT64, address)),
        simd.rounded(token, simd.load1(FLOAT64, address + by)),
        simd.rounded(token, simd.load1(FLOAT64, address + 2 * by)),
        simd.rounded(token, 0.0),
    )


# One step after the other -------------------------------------------------------------------------


@jit()
def serial(
    token: Token,
    advantages: Any,
    flags: Any,
    mask: Any,
    plan: int,
    row: int,
    column: int,
    high: int,
    low: int,
    state: State,
    to_advantages: int,
    to_returns: int,
) -> State:
    """The steps from ``high - 1`` down to ``low`` of one row and column.

    Results go to where step 0 would be at ``to_advantages`` and ``to_returns``.
    """
    rewards, by_reward = line(plan, REWARDS, row, column), step(plan, REWARDS)
    values, by_value = line(plan, VALUES, row, column), step(plan, VALUES)
    nexts, by_next = line(plan, NEXT_VALUES, row, column), step(plan, NEXT_VALUES)
    finals, by_final = line(plan, FINAL_VALUES, row, column), step(plan, FINAL_VALUES)
    ends, by_end = line(plan, ENDED, row, column), step(plan, ENDED)
    cuts, by_cut = line(plan, TRUNCATED, row, column), step(plan, TRUNCATED)
    masks, by_mask = line(plan, MASK, row, column), step(plan, MASK)
    by_advantage, by_return = step(plan, ADVANTAGES), step(plan, RETURNS)
    how = peek(plan, HOW)
    given, carried, current = how & GIVEN != 0, how & CARRIED != 0, how & CURRENT != 0
    w = weights(token, plan, row, column)
    x, following = simd.rounded(token, state.x), state.value
    ended, truncated, stopped = state.ended, state.truncated, state.stopped
    for t in range(high - 1, low - 1, -1):
        valid = True
        if mask is not None:
            valid = simd.load_flag(masks + t * by_mask)
        if flags is not None:
            ends_here, cut_here = (
                simd.load_flag(ends + t * by_end),
                simd.load_flag(cuts + t * by_cut),
            )
            if ends_here or cut_here:
                ended, truncated, stopped = ends_here, cut_here, True
                x = w.zero
                following = w.zero if ends_here else simd.load1(token, finals + t * by_final)
        value = simd.load1(token, values + t * by_value)
        if valid:
            reward = simd.load1(token, rewards + t * by_reward)
            n = simd.load1(token, nexts + t * by_next) if given else following
            final = value if current else n
            delta = prologue(reward, value, n, final, ended, truncated, w, stopped, advantages)
            x = simd.fma(w.keep, w.zero if stopped else x, delta)
            following = value
            ended = truncated = stopped = False
        first, second = epilogue(x, value, valid or carried, w.zero, advantages)
        if advantages is not None:
            simd.store1(token, to_advantages + t * by_advantage, first)
        simd.store1(token, to_returns + t * by_return, second)
    return State(np.float64(x), following, ended, truncated, stopped)


@jit(inline=True)
def whole_line(
    token: Token, advantages: Any, flags: Any, mask: Any, plan: int, row: int, column: int
) -> None:
    """All steps of one row and column."""
    last = simd.load1(token, line(plan, LAST_VALUES, row, column))
    serial(
        token,
        advantages,
        flags,
        mask,
        plan,
        row,
        column,
        peek(plan, TIME),
        0,
        State(0.0, last, False, False, True),
        line(plan, ADVANTAGES, row, column),
        line(plan, RETURNS, row, column),
    )


def lines(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for operands of any strides."""

    def run(plan, part, parts):
        inner = peek(plan, INNER)
        begin, end = share(peek(plan, OUTER) * inner, part, parts)
        for k in range(begin, end):
            whole_line(token, advantages, flags, mask, plan, k // inner, k % inner)

    return kernel(run)


# Steps of a row side by side ----------------------------------------------------------------------


@jit(inline=True)
def row_weights(token: Token, plan: int, row: int) -> Any:
    """The weights of a row in vectors, and the powers of what its state keeps."""
    w = weights(token, plan, row, 0)
    keep = simd.load1(FLOAT64, line(plan, WEIGHTS, row, 0) + 2 * step(plan, WEIGHTS))
    on, cut, zero = simd.splat(token, w.on), simd.splat(token, w.cut), simd.zeros(token)
    vectors = Weights(on, cut, simd.splat(token, w.keep), zero)
    return vectors, simd.powers(token, REVERSE, keep), simd.power(token, keep)


def rows(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for one column, where the steps of a row lie side by side."""

    def run(plan, part, parts):
        begin, end = share(peek(plan, OUTER), part, parts)
        time, how = peek(plan, TIME), peek(plan, HOW)
        given, carried, streamed = how & GIVEN != 0, how & CARRIED != 0, how & STREAMED != 0
        size, n = simd.size(token), simd.lanes(token)
        tile = SCRATCH // size
        staged_advantages, staged_returns = simd.scratch(), simd.scratch()
        by_value, by_final = step(plan, VALUES), step(plan, FINAL_VALUES)
        by_next = step(plan, NEXT_VALUES)
        by_end, by_cut = step(plan, ENDED), step(plan, TRUNCATED)
        zero, one = simd.zeros(token), simd.splat(token, 1.0)
        never = simd.never(token)
        always = simd.invert(never)
        weights_vary = peek(plan, 4 * WEIGHTS + 1) != 0
        w, table, power = row_weights(token, plan, begin)
        for row in range(begin, end):
            rewards, values = line(plan, REWARDS, row, 0), line(plan, VALUES, row, 0)
            nexts = line(plan, NEXT_VALUES, row, 0)
            finals = line(plan, FINAL_VALUES, row, 0)
            ends, cuts = line(plan, ENDED, row, 0), line(plan, TRUNCATED, row, 0)
            masks = line(plan, MASK, row, 0)
            out_advantages, out_returns = (
                line(plan, ADVANTAGES, row, 0),
                line(plan, RETURNS, row, 0),
            )
            if weights_vary:
                w, table, power = row_weights(token, plan, row)

            # Lanes past the end add nothing to a state of zero, and hand on what follows the end.
            last = simd.load1(token, line(plan, LAST_VALUES, row, 0))
            state = State(0.0, last, False, False, True)
            low = (time + n - 1) // n * n
            inside = simd.first_lanes(FORWARD, token, time + n - low)
            on = simd.select(simd.first_lanes(FORWARD, token, time + n - low - 1), w.on, w.cut)
            here = Weights(simd.select(inside, on, zero), w.cut, w.keep, zero)
            past = zero if advantages is None else simd.splat(token, last)
            while low > 0:
                high, low = low, (low - 1) // tile * tile
                to_advantages, to_returns = out_advantages, out_returns
                staged = streamed and high <= time
                if staged:
                    to_advantages = staged_advantages - low * size
                    to_returns = staged_returns - low * size
                at_tile, check = state, zero
                for t in range(high - n, low - 1, -n):
                    whole = t + n <= time
                    follows = simd.splat(token, state.value)
                    reward = simd.load_edge(token, rewards + t * size, whole, inside, past)
                    value = simd.load_edge(token, values + t * by_value, whole, inside, follows)
                    valid, ended, truncated = always, never, never
                    if mask is not None:
                        valid = simd.load_edge_flags(token, masks + t, whole, inside)
                    if flags is not None:
                        ended = simd.load_edge_flags(token, ends + t * by_end, whole, inside)
                        truncated = simd.load_edge_flags(token, cuts + t * by_cut, whole, inside)
                    cut = simd.either(ended, truncated)
                    if mask is not None and (
                        simd.any_of(simd.both(cut, simd.invert(valid)))
                        or (state.stopped and simd.any_of(valid))
                    ):
                        # A flag in a hole has to be moved, which is rare.
                        state = serial(
                            token,
                            advantages,
                            flags,
                            mask,
                            plan,
                            row,
                            0,
                            min(t + n, time),
                            t,
                            state,
                            to_advantages,
                            to_returns,
                        )
                        here = w
                        continue

                    before, nearest = simd.splat(token, state.x), value
                    if mask is not None and not simd.all_of(valid):
                        keeps, filled = simd.scan(
                            REVERSE, simd.select(valid, zero, one), simd.select(valid, value, zero)
                        )
                        nearest = simd.fma(keeps, follows, filled)
                        check = simd.fma(zero, nearest, check)
                    if given:
                        following = simd.load_edge(token, nexts + t * by_next, whole, inside, zero)
                    else:
                        following = simd.previous(REVERSE, nearest, follows)
                    if simd.all_of(valid) and not simd.any_of(cut):
                        delta = prologue(
                            reward, value, following, zero, never, never, here, None, advantages
                        )
                        local = simd.scan_constant(REVERSE, delta, table)
                        x = simd.fma(table[0], before, local)
                        after = simd.advance(power, state.x, simd.last(REVERSE, local))
                    else:
                        final = simd.load_edge(token, finals + t * by_final, whole, inside, zero)
                        delta = prologue(
                            reward, value, following, final, ended, truncated, here, cut, advantages
                        )
                        a = simd.select(valid, simd.select(cut, zero, w.keep), one)
                        products, local = simd.scan(REVERSE, a, simd.select(valid, delta, zero))
                        x = simd.fma(products, before, local)
                        after = simd.advance(simd.product(a), state.x, simd.last(REVERSE, local))
                    check = simd.fma(zero, x, check)
                    shown = always if carried else valid
                    first, second = epilogue(x, value, shown, zero, advantages)
                    if advantages is not None:
                        simd.store_edge(token, to_advantages + t * size, whole, inside, first)
                    simd.store_edge(token, to_returns + t * size, whole, inside, second)
                    stopped = state.stopped and not simd.any_of(valid)
                    value = simd.last(REVERSE, nearest)
                    state = State(after, value, state.ended, state.truncated, stopped)
                    here = w

                if simd.any_nan(check):
                    state = serial(
                        token,
                        advantages,
                        flags,
                        mask,
                        plan,
                        row,
                        0,
                        min(high, time),
                        low,
                        at_tile,
                        to_advantages,
                        to_returns,
                    )
                if staged:
                    for t in range(low, high, n):
                        if advantages is not None:
                            x = simd.load(token, to_advantages + t * size)
                            simd.stream(token, out_advantages + t * size, x)
                        x = simd.load(token, to_returns + t * size)
                        simd.stream(token, out_returns + t * size, x)
        if streamed:
            simd.fence()

    return kernel(run)


# Short rows side by side --------------------------------------------------------------------------


@jit(inline=True)
def four(token: Token, plan: int, operand: int, row: int, t: int, n: Any) -> Any:
    """Step ``t`` and the three before it of a vector of rows, or the first ``n`` of the four."""
    address = line(plan, operand, row, 0) + t * step(plan, operand)
    return simd.load_rows(REVERSE, token, address, peek(plan, 4 * operand + 1), n)


@jit(inline=True)
def four_flags(token: Token, plan: int, operand: int, row: int, t: int, n: Any) -> Any:
    """The same of bools."""
    address = line(plan, operand, row, 0) + t * step(plan, operand)
    return simd.load_rows_flags(REVERSE, token, address, peek(plan, 4 * operand + 1), n)


@jit(inline=True)
def put_four(token: Token, plan: int, operand: int, row: int, t: int, n: Any, x: Any) -> None:
    """Write what :func:`four` would read."""
    address = line(plan, operand, row, 0) + t * step(plan, operand)
    simd.store_rows(REVERSE, token, address, peek(plan, 4 * operand + 1), n, x)


@jit(inline=True)
def one_of_four(
    k: int,
    reward: Any,
    value: Any,
    following: Any,
    final: Any,
    ended: Any,
    truncated: Any,
    w: Weights,
    cut: Any,
    x: Any,
    advantages: Any,
) -> Any:
    """The state after one more step, of four that were read."""
    delta = prologue(
        reward[k], value[k], following[k], final[k], ended[k], truncated[k], w, cut, advantages
    )
    return simd.fma(w.keep, simd.select(cut, w.zero, x), delta)


@jit(inline=True)
def back_four(
    token: Token,
    advantages: Any,
    flags: Any,
    plan: int,
    row: int,
    t: int,
    n: Any,
    w: Weights,
    at_end: Any,
    state: Any,
    follows: Any,
) -> Any:
    """Four steps of a vector of rows: the states and the values that they hand on."""
    how, no = peek(plan, HOW), simd.never(token)
    reward, value = four(token, plan, REWARDS, row, t, n), four(token, plan, VALUES, row, t, n)
    following, final = (follows, value[0], value[1], value[2]), value
    if how & GIVEN != 0:
        following = four(token, plan, NEXT_VALUES, row, t, n)
    ended = truncated = no, no, no, no
    cuts = at_end, no, no, no
    if flags is not None:
        ended = four_flags(token, plan, ENDED, row, t, n)
        truncated = four_flags(token, plan, TRUNCATED, row, t, n)
        if how & CURRENT == 0:
            final = four(token, plan, FINAL_VALUES, row, t, n)
        cuts = (
            simd.either(at_end, simd.either(ended[0], truncated[0])),
            simd.either(ended[1], truncated[1]),
            simd.either(ended[2], truncated[2]),
            simd.either(ended[3], truncated[3]),
        )
    read = reward, value, following, final, ended, truncated
    x0 = one_of_four(0, *read, w, cuts[0], state, advantages)
    x1 = one_of_four(1, *read, w, cuts[1], x0, advantages)
    x2 = one_of_four(2, *read, w, cuts[2], x1, advantages)
    x3 = one_of_four(3, *read, w, cuts[3], x2, advantages)
    if advantages is not None:
        put_four(token, plan, ADVANTAGES, row, t, n, (x0, x1, x2, x3))
        x0, x1 = simd.add(x0, value[0]), simd.add(x1, value[1])
        returns = x0, x1, simd.add(x2, value[2]), simd.add(x3, value[3])
        put_four(token, plan, RETURNS, row, t, n, returns)
    else:
        put_four(token, plan, RETURNS, row, t, n, (x0, x1, x2, x3))
    return x3, value[3]


def short_rows(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for one column, where the steps of short rows lie side by side; without a mask.

    Every element is what :func:`serial` makes of it.  Results are never streamed.
    """

    def run(plan, part, parts):
        begin, end = share(peek(plan, OUTER), part, parts)
        time, n, size = peek(plan, TIME), simd.lanes(token), simd.size(token)
        weights_vary = peek(plan, 4 * WEIGHTS + 1) != 0
        zero, never = simd.zeros(token), simd.never(token)
        ons, offs, keeps = simd.scratch(), simd.scratch(), simd.scratch()
        if end - begin < n:
            for row in range(begin, end):
                whole_line(token, advantages, flags, mask, plan, row, 0)
            return
        for unit in range(begin, end, n):
            # Where the last rows do not fill a vector, it overlaps the one before.
            row = min(unit, end - n)
            if unit == begin or weights_vary:
                for i in range(n):
                    one = weights(token, plan, row + i, 0)
                    simd.store1(token, ons + i * size, one.on)
                    simd.store1(token, offs + i * size, one.cut)
                    simd.store1(token, keeps + i * size, one.keep)
            w = Weights(
                simd.load(token, ons), simd.load(token, offs), simd.load(token, keeps), zero
            )
            state, at_end = zero, simd.invert(never)
            last = peek(plan, 4 * LAST_VALUES + 1)
            follows = simd.load_apart(token, line(plan, LAST_VALUES, row, 0), last)
            rest = time % simd.SIDE
            for t in range(time - 1, rest - 1, -simd.SIDE):
                state, follows = back_four(
                    token, advantages, flags, plan, row, t, None, w, at_end, state, follows
                )
                at_end = never
            if rest > 0:
                back_four(
                    token, advantages, flags, plan, row, rest - 1, rest, w, at_end, state, follows
                )

    return kernel(run)


# Columns side by side -----------------------------------------------------------------------------


def columns(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for many columns, which lie side by side.

    A block of them is walked back in time.  What a step hands on waits in the caches nearby, and
    the same columns of the step before are already on their way there.
    """

    def run(plan, part, parts):
        outer, time, inner = peek(plan, OUTER), peek(plan, TIME), peek(plan, INNER)
        how = peek(plan, HOW)
        given, carried, current = how & GIVEN != 0, how & CARRIED != 0, how & CURRENT != 0
        streamed = how & STREAMED != 0
        size, n = simd.size(token), simd.lanes(token)
        own = inner if outer >= parts else (inner + parts - 1) // parts
        width = min(max(NARROWEST, (own + n - 1) // n) * n, SCRATCH // size)
        blocks = (inner + width - 1) // width
        begin, end = share(outer * blocks, part, parts)
        states, nearest = simd.scratch(), simd.scratch()
        ons, offs, keeps = simd.scratch(), simd.scratch(), simd.scratch()
        endings, cuttings, stops = simd.scratch(), simd.scratch(), simd.scratch()
        staged_advantages, staged_returns = simd.scratch(), simd.scratch()
        by_reward, by_value, by_next = (
            step(plan, REWARDS),
            step(plan, VALUES),
            step(plan, NEXT_VALUES),
        )
        by_final, by_end, by_cut = (
            step(plan, FINAL_VALUES),
            step(plan, ENDED),
            step(plan, TRUNCATED),
        )
        by_mask, by_advantage, by_return = (
            step(plan, MASK),
            step(plan, ADVANTAGES),
            step(plan, RETURNS),
        )
        # Operands that are absent do not move from column to column.
        move_value, move_final = peek(plan, 4 * VALUES + 3), peek(plan, 4 * FINAL_VALUES + 3)
        move_end, move_cut = peek(plan, 4 * ENDED + 3), peek(plan, 4 * TRUNCATED + 3)
        one_weight = peek(plan, 4 * WEIGHTS + 3) == 0
        by_weight = 0 if one_weight else n * size
        zero, never = simd.zeros(token), simd.never(token)
        always = simd.invert(never)
        for unit in range(begin, end):
            row, start = unit // blocks, unit % blocks * width
            stop = min(inner, start + width)
            if inner < n:
                for column in range(inner):
                    whole_line(token, advantages, flags, mask, plan, row, column)
                continue
            # Where the last vector of a block is not full, it overlaps the one before.
            start = min(start, inner - n)
            count = (stop - start + n - 1) // n
            for j in range(count):
                column = min(start + j * n, stop - n)
                simd.store(token, states + j * n * size, zero)
                last = simd.load(token, line(plan, LAST_VALUES, row, column))
                simd.store(token, nearest + j * n * size, last)
                if mask is not None:
                    simd.store_flags(token, endings + j * n, never)
                    simd.store_flags(token, cuttings + j * n, never)
                    simd.store_flags(token, stops + j * n, always)
                if j == 0 or not one_weight:
                    for i in range(n):
                        w = weights(token, plan, row, column + i)
                        simd.store1(token, ons + (j * n + i) * size, w.on)
                        simd.store1(token, offs + (j * n + i) * size, w.cut)
                        simd.store1(token, keeps + (j * n + i) * size, w.keep)

            rewards, values = line(plan, REWARDS, row, 0), line(plan, VALUES, row, 0)
            nexts, finals = line(plan, NEXT_VALUES, row, 0), line(plan, FINAL_VALUES, row, 0)
            ends, cuts = line(plan, ENDED, row, 0), line(plan, TRUNCATED, row, 0)
            masks = line(plan, MASK, row, 0)
            for t in range(time - 1, -1, -1):
                to_advantages = line(plan, ADVANTAGES, row, start) + t * by_advantage
                to_returns = line(plan, RETURNS, row, start) + t * by_return
                if streamed:
                    to_advantages, to_returns = staged_advantages, staged_returns
                earlier = max(t - 1, 0)
                for j in range(count):
                    column = min(start + j * n, stop - n)
                    place, here = column * size, j * n * size
                    simd.prefetch(rewards + earlier * by_reward + place)
                    simd.prefetch(values + earlier * by_value + column * move_value)
                    reward = simd.load(token, rewards + t * by_reward + place)
                    value = simd.load(token, values + t * by_value + column * move_value)
                    x = simd.load(token, states + here)
                    follows = simd.load(token, nearest + here)
                    w = Weights(
                        simd.load(token, ons + j * by_weight),
                        simd.load(token, offs + j * by_weight),
                        simd.load(token, keeps + j * by_weight),
                        zero,
                    )
                    valid, ended, truncated = always, never, never
                    cut = always if t == time - 1 else never
                    if mask is not None:
                        valid = simd.load_flags(token, masks + t * by_mask + column)
                        ended = simd.load_flags(token, endings + j * n)
                        truncated = simd.load_flags(token, cuttings + j * n)
                        cut = simd.load_flags(token, stops + j * n)
                    if flags is not None:
                        ends_here = simd.load_flags(token, ends + t * by_end + column * move_end)
                        cuts_here = simd.load_flags(token, cuts + t * by_cut + column * move_cut)
                        here_too = simd.either(ends_here, cuts_here)
                        earlier_only = simd.invert(here_too)
                        ended = simd.either(ends_here, simd.both(ended, earlier_only))
                        truncated = simd.either(cuts_here, simd.both(truncated, earlier_only))
                        cut = simd.either(cut, here_too)
                        final = simd.load(token, finals + t * by_final + column * move_final)
                        follows = simd.select(cuts_here, final, follows)
                        follows = simd.select(ends_here, zero, follows)
                        x = simd.select(here_too, zero, x)
                    following = follows
                    if given:
                        following = simd.load(token, nexts + t * by_next + place)
                    final = value if current else following
                    delta = prologue(
                        reward, value, following, final, ended, truncated, w, cut, advantages
                    )
                    new = simd.fma(w.keep, simd.select(cut, zero, x), delta)
                    x = simd.select(valid, new, x)
                    simd.store(token, states + here, x)
                    simd.store(token, nearest + here, simd.select(valid, value, follows))
                    if mask is not None:
                        hole = simd.invert(valid)
                        simd.store_flags(token, endings + j * n, simd.both(ended, hole))
                        simd.store_flags(token, cuttings + j * n, simd.both(truncated, hole))
                        simd.store_flags(token, stops + j * n, simd.both(cut, hole))
                    shown = always if carried else valid
                    first, second = epilogue(x, value, shown, zero, advantages)
                    if advantages is not None:
                        simd.store(token, to_advantages + place - start * size, first)
                    simd.store(token, to_returns + place - start * size, second)
                if streamed:
                    to_advantages = line(plan, ADVANTAGES, row, start) + t * by_advantage
                    to_returns = line(plan, RETURNS, row, start) + t * by_return
                    for j in range(count):
                        here = j * n * size
                        if advantages is not None:
                            x = simd.load(token, staged_advantages + here)
                            simd.stream(token, to_advantages + here, x)
                        x = simd.load(token, staged_returns + here)
                        simd.stream(token, to_returns + here, x)
        if streamed:
            simd.fence()

    return kernel(run)
