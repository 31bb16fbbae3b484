"""Return estimators, as what the kernels ask for: a scan back in time, with flags and holes.

Every estimator is the same recurrence with other weights, and n is what follows a step::

    x[t] = r[t] + on * n[t] (- v[t]) + keep * x[t + 1]     where the trace goes on
    x[t] = r[t] + off * n[t] (- v[t])                      where it ends

What a tile hands on is ``(weights, (value, mark))``: what follows its first step and, where there
are holes, whether the trace goes on there: the last valid step may lie behind a hole with a flag.
In a tile both are found by a scan of their own, which keeps what was written last.

An operand that is not given is ``()`` once loaded.
"""

# mypy: ignore-errors
# pyright: basic

from __future__ import annotations

import triton
import triton.language as tl

from linscan_triton._tile import in_order, load, number, ordered, pick, shifted, write

OPEN = tl.constexpr(0)
"""A mark: the trace goes on."""
ENDED = tl.constexpr(1)
TRUNCATED = tl.constexpr(2)
LAST = tl.constexpr(3)
"""Nothing follows but what is given."""
NOTHING = tl.constexpr(-1)
"""A hole without a flag writes no mark."""


@triton.jit
def weights(gamma, lam, KIND: tl.constexpr):
    """``(on, off, keep)``: of the next value, and of the next state."""
    if KIND == "gae":
        return gamma, gamma, gamma * lam
    elif KIND == "td_lambda":
        return gamma * (1 - lam), gamma, gamma * lam
    else:
        return gamma * 0, gamma, gamma


@triton.jit
def prologue(reward, value, n, w, stop, KIND: tl.constexpr):
    """What a step adds to the state; ``stop``: where the trace ends."""
    on, off, _keep = w
    if KIND == "discounted_returns":
        return reward + tl.where(stop, off * n, 0.0)
    elif KIND == "td_lambda":
        return reward + tl.where(stop, off, on) * n
    else:
        return reward + on * n - value


# ------------------------------------------------------------------------------------------- tiles


@triton.jit
def _optional(x, place, LANES: tl.constexpr, V: tl.constexpr, W: tl.constexpr):
    if x is None:
        return ()
    else:
        return load(x, place, LANES, V, W, False)


@triton.jit
def _weight(x, given, at, LANES: tl.constexpr):
    """A number, or one of every row, ``[LANES, 1]``."""
    if x is None:
        return number(given, given, False, tl.float64)[0]
    else:
        return ordered(load(x, at, LANES, 1, 1, False), False, tl.float64)[0]


@triton.jit
def behind(operands, at, before, LANES: tl.constexpr, ACC: tl.constexpr):
    """``(value, mark)`` behind the last step of a chunk.

    ``before`` is the place of the step behind, which the last chunk has not.
    """
    values, _rewards, last = operands[:3]
    value = tl.zeros([LANES, 1], ACC)
    if last is not None:
        value = ordered(load(last, at, LANES, 1, 1, False), False, ACC)[0]
    if before is not None and values is not None:
        inside = tl.reshape(before[3] < before[4], [1, 1])
        given = ordered(load(values, before, LANES, 1, 1, False), False, ACC)[0]
        value = tl.where(inside, given, value)
    return value, tl.full([LANES, 1], LAST, tl.int32)


@triton.jit
def start_estimate(
    operands,
    numbers,
    at,
    before,
    LANES: tl.constexpr,
    KIND: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
):
    """What is handed on at first; the numbers are γ and λ, if they are numbers."""
    gamma, lam = operands[3:5]
    on, off, keep = weights(
        _weight(gamma, numbers[0], at, LANES), _weight(lam, numbers[1], at, LANES), KIND
    )
    return (on.to(ACC), off.to(ACC), keep.to(ACC)), behind(operands, at, before, LANES, ACC)


@triton.jit
def load_estimate(
    operands,
    place,
    LANES: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    KIND: tl.constexpr,
    COMPLEX: tl.constexpr,
):
    """Values, rewards, next values, truncation values, flags and the mask."""
    values, rewards, _last, _gamma, _lam, nexts, finals, ended, truncated, mask = operands
    return (
        _optional(values, place, LANES, V, W),
        _optional(rewards, place, LANES, V, W),
        _optional(nexts, place, LANES, V, W),
        _optional(finals, place, LANES, V, W),
        _optional(ended, place, LANES, V, W),
        _optional(truncated, place, LANES, V, W),
        _optional(mask, place, LANES, V, W),
    )


@triton.jit
def _numbers(parts, model, REVERSE: tl.constexpr, ACC: tl.constexpr):
    if len(parts) == 1:
        return ordered(parts, REVERSE, ACC)[0]
    else:
        return tl.zeros_like(model)


@triton.jit
def _flags(parts, model, REVERSE: tl.constexpr):
    if len(parts) == 1:
        return in_order(parts[0], REVERSE).to(tl.int1)
    else:
        return tl.zeros_like(model).to(tl.int1)


