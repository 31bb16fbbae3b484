"""For Stable-Baselines3: rollout buffers to be named when the algorithm is made.

::

    PPO("MlpPolicy", env, rollout_buffer_class=linscan.compat.sb3.RolloutBuffer)

and ``DictRolloutBuffer`` where observations are dictionaries.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import linscan
from linscan import flags

_buffers: Any = import_module("stable_baselines3.common.buffers")


class _ByLinscan:
    """What the buffers have in common: how they fill ``advantages`` and ``returns``."""

    rewards: Any
    values: Any
    episode_starts: Any
    advantages: Any
    returns: Any
    gamma: float
    gae_lambda: float

    def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
        """Fill the buffer's ``advantages`` and ``returns``, ``[steps, envs]``, in place.

        ``last_values`` is a tensor of the values after the last step, ``dones`` says whether that
        step ended an episode.  The algorithm has added γ V(final observation) to the rewards of
        truncated steps, so that ending the episode there is right.
        """
        linscan.gae(
            self.rewards,
            self.values,
            gamma=self.gamma,
            lam=self.gae_lambda,
            terminated=flags.from_episode_starts(self.episode_starts != 0, dones, axis=0),
            last_values=last_values.detach().cpu().numpy().reshape(-1),
            axis=0,
            out=(self.advantages, self.returns),
        )


class RolloutBuffer(_ByLinscan, _buffers.RolloutBuffer):  # type: ignore[misc]
    """``RolloutBuffer`` with another ``compute_returns_and_advantage``."""


class DictRolloutBuffer(_ByLinscan, _buffers.DictRolloutBuffer):  # type: ignore[misc]
    """``DictRolloutBuffer`` likewise."""
