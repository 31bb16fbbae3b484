"""Flags of other conventions, as the transition flags that every estimator takes.

A transition flag says that step t ended an episode: Gymnasium's own ``terminated`` and
``truncated``, as they come back from the call that step t was.
"""

from __future__ import annotations

from typing import Any

from linscan import _arrays
from linscan._check import (
    binary,
    check_axis,
    check_broadcast,
    check_same_place,
    looks_at_data,
)

__all__ = ["from_arrival", "from_episode_starts"]


def from_episode_starts(starts: Any, last_done: Any, *, axis: int = -1) -> Any:
    r"""Transition flags from flags of the first step of each episode.

    ::

        doneₜ = startₜ₊₁,     done_{T-1} = last_done

    Stable-Baselines3 keeps ``episode_starts`` and ``dones`` of the last step in this way, CleanRL
    ``dones`` and ``next_done``.  Such flags do not tell termination from truncation: pass what they
    give as ``terminated`` only where that is what they mean.

    Args:
        starts: Whether step t is the first of its episode: bool, or 0 and 1, of any rank ≥ 1.
        last_done: Whether the last step of each row ended its episode: a bool, or an array that
            broadcasts to ``starts`` without ``axis``.
        axis: The time axis of ``starts``.

    Returns:
        A fresh bool array shaped like ``starts``.

    Raises:
        TypeError: Arrays of several libraries or devices, or that hold no numbers.
        ValueError: Shapes that do not fit, or flags other than 0 and 1.

    >>> linscan.flags.from_episode_starts(np.array([True, False, True]), False)
    array([False,  True, False])
    """
    starts = _flags("starts", starts)
    axis = check_axis(axis, starts.ndim, "starts")
    last = _arrays.array_like("last_done", last_done, starts)
    check_same_place(starts=starts, last_done=last)
    return _earlier(
        "last_done", starts, binary("last_done", last, looks_at_data("auto", last)), axis
    )


def from_arrival(arrived: Any, last: Any = None, *, axis: int = -1) -> Any:
    r"""What belongs to each transition, from what arrived together with each observation.

    ::

        xₜ = arrivedₜ₊₁,     x_{T-1} = last

    Where rewards and flags are stored with the observation that they came with, as PufferLib does,
    those of step t are found at t + 1.  T observations hold T - 1 whole transitions; the last one
    is there only if what arrived after it is given.

    Args:
        arrived: Flags, rewards or anything else that comes with an observation, of any rank ≥ 1.
        last: What arrived after the last observation: a number, or an array that broadcasts to
            ``arrived`` without ``axis``.
        axis: The time axis of ``arrived``.

    Returns:
        A fresh array of the same dtype: one step shorter without ``last``.

    Raises:
        TypeError: Arrays of several libraries or devices.
        ValueError: Shapes that do not fit.

    >>> linscan.flags.from_arrival(np.array([0.0, 1.0, 2.0]))
    array([1., 2.])
    >>> linscan.flags.from_arrival(np.array([False, True, False]), True)
    array([ True, False,  True])
    """
    arrived = _arrays.as_array("arrived", arrived)
    if arrived.ndim == 0:
        raise ValueError("arrived has rank 0: it needs an axis of time")
    axis = check_axis(axis, arrived.ndim, "arrived")
    if last is None:
        xp = _arrays.namespace(arrived)
        return xp.asarray(arrived[(*[slice(None)] * axis, slice(1, None))], copy=True)
    last = _arrays.array_like("last", last, arrived)
    check_same_place(arrived=arrived, last=last)
    return _earlier("last", arrived, last, axis)


def _flags(name: str, x: Any) -> Any:
    x = _arrays.as_array(name, x)
    if x.ndim == 0:
        raise ValueError(f"{name} has rank 0: it needs an axis of time")
    return binary(name, x, looks_at_data("auto", x))


def _earlier(name: str, x: Any, last: Any, axis: int) -> Any:
    """``x`` one step earlier, with the last one of each row from elsewhere."""
    xp = _arrays.namespace(x)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    check_broadcast(name, last, rest, "the other without its time axis")
    last = xp.astype(xp.broadcast_to(last, rest), x.dtype)
    later = x[(*[slice(None)] * axis, slice(1, None))]
    if x.shape[axis] == 0:
        return xp.asarray(x, copy=True)
    return xp.concat([later, xp.expand_dims(last, axis=axis)], axis=axis)
