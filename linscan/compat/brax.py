"""For brax, on NumPy arrays and torch tensors: its conventions, outside of JAX."""

from __future__ import annotations

from typing import Any

import linscan
from linscan import _arrays


def compute_gae(
    truncation: Any,
    termination: Any,
    rewards: Any,
    values: Any,
    bootstrap_value: Any,
    lambda_: float = 1.0,
    discount: float = 0.99,
    *,
    fix: bool = False,
) -> tuple[Any, Any]:
    """λ-returns and advantages, ``(vs, advantages)``, of ``[steps, batch]`` arrays.

    As in the original, a truncated step is left out: its advantage is 0, its target is its value,
    and nothing passes through it.  The advantage is rₜ + γ vsₜ₊₁ - Vₜ, whose first step is not
    weighed by λ: it is GAE only for λ = 1.  No gradients flow.

    With ``fix``, advantages are GAE, ``vs - values``.
    """
    xp = _arrays.namespace(rewards)
    dropped = truncation != 0
    rewards = xp.where(dropped, values, rewards)  # with an end of the episode: an advantage of 0
    rule: dict[str, Any] = {
        "gamma": discount,
        "terminated": dropped | (termination != 0),
        "axis": 0,
    }
    advantages, vs = linscan.gae(rewards, values, lam=lambda_, last_values=bootstrap_value, **rule)
    if fix:
        return vs, advantages
    after = xp.concat([vs, bootstrap_value[None]], axis=0)[1:]
    return vs, linscan.gae(rewards, values, lam=0.0, next_values=after, **rule).advantages
