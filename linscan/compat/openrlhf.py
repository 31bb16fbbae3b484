"""For OpenRLHF: methods of its experience maker, without ``self``.

::

    RemoteExperienceMaker.get_advantages_and_returns = staticmethod(
        linscan.compat.openrlhf.get_advantages_and_returns
    )
"""

from __future__ import annotations

from typing import Any

import torch

import linscan


def get_advantages_and_returns(
    values: Any, rewards: Any, action_mask: Any, gamma: float, lambd: float, *, fix: bool = False
) -> tuple[Any, Any]:
    """GAE of ``[batch, response]`` tensors: ``(advantages, returns)``, not whitened.

    As in the original, values and rewards at masked tokens are taken to be 0, and the recurrence
    runs over those tokens like over others: across a hole it forgets by γλ for every token, and
    bootstraps from 0.  With γ = λ = 1, or no holes, it makes no difference at valid tokens.

    With ``fix``, holes are stepped over, and both results are 0 there.
    """
    if action_mask is None:
        return linscan.gae(rewards, values, gamma=gamma, lam=lambd)
    mask = action_mask.bool()
    if fix:
        return linscan.gae(rewards, values, gamma=gamma, lam=lambd, mask=mask)
    rewards, values = _zeroed(rewards, mask), _zeroed(values, mask)
    return linscan.gae(rewards, values, gamma=gamma, lam=lambd)


def get_cumulative_returns(
    rewards: Any, action_mask: Any, gamma: float, *, fix: bool = False
) -> Any:
    """Discounted returns; holes as in :func:`get_advantages_and_returns`."""
    if action_mask is None:
        return linscan.discounted_returns(rewards, gamma=gamma)
    mask = action_mask.bool()
    if fix:
        return linscan.discounted_returns(rewards, gamma=gamma, mask=mask)
    return linscan.discounted_returns(_zeroed(rewards, mask), gamma=gamma)


def _zeroed(x: Any, mask: Any) -> Any:
    return torch.where(mask, x, torch.zeros_like(x))
