"""For NeMo-RL: the recurrence of its ``GeneralizedAdvantageEstimator``.

::

    GeneralizedAdvantageEstimator._compute_gae = linscan.compat.nemo_rl.compute_gae
"""

from __future__ import annotations

from typing import Any

import torch

import linscan


def compute_gae(
    self: Any, token_level_rewards: Any, values: Any, mask: Any, gae_lambda: Any = None
) -> tuple[Any, Any]:
    """GAE of ``[batch, sequence]`` tensors over holes in the mask: ``(advantages, returns)``.

    γ is ``self.gae_gamma``.  λ is ``self.gae_lambda`` or, if given, ``gae_lambda``: a number, or
    one for each row.  At masked tokens the advantage is that of the next valid one, and returns
    are that plus the value.  A mask of fractions, as weights of samples make it, mixes each step
    with stepping over it, in that proportion.
    """
    gamma, lam = self.gae_gamma, self.gae_lambda if gae_lambda is None else gae_lambda
    if isinstance(lam, torch.Tensor) and lam.ndim == 1:
        lam = lam[:, None]
    if mask.is_floating_point() and not bool(((mask == 0) | (mask == 1)).all()):
        return _weighted_gae(token_level_rewards, values, mask, gamma, lam)
    return linscan.gae(
        token_level_rewards, values, gamma=gamma, lam=lam, mask=mask.bool(), masked="carry"
    )


@torch.no_grad()
def _weighted_gae(rewards: Any, values: Any, mask: Any, gamma: Any, lam: Any) -> tuple[Any, Any]:
    """Two recurrences: of the value that follows, and of the advantage."""
    kind = torch.promote_types(rewards.dtype, values.dtype)
    r, v, m = (x.to(torch.promote_types(kind, torch.float32)) for x in (rewards, values, mask))
    own = torch.where(m == 0, 0.0, v)
    following = linscan.scan(1 - m, m * own, reverse=True).roll(-1, 1)
    following[:, -1:] = 0
    delta = torch.where(m == 0, 0.0, r + gamma * following - own)
    advantages = linscan.scan(m * gamma * lam + 1 - m, m * delta, reverse=True)
    return advantages.to(kind), (advantages + v).to(kind)
