"""Sums and positions within sequences that are packed one after another."""

from __future__ import annotations

from typing import Any

from linscan import _arrays
from linscan._check import (
    Check,
    binary,
    check_axis,
    check_broadcast,
    check_same_place,
    looks_at_data,
)
from linscan._packed import as_offsets, segments
from linscan._scan import scan


def episodic_sum(
    x: Any,
    starts: Any = None,
    *,
    cu_seqlens: Any = None,
    axis: int = -1,
    backend: str = "auto",
    check: Check = "auto",
) -> Any:
    r"""The sum of each episode so far.

    ::

        yₜ = xₜ              where an episode starts
        yₜ = xₜ + yₜ₋₁       elsewhere

    Args:
        x: Of any rank ≥ 1, with time along ``axis``.
        starts: Whether an episode starts at step t: bool, or 0 and 1, broadcast to ``x``.
        cu_seqlens: Offsets of sequences packed along ``axis``; may be given besides ``starts``.
        axis: The time axis of ``x``.
        backend: ``"auto"``, or the name of one in :func:`linscan.backends`.
        check: As in :func:`linscan.scan`.

    Returns:
        The sums, as :func:`linscan.scan` returns them: integers become the default float.

    Raises:
        TypeError: As in :func:`linscan.scan`.
        ValueError: As in :func:`linscan.scan`.

    Source:
        Blelloch, "Prefix sums and their applications" (1990), section 1.5: segmented scans.

    >>> linscan.episodic_sum(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 0, 1, 0]))
    array([1., 3., 3., 7.])
    """
    x = _arrays.as_array("x", x)
    if starts is not None:
        starts = _arrays.as_array("starts", starts)
        check_same_place(x=x, starts=starts)
        check_broadcast("starts", starts, tuple(x.shape), "x")
        starts = binary("starts", starts, looks_at_data(check, starts))
    return scan(
        1.0,
        x,
        axis=axis,
        reset=starts,
        cu_seqlens=cu_seqlens,
        backend=backend,
        check=check,
    )


def position_ids(starts: Any = None, *, cu_seqlens: Any = None, axis: int = -1) -> Any:
    r"""How many steps each step is away from the start of its sequence.

    ::

        pₜ = 0               where a sequence starts, and at t = 0
        pₜ = pₜ₋₁ + 1        elsewhere

    Exactly one of the two is given.  The length of the result for ``cu_seqlens`` is its last
    offset, so a device is waited for.

    Args:
        starts: Whether a sequence starts at step t: bool, or 0 and 1, of any rank ≥ 1.
        cu_seqlens: Offsets ``[0, …, T]`` of sequences packed one after another; empty ones are
            legal.
        axis: The time axis of ``starts``.

    Returns:
        int64, shaped like ``starts``, or ``[T]``.

    Raises:
        TypeError: Neither or both are given, or something that is no array.
        ValueError: Flags other than 0 and 1, or offsets that do not rise from 0.

    >>> linscan.position_ids(np.array([1, 0, 0, 1, 0]))
    array([0, 1, 2, 0, 1])
    >>> linscan.position_ids(cu_seqlens=[0, 2, 2, 5])
    array([0, 1, 0, 1, 2])
    """
    if (starts is None) == (cu_seqlens is None):
        raise TypeError("position_ids takes either starts or cu_seqlens")
    if cu_seqlens is None:
        starts = _arrays.as_array("starts", starts)
        if starts.ndim == 0:
            raise ValueError("starts has rank 0: it needs an axis of time")
        axis = check_axis(axis, starts.ndim, "starts")
        starts = binary("starts", starts, looks_at_data("auto", starts))
    else:
        offsets = as_offsets(cu_seqlens)
        time = max(int(offsets[-1]), 0)
        parts = segments(offsets, time, "the sequence", offsets, True)
        starts, axis = _arrays.along(0, parts.first, (time,), offsets), 0
    xp = _arrays.namespace(starts)
    ones = xp.ones_like(starts, dtype=xp.float64)  # which holds every count exactly
    return xp.astype(scan(1.0, ones, axis=axis, reset=starts, check="off") - 1.0, xp.int64)
