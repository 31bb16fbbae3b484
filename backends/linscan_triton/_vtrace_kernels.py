"""V-trace, as what the kernels ask for: an estimator whose weights are clipped ratios of policies.

With ``c`` and ``p`` the clipped ratios, n what follows a step and v' the value of the next one::

    x[t] = p[t] * (r[t] + gamma * n[t] - v[t]) + gamma * c[t] * x[t + 1]
    advantage[t] = clipped ratio * (r[t] + gamma * w[t] - v[t])

where w is ``v' + lam * x[t + 1]``; where the trace ends, c is 0 and w is n.
"""

# mypy: ignore-errors
# pyright: basic

from __future__ import annotations

import triton
import triton.language as tl

from linscan_triton._estimator_kernels import behind, follow, load_estimate
from linscan_triton._tile import load, ordered, shifted, write


@triton.jit
def start_vtrace(
    operands,
    numbers,
    at,
    before,
    LANES: tl.constexpr,
    KIND: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
):
    """The weights, γ and γλ first; the numbers are γ, λ, three limits and the leak."""
    gamma, lam, p_limit, c_limit, share_limit, leak = numbers
    weights = (
        tl.full([1, 1], gamma, ACC),
        tl.full([1, 1], gamma * lam, ACC),
        tl.full([1, 1], p_limit, ACC),
        tl.full([1, 1], c_limit, ACC),
        tl.full([1, 1], share_limit, ACC),
        tl.full([1, 1], leak, ACC),
    )
    return weights, behind(operands, at, before, LANES, ACC)


@triton.jit
def load_vtrace(
    operands,
    place,
    LANES: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    KIND: tl.constexpr,
    COMPLEX: tl.constexpr,
):
    """Logarithms of ratios, and what every estimator has."""
    return (
        load(operands[10], place, LANES, V, W, False),
        load_estimate(operands[:10], place, LANES, V, W, KIND, COMPLEX),
    )


@triton.jit
def _least(ratio, limit):
    return tl.where(ratio > limit, limit, ratio)  # which keeps NaN


@triton.jit
def _leaky(ratio, limit, leak):
    least = _least(ratio, limit)
    return tl.where(leak == 0, least, leak * ratio + (1 - leak) * least)


@triton.jit
def prepare_vtrace(
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
    """``(a, b, cut, kept, handed)``; kept is what the advantages are made of, too."""
    log_ratio, others = raw
    weights, following = handed
    gamma, keep, p_limit, c_limit, share_limit, leak = weights
    reward, value, after, n, valid, stop, cut, crossing, following = follow(
        others, following, step, first, time, REVERSE, ACC
    )
    ratio = tl.exp(ordered(log_ratio, REVERSE, ACC)[0])
    a = tl.where(cut, 0.0, tl.where(valid, keep * _leaky(ratio, c_limit, leak), 1.0))
    delta = reward + gamma * n - value
    b = tl.where(valid, _leaky(ratio, p_limit, leak) * delta, 0.0)
    base = tl.where(stop, delta, reward + gamma * after - value)
    kept = value, valid, stop, _least(ratio, share_limit), base, keep
    return (a,), (b,), crossing, kept, (weights, following)


@triton.jit
def _advantage(x, before, kept):
    _value, valid, stop, share, base, keep = kept
    further = tl.where(stop, 0.0, keep * shifted(x[0], before[0]))
    return tl.where(valid, share * (base + further), 0.0)


@triton.jit
def finish_vtrace(
    results, place, x, before, kept, LANES: tl.constexpr, V: tl.constexpr,
    W: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Write targets, advantages and errors."""
    write(results[0], place, (x[0] + kept[0],), LANES, V, W, REVERSE)
    write(results[1], place, (_advantage(x, before, kept),), LANES, V, W, REVERSE)
    write(results[2], place, x, LANES, V, W, REVERSE)


@triton.jit
def finish_vtrace_or_zero(
    results, place, x, before, kept, LANES: tl.constexpr, V: tl.constexpr,
    W: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """The same; 0 in holes."""
    value, valid = kept[:2]
    write(results[0], place, (tl.where(valid, x[0] + value, 0.0),), LANES, V, W, REVERSE)
    write(results[1], place, (_advantage(x, before, kept),), LANES, V, W, REVERSE)
    write(results[2], place, (tl.where(valid, x[0], 0.0),), LANES, V, W, REVERSE)
