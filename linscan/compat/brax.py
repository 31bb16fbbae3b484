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
    weighed by λ: it is GAE only for λ = 1.

    With ``fix``, advantages are GAE, ``vs - values``.
    """
    xp = _arrays.namespace(rewards)
    dropped, ended = xp.astype(truncation, xp.bool), xp.astype(termination, xp.bool)

    def shifted(x: Any) -> Any:
        return xp.concat([x[1:], bootstrap_value[None]], axis=0)

    def advantage(after: Any) -> Any:
        return xp.where(dropped, 0.0, rewards + xp.where(ended, 0.0, discount * after) - values)

    errors = linscan.scan(
        discount * lambda_,
        advantage(shifted(values)),
        axis=0,
        reverse=True,
        reset=dropped | ended,
    )
    vs = errors + values
    return vs, errors if fix else advantage(shifted(vs))
