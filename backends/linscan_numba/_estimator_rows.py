"""The return estimators where the steps of a row lie side by side in memory.

:func:`rows` scans consecutive steps of a row inside a register; :func:`short_rows` has as many rows
as a register has lanes, and runs the loop on all of them.
"""

# mypy: disallow-untyped-calls=False, disallow-untyped-defs=False

from __future__ import annotations

from typing import Any

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
    State,
    Weights,
    epilogue,
    prologue,
    put_weights,
    serial,
    weights,
    whole_line,
)
from linscan_numba._jit import jit
from linscan_numba._launch import (
    HOW,
    OUTER,
    TIME,
    kernel,
    line,
    locate,
    origin,
    peek,
    share,
    stride,
)
from linscan_numba._simd import FLOAT64, FORWARD, REVERSE, SCRATCH, Token


@jit(inline=True)
def row_weights(token: Token, plan: int, row: int) -> Any:
    """The weights of a row in vectors, and the powers of what its state keeps."""
    w = weights(token, plan, row, 0)
    keep = simd.load1(FLOAT64, origin(plan, WEIGHTS, row, 0) + 2 * stride(plan, WEIGHTS, TIME))
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
        by_value, by_final = stride(plan, VALUES, TIME), stride(plan, FINAL_VALUES, TIME)
        by_next = stride(plan, NEXT_VALUES, TIME)
        by_end, by_cut = stride(plan, ENDED, TIME), stride(plan, TRUNCATED, TIME)
        zero, one = simd.zeros(token), simd.splat(token, 1.0)
        never = simd.never(token)
        always = simd.invert(never)
        next_end = stride(plan, RETURNS, OUTER) + time * size
        weights_vary = stride(plan, WEIGHTS, OUTER) != 0
        w, table, power = row_weights(token, plan, begin)
        for row in range(begin, end):
            rewards, values = origin(plan, REWARDS, row, 0), origin(plan, VALUES, row, 0)
            nexts = origin(plan, NEXT_VALUES, row, 0)
            finals = origin(plan, FINAL_VALUES, row, 0)
            ends, cuts = origin(plan, ENDED, row, 0), origin(plan, TRUNCATED, row, 0)
            masks = origin(plan, MASK, row, 0)
            out_advantages, out_returns = (
                origin(plan, ADVANTAGES, row, 0),
                origin(plan, RETURNS, row, 0),
            )
            if weights_vary:
                w, table, power = row_weights(token, plan, row)

            # Lanes past the end add nothing to a state of zero, and hand on what follows the end.
            last = simd.load1(token, origin(plan, LAST_VALUES, row, 0))
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
                    soon = t * size + simd.ahead(REVERSE)
                    if soon < 0:
                        soon += next_end
                    if advantages is not None:
                        simd.claim(token, to_advantages + soon)
                    simd.claim(token, to_returns + soon)
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
def four(token: Token, x: Any, row: int, t: int, n: Any) -> Any:
    """Step ``t`` and the three before it of a vector of rows, or the first ``n`` of the four."""
    return simd.load_rows(REVERSE, token, line(x, row, t, 0)[0], x[1], n)


@jit(inline=True)
def four_flags(token: Token, x: Any, row: int, t: int, n: Any) -> Any:
    """The same of bools."""
    return simd.load_rows_flags(REVERSE, token, line(x, row, t, 0)[0], x[1], n)


@jit(inline=True)
def put_four(token: Token, x: Any, row: int, t: int, n: Any, steps: Any) -> None:
    """Write what :func:`four` would read."""
    simd.store_rows(REVERSE, token, line(x, row, t, 0)[0], x[1], n, steps)


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
    reward = four(token, locate(plan, REWARDS), row, t, n)
    value = four(token, locate(plan, VALUES), row, t, n)
    following, final = (follows, value[0], value[1], value[2]), value
    if how & GIVEN != 0:
        following = four(token, locate(plan, NEXT_VALUES), row, t, n)
    ended = truncated = no, no, no, no
    cuts = at_end, no, no, no
    if flags is not None:
        ended = four_flags(token, locate(plan, ENDED), row, t, n)
        truncated = four_flags(token, locate(plan, TRUNCATED), row, t, n)
        if how & CURRENT == 0:
            final = four(token, locate(plan, FINAL_VALUES), row, t, n)
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
        put_four(token, locate(plan, ADVANTAGES), row, t, n, (x0, x1, x2, x3))
        x0, x1 = simd.add(x0, value[0]), simd.add(x1, value[1])
        returns = x0, x1, simd.add(x2, value[2]), simd.add(x3, value[3])
        put_four(token, locate(plan, RETURNS), row, t, n, returns)
    else:
        put_four(token, locate(plan, RETURNS), row, t, n, (x0, x1, x2, x3))
    return x3, value[3]


def short_rows(token: Token, advantages: Any, flags: Any, mask: Any) -> Any:
    """The kernel for one column, where the steps of short rows lie side by side; without a mask.

    Every element is what :func:`serial` makes of it.  Results are never streamed.
    """

    def run(plan, part, parts):
        begin, end = share(peek(plan, OUTER), part, parts)
        time, n = peek(plan, TIME), simd.lanes(token)
        weights_vary = stride(plan, WEIGHTS, OUTER) != 0
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
                    put_weights(token, weights(token, plan, row + i, 0), (ons, offs, keeps), i)
            w = Weights(
                simd.load(token, ons), simd.load(token, offs), simd.load(token, keeps), zero
            )
            state, at_end = zero, simd.invert(never)
            last = stride(plan, LAST_VALUES, OUTER)
            follows = simd.load_apart(token, origin(plan, LAST_VALUES, row, 0), last)
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
