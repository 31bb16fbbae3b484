"""For skrl.

::

    skrl.agents.torch.ppo.ppo.compute_gae = linscan.compat.skrl.compute_gae
"""

from __future__ import annotations

from typing import Any

import linscan


def compute_gae(
    *,
    rewards: Any,
    terminated: Any,
    values: Any,
    next_values: Any,
    discount_factor: float = 0.99,
    lambda_coefficient: float = 0.95,
) -> tuple[Any, Any]:
    """GAE of ``[steps, envs, 1]`` tensors: returns, and *normalised* advantages, in this order.

    ``next_values`` are those after the last step alone.  ``terminated`` says that a step ended an
    episode; nothing is cut where one was truncated, unless the agent has put it into this flag.
    """
    advantages, returns = linscan.gae(
        rewards,
        values,
        gamma=discount_factor,
        lam=lambda_coefficient,
        terminated=terminated,
        last_values=next_values,
        axis=0,
    )
    return returns, (advantages - advantages.mean()) / (advantages.std() + 1e-8)
