"""The recurrence of the return estimators, in one pass over their operands.

Every estimator is the same reverse scan with other weights::

    x[t] = r[t] + on * n[t] (- v[t]) + keep * x[t + 1]     where the trace goes on
    x[t] = r[t] + cut * n[t] (- v[t])                      where it ends

and every way through it has the same shape: load some steps, form what each of them adds
(:func:`prologue`), scan, write the results (:func:`epilogue`).  :func:`rows` scans consecutive
steps of a row inside a register; :func:`columns` has neighbouring columns side by side in one; and
:func:`serial` takes one step after the other: the ends of rows, what is rare, operands with other
strides, and whatever was not finite when it came out of a register.

An argument that is None is something that a problem does not have: numba compiles it away.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import overload

from linscan_numba import _simd as simd
from linscan_numba._jit import jit
from linscan_numba._operands import array, locate
from linscan_numba._simd import REVERSE, SCRATCH, Token


class Stream(NamedTuple):
    """An array: its address, and the bytes from one row, step and column to the next."""

    address: int
    row: int
    step: int
    column: int


class Operands(NamedTuple):
    """What is read, beside flags and mask."""

    rewards: Stream
    values: Stream
    following: Stream
    """The value that follows each step: ``next_values``, or ``values`` one step later."""
    final: Stream
    """The same where truncated."""
    last: Stream
    """The same after the last step."""
    given: bool
    """Whether ``following`` holds at every step: next to holes and at the end, too."""
    carried: bool
    """Whether results at holes are the state passing by; otherwise they are zero."""


class Flags(NamedTuple):
    """Where a trace ends."""

    ended: Any
    """Nothing follows."""
    truncated: Any
    """``final`` follows."""


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
def at(x: Stream, t: int) -> int:
    """The address of step t."""
    return x.address + t * x.step


@jit(inline=True)
def moved(x: Any, row: int, column: int) -> Any:
    """An array as seen from a row and a column."""
    if x is None:
        return x
    return Stream(x.address + row * x.row + column * x.column, x.row, x.step, x.column)


@jit(inline=True)
def moved_operands(o: Operands, row: int, column: int) -> Operands:
    """The operands as seen from a row and a column."""
    return Operands(
        moved(o.rewards, row, column),
        moved(o.values, row, column),
        moved(o.following, row, column),
        moved(o.final, row, column),
        moved(o.last, row, column),
        o.given,
        o.carried,
    )


@jit(inline=True)
def moved_flags(flags: Any, row: int, column: int) -> Any:
    """The flags as seen from a row and a column."""
    if flags is None:
        return flags
    return Flags(moved(flags.ended, row, column), moved(flags.truncated, row, column))


@jit(inline=True)
def prologue(
    reward: Any, value: Any, n: Any, final: Any, flags: Any, cut: Any, w: Weights, advantages: Any
) -> Any:
    """What steps add to the state, of numbers or of vectors.  ``flags`` None: no trace ends."""
    if flags is None:
        gain = w.on
    else:
        n = simd.select(flags.ended, w.zero, simd.select(flags.truncated, final, n))
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


# One step after the other -------------------------------------------------------------------------


@jit()
def serial(
    token: Token,
    high: int,
    low: int,
    o: Operands,
    flags: Any,
    mask: Any,
    w: Weights,
    state: State,
    advantages: Any,
    returns: Stream,
) -> State:
    """The steps from ``high - 1`` down to ``low`` of one row and column."""
    x, value = simd.rounded(token, state.x), state.value
    ended, truncated, stopped = state.ended, state.truncated, state.stopped
    for t in range(high - 1, low - 1, -1):
        valid = True
        if mask is not None:
            valid = simd.load_flag(at(mask, t))
        if flags is not None:
            ended = ended or simd.load_flag(at(flags.ended, t))
            truncated = truncated or simd.load_flag(at(flags.truncated, t))
            stopped = stopped or ended or truncated
        v = simd.load1(token, at(o.values, t))
        if valid:
            reward = simd.load1(token, at(o.rewards, t))
            n = simd.load1(token, at(o.following, t)) if o.given else value
            final = simd.load1(token, at(o.final, t))
            own = Flags(ended, truncated)
            delta = prologue(reward, v, n, final, own, stopped, w, advantages)
            x = simd.fma(w.keep, w.zero if stopped else x, delta)
            value = v
            ended = truncated = stopped = False
        first, second = epilogue(x, v, valid or o.carried, w.zero, advantages)
        if advantages is not None:
            simd.store1(token, at(advantages, t), first)
        simd.store1(token, at(returns, t), second)
    return State(np.float64(x), value, ended, truncated, stopped)


# Steps of a row side by side ----------------------------------------------------------------------


@jit(inline=True)
def load_mask(token: Token, mask: Any, t: int) -> Any:
    """Which of the steps from t on are valid."""
    if mask is None:
        return simd.invert(simd.never(token))
    return simd.load_flags(token, at(mask, t))


@jit(inline=True)
def load_both(token: Token, flags: Any, t: int) -> Flags:
    """The flags of the steps from t on."""
    if flags is None:
        return Flags(simd.never(token), simd.never(token))
    return Flags(
        simd.load_flags(token, at(flags.ended, t)), simd.load_flags(token, at(flags.truncated, t))
    )


@jit(inline=True)
def fill(token: Token, v: Any, valid: Any, state: State) -> Any:
    """At each step the nearest valid value from there on."""
    one, zero = simd.splat(token, 1.0), simd.zeros(token)
    keep, value = simd.select(valid, zero, one), simd.select(valid, v, zero)
    keeps, filled = simd.scan(REVERSE, keep, value)
    return simd.fma(keeps, simd.splat(token, state.value), filled)


@jit(inline=True)
def write(
    token: Token, t: int, x: Any, v: Any, shown: Any, advantages: Any, returns: Stream
) -> None:
    """Store the results of the steps from t on."""
    first, second = epilogue(x, v, shown, simd.zeros(token), advantages)
    if advantages is not None:
        simd.store(token, at(advantages, t), first)
    simd.store(token, at(returns, t), second)


@jit(inline=True)
def block(
    token: Token,
    t: int,
    o: Operands,
    flags: Any,
    mask: Any,
    w: Weights,
    table: Any,
    power: Any,
    state: State,
    advantages: Any,
    returns: Stream,
) -> Any:
    """A vector of steps from t on: the state after them, and what is finite if all was."""
    reward = simd.load(token, at(o.rewards, t))
    v = simd.load(token, at(o.values, t))
    n = simd.load(token, at(o.following, t))
    valid, own = load_mask(token, mask, t), load_both(token, flags, t)
    cut = simd.either(own.ended, own.truncated)
    before = simd.splat(token, state.x)
    if simd.all_of(valid) and not simd.any_of(cut):
        if mask is not None and not o.given:
            n = simd.with_first(REVERSE, n, state.value)
        delta = prologue(reward, v, n, n, None, cut, w, advantages)
        local = simd.scan_constant(REVERSE, delta, table)
        x = simd.fma(table[0], before, local)
        after = simd.advance(power, state.x, simd.last(REVERSE, local))
        value, check = simd.last(REVERSE, v), x
    else:
        filled = v
        if mask is not None:
            filled = fill(token, v, valid, state)
            if not o.given:
                n = simd.previous(REVERSE, filled, simd.splat(token, state.value))
        final = simd.load(token, at(o.final, t))
        delta = prologue(reward, v, n, final, own, cut, w, advantages)
        a = simd.select(cut, w.zero, w.keep)
        if mask is not None:
            a = simd.select(valid, a, simd.splat(token, 1.0))
            delta = simd.select(valid, delta, w.zero)
        products, local = simd.scan(REVERSE, a, delta)
        x = simd.fma(products, before, local)
        after = simd.advance(simd.product(a), state.x, simd.last(REVERSE, local))
        value, check = simd.last(REVERSE, filled), x
        if mask is not None:
            check = simd.fma(w.zero, filled, x)
    shown = valid
    if o.carried:
        shown = simd.invert(simd.never(token))
    write(token, t, x, v, shown, advantages, returns)
    return State(after, value, state.ended, state.truncated, state.stopped), check


@jit(inline=True)
def in_scratch(token: Token, x: Any, low: int) -> Any:
    """Where a tile that begins at step ``low`` is put before it is streamed to ``x``."""
    if x is None:
        return x
    return Stream(simd.scratch() - low * x.step, 0, x.step, 0)


@jit(inline=True)
def stream_tile(token: Token, high: int, low: int, x: Any, to: Any) -> None:
    """Move a tile past the caches."""
    if x is None:
        return
    for t in range(low, high, simd.lanes(token)):
        simd.stream(token, at(to, t), simd.load(token, at(x, t)))


@jit(inline=True)
def settled(token: Token, t: int, flags: Any, mask: Any, state: State) -> bool:
    """Whether no flag in a hole has to be moved in the vector of steps from t on."""
    if mask is None:
        return True
    valid, own = load_mask(token, mask, t), load_both(token, flags, t)
    cut = simd.either(own.ended, own.truncated)
    if simd.any_of(simd.both(cut, simd.invert(valid))):
        return False
    return not (state.stopped and simd.any_of(valid))


@jit()
def row(
    token: Token,
    time: int,
    o: Operands,
    flags: Any,
    mask: Any,
    w: Weights,
    number: Weights,
    table: Any,
    power: Any,
    streaming: bool,
    advantages: Any,
    returns: Stream,
) -> None:
    """All steps of one row."""
    n = simd.lanes(token)
    tile = SCRATCH // simd.size(token)
    following = simd.load1(token, o.last.address)
    state = State(0.0, following, False, False, True)
    # The last vector stays to the loop, so that a step always has another one behind it.
    high = (time - 1) // n * n
    state = serial(token, time, high, o, flags, mask, number, state, advantages, returns)
    first, second = advantages, returns
    while high > 0:
        low = (high - 1) // tile * tile
        if streaming:
            first, second = in_scratch(token, advantages, low), in_scratch(token, returns, low)
        at_tile = state
        check = simd.zeros(token)
        for t in range(high - n, low - 1, -n):
            if settled(token, t, flags, mask, state):
                state, x = block(
                    token, t, o, flags, mask, w, table, power, state, first, second
                )
                check = simd.fma(w.zero, x, check)
            else:
                state = serial(token, t + n, t, o, flags, mask, number, state, first, second)
        sum_of_zeros = simd.total(check)
        if sum_of_zeros != sum_of_zeros:
            if mask is None:
                value = simd.load1(token, at(o.values, high))
                at_tile = State(at_tile.x, value, False, False, False)
            state = serial(token, high, low, o, flags, mask, number, at_tile, first, second)
        if streaming:
            stream_tile(token, high, low, first, advantages)
            stream_tile(token, high, low, second, returns)
        high = low


@jit()
def rows(
    token: Token,
    begin: int,
    end: int,
    time: int,
    o: Operands,
    flags: Any,
    mask: Any,
    weights: Stream,
    streaming: bool,
    advantages: Any,
    returns: Stream,
) -> None:
    """Rows from ``begin`` up to ``end``, whose steps lie side by side."""
    for i in range(begin, end):
        if i == begin or weights.row != 0:
            keep = simd.load1(simd.FLOAT64, at(moved(weights, i, 0), 2))
            number = numbers(token, moved(weights, i, 0))
            vector = vectors(token, number)
            table, power = simd.powers(token, REVERSE, keep), simd.power(token, keep)
        row(
            token,
            time,
            moved_operands(o, i, 0),
            moved_flags(flags, i, 0),
            moved(mask, i, 0),
            vector,
            number,
            table,
            power,
            streaming,
            moved(advantages, i, 0),
            moved(returns, i, 0),
        )


@jit(inline=True)
def numbers(token: Token, weights: Stream) -> Weights:
    """The weights of one row and column, rounded."""
    return Weights(
        simd.rounded(token, simd.load1(simd.FLOAT64, at(weights, 0))),
        simd.rounded(token, simd.load1(simd.FLOAT64, at(weights, 1))),
        simd.rounded(token, simd.load1(simd.FLOAT64, at(weights, 2))),
        simd.rounded(token, 0.0),
    )


@jit(inline=True)
def vectors(token: Token, w: Weights) -> Weights:
    """The same weights in every lane."""
    return Weights(
        simd.splat(token, w.on),
        simd.splat(token, w.cut),
        simd.splat(token, w.keep),
        simd.zeros(token),
    )


# Whole problems -----------------------------------------------------------------------------------


def located(x: Any) -> Any:
    """An operand, or a pair of flags, if there is one; for kernels only."""
    raise NotImplementedError


@overload(located, strict=False)
def _located(x: Any) -> Any:
    if isinstance(x, types.Array):
        return lambda x: stream_of(x)
    if isinstance(x, types.BaseTuple):
        return lambda x: Flags(stream_of(x[0]), stream_of(x[1]))
    return lambda x: None


@jit(inline=True)
def stream_of(x: Any) -> Stream:
    """An operand; one of no steps is absent and reads as zero, however many lanes are loaded."""
    address, row, step, column = locate(x)
    if x.shape[1] == 0:
        return Stream(address, 0, 0, 0)
    return Stream(address, row, step, column)


@jit(inline=True)
def side_by_side(x: Any, size: int) -> bool:
    """Whether the steps of a row of this operand lie side by side."""
    if x is None:
        return True
    return x.shape[1] == 0 or located(x).step == size


@jit(inline=True)
def aligned(x: Any) -> bool:
    """Whether vectors may be streamed to the rows of a result."""
    if x is None:
        return True
    return located(x).address % 64 == 0 and located(x).row % 64 == 0


STREAM_FROM = 1 << 25
"""From as many bytes of one result on, results are streamed past the caches."""


@jit()
def lines(
    token: Token,
    begin: int,
    end: int,
    shape: Any,
    o: Operands,
    flags: Any,
    mask: Any,
    weights: Stream,
    advantages: Any,
    returns: Stream,
) -> None:
    """The rows and columns numbered ``begin`` up to ``end``, of any strides."""
    _, time, inner = shape
    for k in range(begin, end):
        i, j = k // inner, k % inner
        here = moved_operands(o, i, j)
        state = State(0.0, simd.load1(token, here.last.address), False, False, True)
        serial(
            token,
            time,
            0,
            here,
            moved_flags(flags, i, j),
            moved(mask, i, j),
            numbers(token, moved(weights, i, j)),
            state,
            moved(advantages, i, j),
            moved(returns, i, j),
        )


@jit(inline=True)
def run_rows(
    token: Token, part: int, parts: int, read: Any, flags: Any, mask: Any, written: Any, rule: Any
) -> None:
    """One of several equal parts of a problem with one column."""
    rewards, values, next_values, last_values, final, weights = read
    advantages, returns = written
    given, carried = rule
    value = located(values)
    following = Stream(value.address + value.step, value.row, value.step, value.column)
    if given:
        following = located(next_values)
    o = Operands(
        located(rewards), value, following, located(final), located(last_values), given, carried
    )
    shape = returns.shape
    begin, end = shape[0] * shape[2] * part // parts, shape[0] * shape[2] * (part + 1) // parts
    size = simd.size(token)
    adjoin = shape[2] == 1
    for x in (rewards, values, next_values, final, returns):
        adjoin = adjoin and side_by_side(x, size)
    adjoin = adjoin and side_by_side(advantages, size) and side_by_side(mask, 1)
    if flags is not None:
        adjoin = adjoin and side_by_side(flags[0], 1) and side_by_side(flags[1], 1)
    if adjoin:
        streaming = aligned(advantages) and aligned(returns)
        streaming = streaming and returns.size * size >= STREAM_FROM
        rows(
            token,
            begin,
            end,
            shape[1],
            o,
            located(flags),
            located(mask),
            located(weights),
            streaming,
            located(advantages),
            located(returns),
        )
    else:
        lines(
            token,
            begin,
            end,
            shape,
            o,
            located(flags),
            located(mask),
            located(weights),
            located(advantages),
            located(returns),
        )


def build(token: Token, has_advantages: bool, has_flags: bool, has_mask: bool) -> Any:
    """``(serial, threaded)``: the kernels of one kind of problem, compiled when first called."""

    def call(read, flags, mask, written, rule):
        run_rows(token, 0, 1, read, flags, mask, written, rule)

    def threaded(parts, read, flags, mask, written, rule):
        for part in numba.prange(parts):
            run_rows(token, part, parts, read, flags, mask, written, rule)

    x, flag = array(token), array("bool")
    args = (
        types.Tuple((x, x, x, x, x, array(simd.FLOAT64))),
        types.UniTuple(flag, 2) if has_flags else types.none,
        flag if has_mask else types.none,
        types.Tuple((x if has_advantages else types.none, x)),
        types.UniTuple(types.boolean, 2),
    )
    return jit(args)(call), jit((types.int64, *args), parallel=True)(threaded)
