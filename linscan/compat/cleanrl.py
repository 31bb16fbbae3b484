"""For CleanRL, whose files hold the loop itself: one line instead of it.

::

    advantages, returns = linscan.compat.cleanrl.gae(
        rewards, values, dones, next_value, next_done, args.gamma, args.gae_lambda
    )
"""

from __future__ import annotations

from typing import Any

import linscan
from linscan import flags


def gae(
    rewards: Any,
    values: Any,
    dones: Any,
    next_value: Any,
    next_done: Any,
    gamma: float,
    gae_lambda: float,
) -> tuple[Any, Any]:
    """GAE of ``[steps, envs]`` arrays whose ``dones[t]`` says that step t *begins* an episode.

    ``next_value`` is ``[envs]`` or ``[1, envs]``, ``next_done`` ``[envs]``: value and flag of the
    observation after the last step.  Returns ``(advantages, returns)``.

    Truncation counts as termination, as in the original: its flags cannot tell one from the other,
    so there is nothing to mend here.  :func:`linscan.gae` with ``truncated`` and
    ``truncation_values`` can.
    """
    return linscan.gae(
        rewards,
        values,
        gamma=gamma,
        lam=gae_lambda,
        terminated=flags.from_episode_starts(dones != 0, next_done, axis=0),
        last_values=next_value.reshape(rewards.shape[1:]),
        axis=0,
    )
