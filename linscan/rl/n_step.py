"""Returns of n steps."""

from __future__ import annotations

from typing import Any, Literal

from linscan._check import Check
from linscan._problem import EstimatorInputs
from linscan.rl._call import Estimator, Own, call_of
from linscan.rl._plan import estimate
from linscan.rl._trace import Trace


def _compose(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    xp, ends, (n,) = trace.xp, trace.ends, i.own
    returns = one = i.rewards + i.gamma * trace.next_values
    if n >= trace.problem.time:
        returns = trace.scan(i.gamma, xp.where(ends, one, i.rewards))
    else:
        for _ in range(n - 1):
            returns = xp.where(ends, one, i.rewards + i.gamma * trace.following(returns))
    return (trace.valid(returns),)


ESTIMATOR = Estimator(
    "n_step_returns",
    ("returns",),
    _compose,
    needs=("next_values", "gamma"),
    own=(Own("n", "option", least=1),),
)


def n_step_returns(
    rewards: Any,
    next_values: Any,
    *,
    gamma: Any,
    n: int,
    terminated: Any = None,
    truncated: Any = None,
    mask: Any = None,
    lengths: Any = None,
    cu_seqlens: Any = None,
    axis: int = -1,
    masked_reward: Literal["drop", "raise", "to_previous_valid"] = "drop",
    out: Any = None,
    out_dtype: Any = None,
    backend: str = "auto",
    chunk_size: int | None = None,
    check: Check = "auto",
    differentiable: bool = False,
) -> Any:
    r"""Returns of n steps: the sum of n discounted rewards, and the value of what follows them.

    ::

        Gₜ = rₜ + γ rₜ₊₁ + … + γᵐ⁻¹ rₜ₊ₘ₋₁ + γᵐ Nₜ₊ₘ₋₁

    with m = n, or fewer where the episode or the row ends sooner.  Nₜ is ``next_values[t]``, taken
    as 0 where terminated; ``truncated`` needs no further value.  The sum is made of shifts, n of
    them, so that nothing cancels as in a difference of two long returns; with n ≥ T it is a scan.

    Masks, shapes, dtypes, errors and the other arguments are those of :func:`linscan.gae`; rewards
    on masked steps are **dropped** unless ``masked_reward`` says otherwise, and n counts valid
    steps.

    Args:
        rewards: rₜ, of any rank ≥ 1, with time along ``axis``.
        next_values: The value of the state that each step leads to, shaped like ``rewards``.
        gamma: The discount γ: a number, or an array that broadcasts to ``rewards``.
        n: How many rewards to add, at least 1.
        terminated: As in :func:`linscan.gae`, and so are all the others.
        truncated: See there.
        mask: See there; the returns are 0 at masked steps.
        lengths: See there.
        cu_seqlens: See there.
        axis: See there.
        masked_reward: See there.
        out: One array to write the returns into.
        out_dtype: See there.
        backend: See there.
        chunk_size: See there.
        check: See there.
        differentiable: See there.

    Returns:
        The returns Gₜ, fresh, shaped like ``rewards``.

    Raises:
        TypeError: ``n`` is not an integer; and what :func:`linscan.gae` raises.
        ValueError: ``n`` is less than 1; and what :func:`linscan.gae` raises.

    Source:
        Sutton and Barto, "Reinforcement learning: an introduction" (2018), equation 7.1.

    >>> linscan.n_step_returns(np.ones(3), np.full(3, 8.0), gamma=0.5, n=2)
    array([3.5, 3.5, 5. ])
    """
    call = call_of(
        ESTIMATOR,
        rewards=rewards,
        next_values=next_values,
        gamma=gamma,
        n=n,
        terminated=terminated,
        truncated=truncated,
        mask=mask,
        lengths=lengths,
        cu_seqlens=cu_seqlens,
        axis=axis,
        masked_reward=masked_reward,
        out=out,
        out_dtype=out_dtype,
        backend=backend,
        chunk_size=chunk_size,
        check=check,
        differentiable=differentiable,
    )
    return estimate(call)[0]
