"""The recurrence of the return estimators, in one pass over their operands.

Every estimator is the same reverse scan with other weights::

    x[t] = r[t] + on * n[t] (- v[t]) + keep * x[t + 1]     where the trace goes on
    x[t] = r[t] + cut * n[t] (- v[t])                      where it ends

and every kernel has the same shape: load some steps, form what each of them adds
(:func:`prologue`), scan, write the results (:func:`epilogue`).  :func:`rows` scans consecutive
steps of a row inside a register; :func:`columns` has neighbouring columns side by side in one; and
:func:`serial` takes one step after the other: the ends of rows, what is rare, operands with other
strides, and whatever was not finite when it came out of a register.

Each kernel is made for a dtype and for what a problem has: advantages, flags, a mask.  Those are
tokens, or None, for which numba drops the code.
"""

# mypy: disallow-untyped-calls=False, disallow-untyped-defs=False

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from linscan_numba import _simd as simd
from linscan_numba._jit import jit
from linscan_numba._launch import (
    ADVANTAGES,
    CARRIED,
    ENDED,
    FINAL_VALUES,
    GIVEN,
    INNER,
    LAST_VALUES,
    MASK,
    NEXT_VALUES,
    RETURNS,
    REWARDS,
    STREAMING,
    TIME,
    TRUNCATED,
    VALUES,
    WEIGHTS,
    kernel,
    line,
    peek,
    step,
)
from linscan_numba._simd import FLOAT64, REVERSE, SCRATCH, Token

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
    """Of the nearest valid step."""
    ended: bool
    """Whether a hole since that step holds this flag: it acts on the valid step to come."""
    truncated: bool
    stopped: bool
    """Whether for this or another reason the trace does not go on from the valid step to come."""


