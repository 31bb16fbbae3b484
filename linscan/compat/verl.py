"""For verl: ``verl.trainer.ppo.core_algos``.

The trainer calls GAE through its module::

    verl.trainer.ppo.core_algos.compute_gae_advantage_return = (
        linscan.compat.verl.compute_gae_advantage_return
    )
"""

from __future__ import annotations

from typing import Any

import torch

import linscan


def compute_gae_advantage_return(
    token_level_rewards: Any,
    values: Any,
    response_mask: Any,
    gamma: Any,
    lam: Any,
    *,
    fix: bool = False,
) -> tuple[Any, Any]:
    """GAE of ``[batch, response]`` tensors over holes in the mask: whitened advantages, returns.

    As in the original, returns are taken before whitening; at masked tokens the advantage is that
    of the next valid token, whitened like the others, and returns are that plus the value.  Rewards
    on masked tokens are dropped without a word, and a mask with less than two valid tokens is a
    ValueError.

    With ``fix``, advantages and returns are 0 at masked tokens, and so are the advantages of a
    batch that is too small to be whitened.
    """
    mask = response_mask.bool()
    advantages, returns = linscan.gae(
        token_level_rewards,
        values,
        gamma=gamma,
        lam=lam,
        mask=mask,
        masked="zero" if fix else "carry",
    )
    if fix:
        return linscan.whiten(advantages, mask), returns
    return _whitened_everywhere(advantages, mask), returns


def compute_reinforce_plus_plus_outcome_advantage(
    token_level_rewards: Any, response_mask: Any, config: Any = None, **kwargs: Any
) -> tuple[Any, Any]:
    """Discounted returns over holes in the mask, whitened and not; 0 at masked tokens.

    ``config.gamma`` is the discount.  As in the original since August 2026, a return passes
    through a hole; before that it was lost there.
    """
    mask = response_mask.bool()
    returns = linscan.discounted_returns(token_level_rewards, gamma=config.gamma, mask=mask)
    return linscan.whiten(returns, mask, on_degenerate="raise"), returns


def _whitened_everywhere(x: Any, mask: Any) -> Any:
    """By the statistics of valid elements, masked ones too."""
    valid = x[mask].double()
    if valid.numel() < 2:
        raise ValueError(f"whitening needs at least 2 valid tokens, not {valid.numel()}")
    return (x - valid.mean()) * torch.rsqrt(valid.var() + 1e-8)
