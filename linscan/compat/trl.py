"""For TRL, whose ``PPOTrainer`` holds the loop itself: one line instead of it.

::

    advantages, returns = linscan.compat.trl.advantages_and_returns(
        rewards, values, padding_mask, args.gamma, args.lam
    )
"""

from __future__ import annotations

from typing import Any

import linscan


def advantages_and_returns(
    rewards: Any,
    values: Any,
    padding_mask: Any,
    gamma: float,
    lam: float,
    *,
    fix: bool = False,
) -> tuple[Any, Any]:
    """GAE of ``[batch, response]`` tensors: whitened advantages, 0 at padding, and returns.

    ``padding_mask`` is true at padding.  As in the original, the recurrence runs over padding like
    over tokens: whatever rewards and values stand there count, and they do, for the trainer puts
    the score into the first padded slot of a response that is shorter than the longest.  Less
    than two tokens that are no padding are a ValueError.

    With ``fix``, padding is left out: the score moves to the last token before it, and returns are
    0 at padding.
    """
    mask = ~padding_mask.bool()
    if fix:
        advantages, returns = linscan.gae(
            rewards, values, gamma=gamma, lam=lam, mask=mask, masked_reward="to_previous_valid"
        )
    else:
        advantages, returns = linscan.gae(rewards, values, gamma=gamma, lam=lam)
    return linscan.whiten(advantages, mask, on_degenerate="raise"), returns
