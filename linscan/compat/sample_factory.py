"""For Sample Factory.

::

    sample_factory.algo.learning.learner.gae_advantages = (
        linscan.compat.sample_factory.gae_advantages
    )
"""

from __future__ import annotations

from typing import Any

import torch

import linscan
from linscan.compat._gradients import wants_gradients


def gae_advantages(
    rewards: Any, dones: Any, values: Any, valids: Any, γ: float, λ: float, *, fix: bool = False
) -> Any:
    """GAE advantages of ``[envs, steps]`` tensors; ``values`` and ``valids`` have a step more.

    As in the original, the recurrence steps over a step that is not valid, but nothing bootstraps
    from the value behind it: that enters at the step in the hole, and comes through with a factor
    of γλ too much.  The advantage of a step that is not valid is this sum, not 0.

    With ``fix``, a valid step bootstraps from the value of the next valid one, and advantages are
    0 elsewhere.
    """
    dones, valids = dones.bool(), valids.bool()
    valid, follows = valids[:, :-1], valids[:, 1:]
    if fix:
        last = values[:, -1]
        last = torch.where(valids[:, -1], last, torch.zeros_like(last))
        return linscan.gae(
            rewards,
            values[:, :-1],
            gamma=γ,
            lam=λ,
            terminated=dones,
            mask=valid,
            last_values=last,
            differentiable=wants_gradients(rewards, values),
        ).advantages
    error = torch.where(valid, rewards - values[:, :-1], 0.0)
    bootstrap = torch.where(follows & ~dones, γ * values[:, 1:], 0.0)
    one = torch.ones_like(error[:1, :1])
    decay = torch.where(valid, γ * λ * one, one)
    return linscan.scan(decay, error + bootstrap, reverse=True, reset=dones)
