"""For rl_games.

::

    rl_games.common.a2c_common.compute_gae = linscan.compat.rl_games.compute_gae
"""

from __future__ import annotations

from typing import Any

import linscan
from linscan import flags


def compute_gae(
    mb_rewards: Any,
    mb_values: Any,
    mb_dones: Any,
    last_values: Any,
    last_dones: Any,
    gamma: float,
    tau: float,
) -> Any:
    """GAE advantages of ``[horizon, envs, values]`` tensors; ``tau`` is λ.

    ``mb_dones``, ``[horizon, envs]``, says that a step *begins* an episode; ``last_dones`` that the
    observation after the last step does.  The trainer has added γ V(sₜ) to the rewards of steps
    that ran out of time, in place of the value of the final observation, which it does not have.
    """
    ends = flags.from_episode_starts(mb_dones != 0, last_dones, axis=0)
    return linscan.gae(
        mb_rewards,
        mb_values,
        gamma=gamma,
        lam=tau,
        terminated=ends[..., None],
        last_values=last_values,
        axis=0,
    ).advantages
