"""Discounted returns and λ-returns."""

from __future__ import annotations

from typing import Any, Literal

from linscan._check import Check
from linscan._problem import EstimatorInputs
from linscan.rl._call import Call, Estimator
from linscan.rl._plan import estimate
from linscan.rl._trace import Trace


def _compose_discounted(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    b = trace.xp.where(trace.ends, i.rewards + i.gamma * trace.next_values, i.rewards)
    return (trace.output(trace.scan(i.gamma, b)),)


def _compose_td_lambda(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    bootstrap, lam = i.gamma * trace.next_values, trace.going_on(i.lam)
    b = i.rewards + trace.xp.where(trace.ends, bootstrap, bootstrap * (1.0 - lam))
    return (trace.output(trace.scan(i.gamma * lam, b)),)


DISCOUNTED_RETURNS = Estimator(
    "discounted_returns", ("returns",), _compose_discounted, needs=("gamma",)
)
TD_LAMBDA = Estimator("td_lambda", ("returns",), _compose_td_lambda, needs=("gamma", "lam"))


def discounted_returns(
    rewards: Any,
    *,
    gamma: Any,
    last_values: Any = None,
    truncation_values: Any = None,
    on_missing_bootstrap: Literal["zero"] | None = None,
    terminated: Any = None,
    truncated: Any = None,
    mask: Any = None,
    lengths: Any = None,
    cu_seqlens: Any = None,
    axis: int = -1,
    masked: Literal["zero", "carry"] = "zero",
    masked_reward: Literal["drop", "raise", "to_previous_valid"] = "drop",
    out: Any = None,
    out_dtype: Any = None,
    backend: str = "auto",
    chunk_size: int | None = None,
    check: Check = "auto",
    differentiable: bool = False,
) -> Any:
    r"""Discounted returns, also called rewards to go.

    ::

        Gₜ = rₜ + γ Gₜ₊₁          where the episode goes on
        Gₜ = rₜ + γ nₜ            where it ends, with nₜ = 0 where terminated, the truncation value
                                  where truncated, and the last value (or 0) at the end of the row

    Masks, shapes, dtypes, errors and the other arguments are those of :func:`linscan.gae`; rewards
    on masked steps are **dropped** unless ``masked_reward`` says otherwise.  There are no values
    here, so ``on_missing_bootstrap`` can only be ``"zero"``.

    Args:
        rewards: rₜ, of any rank ≥ 1, with time along ``axis``.
        gamma: The discount γ: a number, or an array that broadcasts to ``rewards``.
        last_values: The value of the state after the last step of each row; None is 0, the Monte
            Carlo return.
        truncation_values: As in :func:`linscan.gae`, and so are all the others.
        on_missing_bootstrap: See there.
        terminated: See there.
        truncated: See there.
        mask: See there.
        lengths: See there.
        cu_seqlens: See there.
        axis: See there.
        masked: See there.
        masked_reward: See there.
        out: One array to write the returns into.
        out_dtype: See there.
        backend: See there.
        chunk_size: See there.
        check: See there.
        differentiable: See there.

    Returns:
        The returns, fresh, shaped like ``rewards``.

    Source:
        Sutton and Barto, "Reinforcement learning: an introduction" (2018), equation 3.9.

    >>> linscan.discounted_returns(np.array([1.0, 0.0, 2.0]), gamma=0.5)
    array([1.5, 1. , 2. ])
    """
    call = Call(
        DISCOUNTED_RETURNS,
        rewards,
        None,
        None,
        last_values,
        terminated,
        truncated,
        truncation_values,
        mask,
        gamma,
        None,
        None,
        on_missing_bootstrap,
        lengths,
        cu_seqlens,
        axis,
        masked,
        masked_reward,
        out,
        out_dtype,
        backend,
        chunk_size,
        check,
        differentiable,
    )
    return estimate(call)[0]


def td_lambda(
    rewards: Any,
    values: Any = None,
    *,
    gamma: Any,
    lam: Any,
    next_values: Any = None,
    last_values: Any = None,
    truncation_values: Any = None,
    on_missing_bootstrap: Literal["zero", "current_value"] | None = None,
    terminated: Any = None,
    truncated: Any = None,
    mask: Any = None,
    lengths: Any = None,
    cu_seqlens: Any = None,
    axis: int = -1,
    masked: Literal["zero", "carry"] = "zero",
    masked_reward: Literal["drop", "raise", "to_previous_valid"] = "drop",
    out: Any = None,
    out_dtype: Any = None,
    backend: str = "auto",
    chunk_size: int | None = None,
    check: Check = "auto",
    differentiable: bool = False,
) -> Any:
    r"""λ-returns, the targets of TD(λ).

    ::

        Gₜ = rₜ + γ ((1 - λ) nₜ + λ Gₜ₊₁)       where the trace goes on
        Gₜ = rₜ + γ nₜ                          where it ends

    with nₜ, the value of the state that step t leads to, as in :func:`linscan.gae`.  λ = 0 is the
    one-step target, λ = 1 the discounted return.  Where nₜ = Vₜ₊₁ all along a trace, Gₜ is
    GAE's Aₜ + Vₜ; with separately computed ``next_values`` the two differ.

    Masks, shapes, dtypes, errors and the other arguments are those of :func:`linscan.gae`; rewards
    on masked steps are **dropped** unless ``masked_reward`` says otherwise.

    Args:
        rewards: rₜ, of any rank ≥ 1, with time along ``axis``.
        values: Vₜ, shaped like ``rewards`` or one step longer; may be left out with
            ``next_values``.
        gamma: The discount γ: a number, or an array that broadcasts to ``rewards``.
        lam: The trace decay λ, likewise; the λ at step t weighs Gₜ₊₁.
        next_values: As in :func:`linscan.gae`, and so are all the others.
        last_values: See there.
        truncation_values: See there.
        on_missing_bootstrap: See there.
        terminated: See there.
        truncated: See there.
        mask: See there.
        lengths: See there.
        cu_seqlens: See there.
        axis: See there.
        masked: See there.
        masked_reward: See there.
        out: One array to write the returns into.
        out_dtype: See there.
        backend: See there.
        chunk_size: See there.
        check: See there.
        differentiable: See there.

    Returns:
        The λ-returns, fresh, shaped like ``rewards``.

    Source:
        Sutton and Barto, "Reinforcement learning: an introduction" (2018), equation 12.20.

    >>> rewards, values = np.array([1.0, 1.0]), np.array([1.0, 2.0, 10.0])
    >>> linscan.td_lambda(rewards, values, gamma=0.5, lam=0.5)
    array([3., 6.])
    """
    call = Call(
        TD_LAMBDA,
        rewards,
        values,
        next_values,
        last_values,
        terminated,
        truncated,
        truncation_values,
        mask,
        gamma,
        lam,
        None,
        on_missing_bootstrap,
        lengths,
        cu_seqlens,
        axis,
        masked,
        masked_reward,
        out,
        out_dtype,
        backend,
        chunk_size,
        check,
        differentiable,
    )
    return estimate(call)[0]
