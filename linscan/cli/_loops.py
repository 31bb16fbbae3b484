"""The loops over time that everyone writes first: what the demo measures speed against.

Every NumPy operation handles one step of all environments at once, and the arithmetic is in the
dtype of the arrays, ``[T, N]``, as in training code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def gae(
    rewards: Array,
    values: Array,
    *,
    gamma: float,
    lam: float,
    last_values: Array,
    truncation_values: Array,
    terminated: Array,
    truncated: Array,
) -> tuple[Array, Array]:
    """Advantages and returns: ``A[t] = δ[t] + γλ·A[t+1]``, and ``A + V``."""
    advantages = np.empty_like(rewards)
    advantage, value = np.zeros_like(last_values), last_values
    for t in reversed(range(len(rewards))):
        value = np.where(truncated[t], truncation_values[t], value)
        value = np.where(terminated[t], 0, value)
        advantage = np.where(terminated[t] | truncated[t], 0, advantage)
        delta = rewards[t] + gamma * value - values[t]
        advantages[t] = advantage = delta + gamma * lam * advantage
        value = values[t]
    return advantages, advantages + values


def discounted_returns(
    rewards: Array,
    *,
    gamma: float,
    last_values: Array,
    truncation_values: Array,
    terminated: Array,
    truncated: Array,
) -> Array:
    """``G[t] = r[t] + γ·G[t+1]``."""
    returns = np.empty_like(rewards)
    later = last_values
    for t in reversed(range(len(rewards))):
        later = np.where(truncated[t], truncation_values[t], later)
        later = np.where(terminated[t], 0, later)
        returns[t] = later = rewards[t] + gamma * later
    return returns


def td_lambda(
    rewards: Array,
    values: Array,
    *,
    gamma: float,
    lam: float,
    last_values: Array,
    truncation_values: Array,
    terminated: Array,
    truncated: Array,
) -> Array:
    """``G[t] = r[t] + γ·((1-λ)·V[t+1] + λ·G[t+1])``."""
    returns = np.empty_like(rewards)
    later = value = last_values
    for t in reversed(range(len(rewards))):
        value = np.where(truncated[t], truncation_values[t], value)
        value = np.where(terminated[t], 0, value)
        later = np.where(terminated[t] | truncated[t], value, later)
        returns[t] = later = rewards[t] + gamma * ((1 - lam) * value + lam * later)
        value = values[t]
    return returns
