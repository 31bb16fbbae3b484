"""The return estimators where neighbouring columns lie side by side in memory.

The loop runs on a register of columns.  Of few columns the state stays in registers,
:func:`few_columns`.  Many are taken in blocks, :func:`columns`, whose state waits in the caches
nearby while each of its steps is read and written as a whole.
"""

# mypy: disallow-untyped-calls=False, disallow-untyped-defs=False

from __future__ import annotations

from typing import Any, NamedTuple

from linscan_numba import _simd as simd
from linscan_numba._estimator_kernels import (
    ADVANTAGES,
    CARRIED,
    CURRENT,
    ENDED,
    FINAL_VALUES,
    GIVEN,
    LAST_VALUES,
    MASK,
    NEXT_VALUES,
    RETURNS,
    REWARDS,
    STREAMED,
    TRUNCATED,
    VALUES,
    WEIGHTS,
    Weights,
    epilogue,
    prologue,
    put_weights,
    weights,
)
from linscan_numba._jit import jit
from linscan_numba._launch import (
    HOW,
    INNER,
    OUTER,
    STEPS_AHEAD,
    TIME,
    kernel,
    line,
    locate,
    origin,
    peek,
    share,
    stride,
    vectors_of_a_block,
)
from linscan_numba._simd import FORWARD, SCRATCH, Token


class Columns(NamedTuple):
    """What a step of columns hands on to the one before it: see ``_estimator_kernels.State``."""

    x: Any
    follows: Any
    ended: Any
    truncated: Any
    stopped: Any


@jit(inline=True)
def one_step(
    flags: Any,
    advantages: Any,
    how: int,
    w: Weights,
    reward: Any,
    value: Any,
    n: Any,
    final: Any,
    valid: Any,
    ends: Any,
    cuts: Any,
    after: Columns,
) -> Any:
    """``(state, advantages, returns)`` of a step of columns; ``n``: the next values, if given."""
    x, follows, ended, truncated, stopped = after
    if flags is not None:
        here = simd.either(ends, cuts)
        earlier_only = simd.invert(here)
        ended = simd.either(ends, simd.both(ended, earlier_only))
        truncated = simd.either(cuts, simd.both(truncated, earlier_only))
        stopped = simd.either(stopped, here)
        follows = simd.select(cuts, final, follows)
        follows = simd.select(ends, w.zero, follows)
        x = simd.select(here, w.zero, x)
    following = n if how & GIVEN != 0 else follows
    final = value if how & CURRENT != 0 else following
    delta = prologue(reward, value, following, final, ended, truncated, w, stopped, advantages)
    new = simd.fma(w.keep, simd.select(stopped, w.zero, x), delta)
    x = simd.select(valid, new, x)
    hole = simd.invert(valid)
    state = Columns(
        x,
        simd.select(valid, value, follows),
        simd.both(ended, hole),
        simd.both(truncated, hole),
        simd.both(stopped, hole),
    )
    shown = simd.either(valid, hole) if how & CARRIED != 0 else valid
    first, second = epilogue(x, value, shown, w.zero, advantages)
    return state, first, second


@jit(inline=True)
def at(x: Any, t: int) -> Any:
    """The address of a step, of what :func:`line` found."""
    return x[0] + t * x[1]


