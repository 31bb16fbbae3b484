"""Statistics over the valid steps of a batch."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any, Literal

import numpy as np

from linscan import _arrays
from linscan._check import (
    binary,
    boolean,
    check_axis,
    check_broadcast,
    check_same_place,
    looks_at_data,
    one_of,
)
from linscan._problem import ACCUMULATE


def whiten(
    x: Any,
    mask: Any = None,
    *,
    axis: int | tuple[int, ...] | None = None,
    eps: float = 1e-8,
    unbiased: bool = True,
    shift_mean: bool = True,
    on_degenerate: Literal["zero", "raise"] = "zero",
) -> Any:
    r"""Shift to mean 0 and scale to variance 1, over valid elements only.

    ::

        m = Σ x / n,    v = Σ (x - m)² / (n - 1),    yₜ = (xₜ - m) / √(v + ε)

    with sums over the n valid elements.  Masked elements are selected away, NaN included: they
    have no part in m and v, and are 0 in the result.  Squares do not overflow; Σ x must not.

    Args:
        x: A real array of any rank, usually advantages.
        mask: True at valid elements; broadcasts to ``x``.  None: all are valid.
        axis: The axes to whiten over; None is all of them.
        eps: ε, in units of x².
        unbiased: Divide by n - 1 (Bessel); False divides by n.
        shift_mean: False adds m back, so that only the scale changes.
        on_degenerate: When n is too small for a variance (below 2, or below 1 with
            ``unbiased=False``): ``"zero"`` takes x - m to be 0, so the result is 0, or m with
            ``shift_mean=False``; ``"raise"`` is a ValueError.

    Returns:
        An array like ``x``; integers become the default float, and 16-bit types are computed in
        float32 and rounded once.  Detached from any gradient.

    Raises:
        TypeError: ``x`` is not real, or ``mask`` is of another library or device.
        ValueError: A mask that does not broadcast to ``x`` or holds neither 0 nor 1, an axis out
            of range, or a degenerate set with ``on_degenerate="raise"``.

    Source:
        Advantage normalisation in proximal policy optimisation: Andrychowicz et al., "What matters
        in on-policy reinforcement learning?" (2020), arXiv 2006.05990.

    >>> linscan.whiten(np.array([1.0, 3.0, np.nan]), np.array([True, True, False]), unbiased=False)
    array([-1.,  1.,  0.])
    """
    one_of("on_degenerate", on_degenerate, ("zero", "raise"))
    if (
        isinstance(eps, bool)
        or not isinstance(eps, (int, float, np.floating))
        or not 0 <= eps < inf
    ):
        raise ValueError(f"eps must be a finite number that is not negative, not {eps!r}")
    unbiased, shift_mean = boolean("unbiased", unbiased), boolean("shift_mean", shift_mean)
    x = _arrays.as_array("x", x)
    dtype = _arrays.promote(x=x)
    if "complex" in dtype:
        raise TypeError(f"x must be real, not {x.dtype}")
    if _arrays.is_torch(x):
        x = x.detach()
    xp = _arrays.namespace(x)
    y = _arrays.native(x, ACCUMULATE[dtype])
    if mask is None:
        valid = xp.ones_like(y, dtype=xp.bool)
    else:
        mask = _arrays.as_array("mask", mask)
        check_same_place(x=x, mask=mask)
        check_broadcast("mask", mask, tuple(x.shape), "x")
        mask = binary("mask", mask, looks_at_data("auto", mask))
        valid = xp.broadcast_to(mask, tuple(x.shape))
    if 0 in y.shape:
        return _arrays.empty(tuple(y.shape), x, dtype)
    axes = range(y.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    over = tuple(check_axis(i, y.ndim, "x") for i in axes)
    if len(set(over)) < len(over):
        raise ValueError(f"axis names an axis twice: {axis}")

    def total(z: Any) -> Any:
        return xp.sum(xp.where(valid, z, 0.0), axis=over, keepdims=True, dtype=y.dtype)

    count = xp.sum(xp.astype(valid, xp.int64), axis=over, keepdims=True)
    least = 2 if unbiased else 1
    hidden = _arrays.is_torch(y) and _arrays.hides_data()
    if on_degenerate == "raise" and not hidden and bool(xp.any(count < least)):
        raise ValueError(
            f"whitening needs at least {least} valid elements, but a set has "
            f"{int(xp.min(count))}: pass on_degenerate='zero', or unbiased=False"
        )
    with _arrays.quiet(y):
        mean = total(y) / xp.astype(xp.clip(count, min=1), y.dtype)
        centred = xp.where(valid & (count >= least), y - mean, 0.0)
        largest = xp.max(xp.abs(centred), axis=over, keepdims=True)
        scale = xp.where(largest > 0, largest, 1.0)  # without it, squares would overflow
        degrees = xp.clip(count - (1 if unbiased else 0), min=1)
        variance = total((centred / scale) ** 2) / xp.astype(degrees, y.dtype)
        floor = xp.full_like(scale, sqrt(eps))
        result = centred / xp.hypot(scale * xp.sqrt(variance), floor)
        if not shift_mean:
            result = xp.where(valid, result + mean, 0.0)
    return _arrays.native(result, dtype)
