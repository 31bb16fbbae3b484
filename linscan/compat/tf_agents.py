"""In the manner of ``tf_agents.utils.value_ops``, on NumPy arrays and torch tensors."""

from __future__ import annotations

from typing import Any

import linscan


def discounted_return(
    rewards: Any,
    discounts: Any,
    final_value: Any = None,
    time_major: bool = True,
    provide_all_returns: bool = True,
) -> Any:
    """Discounted returns of ``[T, B]`` or ``[T]`` arrays; ``[B, T]`` if not ``time_major``.

    ``discounts`` is γ, and 0 where the step ended an episode.  Without ``provide_all_returns``,
    only the return of the first step.
    """
    axis = _time(rewards, time_major)
    returns = linscan.discounted_returns(
        rewards, gamma=discounts, last_values=_rows(final_value, rewards), axis=axis
    )
    return returns if provide_all_returns else returns[(slice(None),) * axis + (0,)]


def generalized_advantage_estimation(
    values: Any,
    final_value: Any,
    discounts: Any,
    rewards: Any,
    td_lambda: Any = 1.0,
    time_major: bool = True,
) -> Any:
    """GAE advantages; ``final_value`` is the value *after* the last step, not that of it."""
    return linscan.gae(
        rewards,
        values,
        gamma=discounts,
        lam=td_lambda,
        last_values=_rows(final_value, rewards),
        axis=_time(rewards, time_major),
    ).advantages


def _time(rewards: Any, time_major: bool) -> int:
    return 0 if time_major or rewards.ndim == 1 else 1


def _rows(final_value: Any, rewards: Any) -> Any:
    """``[1]`` is the shape of a final value of one row, ``[T]``, too."""
    return final_value[0] if rewards.ndim == 1 and getattr(final_value, "ndim", 0) else final_value