def few_columns(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for few columns: a vector of them after the other, all of its steps at once."""

    def run(plan, part, parts):
        outer, time, inner = peek(plan, OUTER), peek(plan, TIME), peek(plan, INNER)
        how, n = peek(plan, HOW), simd.lanes(token)
        ons, offs, keeps = simd.scratch(), simd.scratch(), simd.scratch()
        zero, never = simd.zeros(token), simd.never(token)
        always = simd.invert(never)
        vectors = (inner + n - 1) // n
        begin, end = share(outer, part, parts)
        for k in range(begin * vectors, end * vectors):
            row, column = k // vectors, k % vectors * n
            count = min(n, inner - column)
            whole, inside = count == n, simd.first_lanes(FORWARD, token, count)
            for i in range(count):
                put_weights(token, weights(token, plan, row, column + i), (ons, offs, keeps), i)
            w = Weights(
                simd.load_edge(token, ons, whole, inside, zero),
                simd.load_edge(token, offs, whole, inside, zero),
                simd.load_edge(token, keeps, whole, inside, zero),
                zero,
            )
            last = origin(plan, LAST_VALUES, row, column)
            follows = simd.load_edge(token, last, whole, inside, zero)
            state = Columns(zero, follows, never, never, always)
            rewards = line(locate(plan, REWARDS), row, 0, column)
            values = line(locate(plan, VALUES), row, 0, column)
            nexts = line(locate(plan, NEXT_VALUES), row, 0, column)
            finals = line(locate(plan, FINAL_VALUES), row, 0, column)
            ends, cuts = (
                line(locate(plan, ENDED), row, 0, column),
                line(locate(plan, TRUNCATED), row, 0, column),
            )
            masks = line(locate(plan, MASK), row, 0, column)
            to_advantages = line(locate(plan, ADVANTAGES), row, 0, column)
            to_returns = line(locate(plan, RETURNS), row, 0, column)
            for t in range(time - 1, -1, -1):
                reward = simd.load_edge(token, at(rewards, t), whole, inside, zero)
                value = simd.load_edge(token, at(values, t), whole, inside, zero)
                following = final = zero
                valid, ended, truncated = always, never, never
                if how & GIVEN != 0:
                    following = simd.load_edge(token, at(nexts, t), whole, inside, zero)
                if mask is not None:
                    valid = simd.load_edge_flags(token, at(masks, t), whole, inside)
                if flags is not None:
                    ended = simd.load_edge_flags(token, at(ends, t), whole, inside)
                    truncated = simd.load_edge_flags(token, at(cuts, t), whole, inside)
                    final = simd.load_edge(token, at(finals, t), whole, inside, zero)
                state, first, second = one_step(
                    flags, advantages, how, w, reward, value, following, final, valid, ended,
                    truncated, state,
                )  # fmt: skip
                if advantages is not None:
                    simd.claim(token, at(to_advantages, t - STEPS_AHEAD))
                    simd.store_edge(token, at(to_advantages, t), whole, inside, first)
                simd.claim(token, at(to_returns, t - STEPS_AHEAD))
                simd.store_edge(token, at(to_returns, t), whole, inside, second)

    return kernel(run)


def columns(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for many columns, which lie side by side.

    A block of them is walked back in time.  What a step hands on waits in the caches nearby, and
    the same columns of the step before are already on their way there.
    """

    def run(plan, part, parts):
        outer, time, inner = peek(plan, OUTER), peek(plan, TIME), peek(plan, INNER)
        how = peek(plan, HOW)
        given, streamed = how & GIVEN != 0, how & STREAMED != 0
        size, n = simd.size(token), simd.lanes(token)
        width = vectors_of_a_block(outer, inner, n, SCRATCH // size // n, parts) * n
        blocks = (inner + width - 1) // width
        begin, end = share(outer * blocks, part, parts)
        states, nearest = simd.scratch(), simd.scratch()
        ons, offs, keeps = simd.scratch(), simd.scratch(), simd.scratch()
        endings, cuttings, stops = simd.scratch(), simd.scratch(), simd.scratch()
        staged_advantages, staged_returns = simd.scratch(), simd.scratch()
        by_reward, by_value, by_next = (
            stride(plan, REWARDS, TIME),
            stride(plan, VALUES, TIME),
            stride(plan, NEXT_VALUES, TIME),
        )
        by_final, by_end, by_cut = (
            stride(plan, FINAL_VALUES, TIME),
            stride(plan, ENDED, TIME),
            stride(plan, TRUNCATED, TIME),
        )
        by_mask, by_advantage, by_return = (
            stride(plan, MASK, TIME),
            stride(plan, ADVANTAGES, TIME),
            stride(plan, RETURNS, TIME),
        )
        # Operands that are absent do not move from column to column.
        move_value, move_final = stride(plan, VALUES, INNER), stride(plan, FINAL_VALUES, INNER)
        move_end, move_cut = stride(plan, ENDED, INNER), stride(plan, TRUNCATED, INNER)
        one_weight = stride(plan, WEIGHTS, INNER) == 0
        by_weight = 0 if one_weight else n * size
        zero, never = simd.zeros(token), simd.never(token)
        always = simd.invert(never)
        for unit in range(begin, end):
            row, start = unit // blocks, unit % blocks * width
            stop = min(inner, start + width)
            # Where the last vector of a block is not full, it overlaps the one before.
            start = min(start, inner - n)
            count = (stop - start + n - 1) // n
            for j in range(count):
                column = min(start + j * n, stop - n)
                simd.store(token, states + j * n * size, zero)
                last = simd.load(token, origin(plan, LAST_VALUES, row, column))
                simd.store(token, nearest + j * n * size, last)
                if mask is not None:
                    simd.store_flags(token, endings + j * n, never)
                    simd.store_flags(token, cuttings + j * n, never)
                    simd.store_flags(token, stops + j * n, always)
                if j == 0 or not one_weight:
                    for i in range(n):
                        w = weights(token, plan, row, column + i)
                        put_weights(token, w, (ons, offs, keeps), j * n + i)

            rewards, values = origin(plan, REWARDS, row, 0), origin(plan, VALUES, row, 0)
            nexts, finals = origin(plan, NEXT_VALUES, row, 0), origin(plan, FINAL_VALUES, row, 0)
            ends, cuts = origin(plan, ENDED, row, 0), origin(plan, TRUNCATED, row, 0)
            masks = origin(plan, MASK, row, 0)
            for t in range(time - 1, -1, -1):
                to_advantages = origin(plan, ADVANTAGES, row, start) + t * by_advantage
                to_returns = origin(plan, RETURNS, row, start) + t * by_return
                if streamed:
                    to_advantages, to_returns = staged_advantages, staged_returns
                earlier = max(t - 1, 0)
                for j in range(count):
                    column = min(start + j * n, stop - n)
                    place, here = column * size, j * n * size
                    along = place - start * size
                    simd.prefetch(rewards + earlier * by_reward + place)
                    simd.prefetch(values + earlier * by_value + column * move_value)
                    reward = simd.load(token, rewards + t * by_reward + place)
                    value = simd.load(token, values + t * by_value + column * move_value)
                    w = Weights(
                        simd.load(token, ons + j * by_weight),
                        simd.load(token, offs + j * by_weight),
                        simd.load(token, keeps + j * by_weight),
                        zero,
                    )
                    x, follows = simd.load(token, states + here), simd.load(token, nearest + here)
                    state = Columns(x, follows, never, never, always if t == time - 1 else never)
                    following = final = zero
                    valid, ended, truncated = always, never, never
                    if given:
                        following = simd.load(token, nexts + t * by_next + place)
                    if mask is not None:
                        valid = simd.load_flags(token, masks + t * by_mask + column)
                        state = Columns(
                            x,
                            follows,
                            simd.load_flags(token, endings + j * n),
                            simd.load_flags(token, cuttings + j * n),
                            simd.load_flags(token, stops + j * n),
                        )
                    if flags is not None:
                        ended = simd.load_flags(token, ends + t * by_end + column * move_end)
                        truncated = simd.load_flags(token, cuts + t * by_cut + column * move_cut)
                        final = simd.load(token, finals + t * by_final + column * move_final)
                    state, first, second = one_step(
                        flags, advantages, how, w, reward, value, following, final, valid, ended,
                        truncated, state,
                    )  # fmt: skip
                    simd.store(token, states + here, state.x)
                    simd.store(token, nearest + here, state.follows)
                    if mask is not None:
                        simd.store_flags(token, endings + j * n, state.ended)
                        simd.store_flags(token, cuttings + j * n, state.truncated)
                        simd.store_flags(token, stops + j * n, state.stopped)
                    if not streamed:
                        if advantages is not None:
                            simd.claim(token, to_advantages + along - by_advantage)
                        simd.claim(token, to_returns + along - by_return)
                    if advantages is not None:
                        simd.store(token, to_advantages + along, first)
                    simd.store(token, to_returns + along, second)
                if streamed:
                    to_advantages = origin(plan, ADVANTAGES, row, start) + t * by_advantage
                    to_returns = origin(plan, RETURNS, row, start) + t * by_return
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