@triton.jit
def _latest(x, mark, y, later):
    return tl.where(later == NOTHING, x, y), tl.where(later == NOTHING, mark, later)


@triton.jit
def follow(raw, following, step, first, time, REVERSE: tl.constexpr, ACC: tl.constexpr):
    """``(reward, value, after, n, valid, stop, cut, crossing, following)`` of the steps of a tile.

    ``after`` is the value at the next valid step, ``n`` what the step leads to, ``stop`` says where
    the trace ends, and ``cut`` where the state ends, in holes too.  ``crossing`` is ``(cut,)``, or
    ``()`` where there are no flags.
    """
    values, rewards, nexts, finals, ends, cuts, mask = raw
    next_value, next_mark = following
    reward = ordered(rewards, REVERSE, ACC)[0]
    value = _numbers(values, reward, REVERSE, ACC)
    final = _numbers(finals, reward, REVERSE, ACC)
    ended = _flags(ends, reward, REVERSE)
    truncated = _flags(cuts, reward, REVERSE)
    flagged = ended | truncated
    end: tl.constexpr = reward.shape[1] - 1

    valid = tl.broadcast_to((step >= 0) & (step < time), reward.shape)
    if len(mask) == 1:
        valid = valid & _flags(mask, reward, REVERSE)
        flag = tl.where(ended, ENDED, tl.where(truncated, TRUNCATED, NOTHING))
        follows = tl.where(valid, value, tl.where(ended, 0.0, final))
        marks = tl.where(valid, OPEN, flag)
        if end > 0:
            follows, marks = tl.associative_scan((follows, marks), 1, _latest)
        follows = tl.where(marks == NOTHING, next_value, follows)
        marks = tl.where(marks == NOTHING, next_mark, marks)
        after = shifted(follows, next_value)
        mark = tl.where(flagged, flag, shifted(marks, next_mark))
        next_mark = pick((marks,), end)[0]
        ended = mark == ENDED
        n = tl.where(truncated, final, after) if len(finals) == 1 else after
        truncated = mark == TRUNCATED
        stop = mark != OPEN
    else:
        follows = tl.where(valid, value, next_value)
        after = shifted(follows, next_value)
        n = tl.where(truncated, final, after) if len(finals) == 1 else after
        stop = (step == first) | flagged
    next_value = pick((follows,), end)[0]

    if len(nexts) == 1:
        n = _numbers(nexts, reward, REVERSE, ACC)
    elif len(finals) == 0:  # truncated steps have no value but their own
        n = tl.where(truncated, value, n)
    n = tl.where(ended, 0.0, n)
    cut = (stop & valid) | flagged
    following = next_value, next_mark
    if len(ends) + len(cuts) == 0:
        return reward, value, after, n, valid, stop, cut, (), following
    else:
        return reward, value, after, n, valid, stop, cut, (cut,), following


@triton.jit
def prepare_estimate(
    raw,
    later,
    handed,
    step,
    first,
    time,
    KIND: tl.constexpr,
    REVERSE: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
):
    """``(a, b, cut, (value, valid), handed)``; a step that is not valid leaves the state alone."""
    w, following = handed
    reward, value, _after, n, valid, stop, cut, crossing, following = follow(
        raw, following, step, first, time, REVERSE, ACC
    )
    a = tl.where(cut, 0.0, tl.where(valid, w[2], 1.0))
    b = tl.where(valid, prologue(reward, value, n, w, stop, KIND), 0.0)
    return (a,), (b,), crossing, (value, valid), (w, following)


# ----------------------------------------------------------------------------------------- results


@triton.jit
def finish_advantages(
    results, place, x, before, kept, LANES: tl.constexpr, V: tl.constexpr,
    W: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Write advantages, and returns: their sum with the values."""
    value, _valid = kept
    write(results[0], place, x, LANES, V, W, REVERSE)
    write(results[1], place, (x[0] + value,), LANES, V, W, REVERSE)


@triton.jit
def finish_advantages_or_zero(
    results, place, x, before, kept, LANES: tl.constexpr, V: tl.constexpr,
    W: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """The same; 0 in holes."""
    value, valid = kept
    write(results[0], place, (tl.where(valid, x[0], 0.0),), LANES, V, W, REVERSE)
    write(results[1], place, (tl.where(valid, x[0] + value, 0.0),), LANES, V, W, REVERSE)


@triton.jit
def finish_returns(
    results, place, x, before, kept, LANES: tl.constexpr, V: tl.constexpr,
    W: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Write the states."""
    write(results[0], place, x, LANES, V, W, REVERSE)


@triton.jit
def finish_returns_or_zero(
    results, place, x, before, kept, LANES: tl.constexpr, V: tl.constexpr,
    W: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """The same; 0 in holes."""
    _value, valid = kept
    write(results[0], place, (tl.where(valid, x[0], 0.0),), LANES, V, W, REVERSE)
