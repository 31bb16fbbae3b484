"""The recurrence of the return estimators, in one pass over their operands.

Every estimator is the same reverse scan with other weights::

    x[t] = r[t] + on * n[t] (- v[t]) + keep * x[t + 1]     where the trace goes on
    x[t] = r[t] + cut * n[t] (- v[t])                      where it ends

and every kernel has the same shape: load some steps, form what each of them adds
(:func:`prologue`), scan, write the results (:func:`epilogue`).  Here is what they share, and the
loop itself, :func:`lines`: one step after the other, for what is rare, operands with other strides,
and whatever was not finite when it came out of a register.  ``_estimator_rows`` has the steps of a
row side by side in a register, or rows; ``_estimator_columns`` has columns.

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
    FIRST,
    HOW,
    INNER,
    OUTER,
    TIME,
    kernel,
    origin,
    peek,
    share,
    stride,
)
from linscan_numba._simd import FLOAT64, Token

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
    address, by = origin(plan, WEIGHTS, row, column), stride(plan, WEIGHTS, TIME)
    return Weights(
        simd.rounded(token, simd.load1(FLOAT64, address)),
        simd.rounded(token, simd.load1(FLOAT64, address + by)),
        simd.rounded(token, simd.load1(FLOAT64, address + 2 * by)),
        simd.rounded(token, 0.0),
    )


@jit(inline=True)
def put_weights(token: Token, w: Weights, places: Any, i: int) -> None:
    """Write weights side by side with those of other rows or columns, ``i`` of them before."""
    simd.store1(token, places[0] + i * simd.size(token), w.on)
    simd.store1(token, places[1] + i * simd.size(token), w.cut)
    simd.store1(token, places[2] + i * simd.size(token), w.keep)


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
    rewards, by_reward = origin(plan, REWARDS, row, column), stride(plan, REWARDS, TIME)
    values, by_value = origin(plan, VALUES, row, column), stride(plan, VALUES, TIME)
    nexts, by_next = origin(plan, NEXT_VALUES, row, column), stride(plan, NEXT_VALUES, TIME)
    finals, by_final = origin(plan, FINAL_VALUES, row, column), stride(plan, FINAL_VALUES, TIME)
    ends, by_end = origin(plan, ENDED, row, column), stride(plan, ENDED, TIME)
    cuts, by_cut = origin(plan, TRUNCATED, row, column), stride(plan, TRUNCATED, TIME)
    masks, by_mask = origin(plan, MASK, row, column), stride(plan, MASK, TIME)
    by_advantage, by_return = stride(plan, ADVANTAGES, TIME), stride(plan, RETURNS, TIME)
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
    last = simd.load1(token, origin(plan, LAST_VALUES, row, column))
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
        origin(plan, ADVANTAGES, row, column),
        origin(plan, RETURNS, row, column),
    )


def lines(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for operands of any strides."""

    def run(plan, part, parts):
        inner = peek(plan, INNER)
        begin, end = share(peek(plan, OUTER) * inner, part, parts)
        for k in range(begin, end):
            whole_line(token, advantages, flags, mask, plan, k // inner, k % inner)

    return kernel(run)
