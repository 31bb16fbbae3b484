"""For rsl_rl: ``RolloutStorage.compute_returns``.

::

    rsl_rl.storage.RolloutStorage.compute_returns = linscan.compat.rsl_rl.compute_returns

Where ``PPO.compute_returns`` has the loop itself, call this from it with ``self.storage``.
"""

from __future__ import annotations

from typing import Any

import torch

import linscan


def compute_returns(
    self: Any, last_values: Any, gamma: float, lam: float, normalize_advantage: bool = True
) -> None:
    """Fill the storage's ``returns``, in place, and ``advantages``; both ``[steps, envs, 1]``.

    ``self.dones`` says that a step *ended* an episode.  The algorithm has added γ V(sₜ) to the
    rewards of steps that ran out of time, in place of the value of the final observation, which it
    does not have.

    Differs: advantages are what the recurrence gives, not the difference of returns and values,
    which loses digits.
    """
    advantages, _ = linscan.gae(
        self.rewards,
        self.values,
        gamma=gamma,
        lam=lam,
        terminated=self.dones != 0,
        last_values=last_values,
        axis=0,
        out=(torch.empty_like(self.rewards), self.returns),
    )
    if normalize_advantage:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    self.advantages = advantages