@jit(inline=True)
def prologue(
    reward: Any, value: Any, n: Any, final: Any, ended: Any, truncated: Any, w: Weights,
    cut: Any, advantages: Any,
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
    token: Token, advantages: Any, flags: Any, mask: Any, plan: int, row: int, column: int,
    high: int, low: int, state: State, to_advantages: int, to_returns: int,
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
    given, carried = peek(plan, GIVEN) != 0, peek(plan, CARRIED) != 0
    w = weights(token, plan, row, column)
    x, following = simd.rounded(token, state.x), state.value
    ended, truncated, stopped = state.ended, state.truncated, state.stopped
    for t in range(high - 1, low - 1, -1):
        valid = True
        if mask is not None:
            valid = simd.load_flag(masks + t * by_mask)
        if flags is not None:
            ended = ended or simd.load_flag(ends + t * by_end)
            truncated = truncated or simd.load_flag(cuts + t * by_cut)
            stopped = stopped or ended or truncated
        value = simd.load1(token, values + t * by_value)
        if valid:
            reward = simd.load1(token, rewards + t * by_reward)
            n = simd.load1(token, nexts + t * by_next) if given else following
            final = simd.load1(token, finals + t * by_final)
            delta = prologue(reward, value, n, final, ended, truncated, w, stopped, advantages)
            x = simd.fma(w.keep, w.zero if stopped else x, delta)
            following = value
            ended = truncated = stopped = False
        first, second = epilogue(x, value, valid or carried, w.zero, advantages)
        if advantages is not None:
            simd.store1(token, to_advantages + t * by_advantage, first)
        simd.store1(token, to_returns + t * by_return, second)
    return State(np.float64(x), following, ended, truncated, stopped)


def lines(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for operands of any strides."""

    def run(plan, begin, end):
        time, inner = peek(plan, TIME), peek(plan, INNER)
        for k in range(begin, end):
            i, j = k // inner, k % inner
            last = simd.load1(token, line(plan, LAST_VALUES, i, j))
            serial(
                token, advantages, flags, mask, plan, i, j, time, 0,
                State(0.0, last, False, False, True),
                line(plan, ADVANTAGES, i, j), line(plan, RETURNS, i, j),
            )

    return kernel(run)


# Steps of a row side by side ----------------------------------------------------------------------


def rows(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for one column, where the steps of a row lie side by side."""

    def run(plan, begin, end):
        time, streaming = peek(plan, TIME), peek(plan, STREAMING) != 0
        given, carried = peek(plan, GIVEN) != 0, peek(plan, CARRIED) != 0
        size, n = simd.size(token), simd.lanes(token)
        tile = SCRATCH // size
        staged_advantages, staged_returns = simd.scratch(), simd.scratch()
        by_value, by_final = step(plan, VALUES), step(plan, FINAL_VALUES)
        by_next = step(plan, NEXT_VALUES) if given else by_value
        by_end, by_cut = step(plan, ENDED), step(plan, TRUNCATED)
        zero, one = simd.zeros(token), simd.splat(token, 1.0)
        never = simd.never(token)
        always = simd.invert(never)
        for row in range(begin, end):
            rewards, values = line(plan, REWARDS, row, 0), line(plan, VALUES, row, 0)
            nexts = line(plan, NEXT_VALUES, row, 0) if given else values + by_value
            finals = line(plan, FINAL_VALUES, row, 0)
            ends, cuts = line(plan, ENDED, row, 0), line(plan, TRUNCATED, row, 0)
            masks = line(plan, MASK, row, 0)
            out_advantages, out_returns = line(plan, ADVANTAGES, row, 0), line(plan, RETURNS, row, 0)
            if row == begin or peek(plan, 4 * WEIGHTS + 1) != 0:
                w = weights(token, plan, row, 0)
                w = Weights(
                    simd.splat(token, w.on), simd.splat(token, w.cut), simd.splat(token, w.keep),
                    zero,
                )
                keep = simd.load1(FLOAT64, line(plan, WEIGHTS, row, 0) + 2 * step(plan, WEIGHTS))
                table, power = simd.powers(token, REVERSE, keep), simd.power(token, keep)

            # The last steps stay to the loop, and at least one, so that all others have a next.
            last = simd.load1(token, line(plan, LAST_VALUES, row, 0))
            state = State(0.0, last, False, False, True)
            low = (time - 1) // n * n
            state = serial(
                token, advantages, flags, mask, plan, row, 0, time, low, state,
                out_advantages, out_returns,
            )
            while low > 0:
                high, low = low, (low - 1) // tile * tile
                to_advantages, to_returns = out_advantages, out_returns
                if streaming:
                    to_advantages = staged_advantages - low * size
                    to_returns = staged_returns - low * size
                at_tile, check = state, zero
                for t in range(high - n, low - 1, -n):
                    reward = simd.load(token, rewards + t * size)
                    value = simd.load(token, values + t * by_value)
                    following = simd.load(token, nexts + t * by_next)
                    valid, ended, truncated = always, never, never
                    if mask is not None:
                        valid = simd.load_flags(token, masks + t)
                    if flags is not None:
                        ended = simd.load_flags(token, ends + t * by_end)
                        truncated = simd.load_flags(token, cuts + t * by_cut)
                    cut = simd.either(ended, truncated)
                    if mask is not None and (
                        simd.any_of(simd.both(cut, simd.invert(valid)))
                        or (state.stopped and simd.any_of(valid))
                    ):
                        # A flag in a hole has to be moved, which is rare.
                        state = serial(
                            token, advantages, flags, mask, plan, row, 0, t + n, t, state,
                            to_advantages, to_returns,
                        )
                        continue

                    before = simd.splat(token, state.x)
                    if simd.all_of(valid) and not simd.any_of(cut):
                        if mask is not None and not given:
                            following = simd.with_first(REVERSE, following, state.value)
                        delta = prologue(
                            reward, value, following, zero, never, never, w, None, advantages
                        )
                        local = simd.scan_constant(REVERSE, delta, table)
                        x = simd.fma(table[0], before, local)
                        after = simd.advance(power, state.x, simd.last(REVERSE, local))
                        nearest = value
                    else:
                        nearest = value
                        if mask is not None:
                            keeps, filled = simd.scan(
                                REVERSE,
                                simd.select(valid, zero, one),
                                simd.select(valid, value, zero),
                            )
                            nearest = simd.fma(keeps, simd.splat(token, state.value), filled)
                            check = simd.fma(zero, nearest, check)
                            if not given:
                                following = simd.previous(
                                    REVERSE, nearest, simd.splat(token, state.value)
                                )
                        final = simd.load(token, finals + t * by_final)
                        delta = prologue(
                            reward, value, following, final, ended, truncated, w, cut, advantages
                        )
                        a = simd.select(valid, simd.select(cut, zero, w.keep), one)
                        products, local = simd.scan(
                            REVERSE, a, simd.select(valid, delta, zero)
                        )
                        x = simd.fma(products, before, local)
                        after = simd.advance(
                            simd.product(a), state.x, simd.last(REVERSE, local)
                        )
                    check = simd.fma(zero, x, check)
                    shown = always if carried else valid
                    first, second = epilogue(x, value, shown, zero, advantages)
                    if advantages is not None:
                        simd.store(token, to_advantages + t * size, first)
                    simd.store(token, to_returns + t * size, second)
                    value = simd.last(REVERSE, nearest)
                    state = State(after, value, state.ended, state.truncated, state.stopped)

                finite = simd.total(check)
                if finite != finite:
                    if mask is None:
                        value = simd.load1(token, values + high * by_value)
                        at_tile = State(at_tile.x, value, False, False, False)
                    state = serial(
                        token, advantages, flags, mask, plan, row, 0, high, low, at_tile,
                        to_advantages, to_returns,
                    )
                if streaming:
                    for t in range(low, high, n):
                        if advantages is not None:
                            x = simd.load(token, to_advantages + t * size)
                            simd.stream(token, out_advantages + t * size, x)
                        x = simd.load(token, to_returns + t * size)
                        simd.stream(token, out_returns + t * size, x)
        if streaming:
            simd.fence()

    return kernel(run)
