"""Upgoing policy updates: returns that follow what went better than expected."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from linscan import _arrays
from linscan._check import Check
from linscan._problem import EstimatorInputs
from linscan.rl._call import Estimator, Own, call_of
from linscan.rl._plan import estimate
from linscan.rl._trace import Trace


class UPGO(NamedTuple):
    """What :func:`upgo` returns."""

    advantages: Any
    """ρₜ (Gₜ - Vₜ): what the gradient of log π is weighed by."""
    returns: Any
    """Gₜ, the upgoing returns."""


def _compose(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    xp, (rhos,), dtype = trace.xp, i.own, trace.problem.dtype
    target = i.rewards + i.gamma * trace.next_values
    # In the dtype of the data, so that what ties there ties here.
    better = _arrays.native(target, dtype) >= _arrays.native(i.values, dtype)
    stop = trace.following(xp.where(better, 1.0, xp.zeros_like(i.rewards))) < 0.5
    returns = trace.scan(i.gamma, xp.where(trace.ends | stop, target, i.rewards), stop)
    advantages = trace.valid(returns - i.values)
    if rhos is not None:
        advantages = trace.weight(rhos) * advantages
    return advantages, trace.output(returns)


ESTIMATOR = Estimator(
    "upgo",
    ("advantages", "returns"),
    _compose,
    needs=("values", "gamma"),
    own=(Own("rhos", "weight"),),
)


def upgo(
    rewards: Any,
    values: Any,
    *,
    gamma: Any = 1.0,
    rhos: Any = None,
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
    out: tuple[Any, Any] | None = None,
    out_dtype: Any = None,
    backend: str = "auto",
    chunk_size: int | None = None,
    check: Check = "auto",
    differentiable: bool = False,
) -> UPGO:
    r"""Upgoing policy updates: the return follows the trace for as long as it does better.

    ::

        Gₜ = rₜ + γ Gₜ₊₁        where the trace goes on and rₜ₊₁ + γ nₜ₊₁ ≥ Vₜ₊₁
        Gₜ = rₜ + γ nₜ          elsewhere
        Aₜ = ρₜ (Gₜ - Vₜ)

    with nₜ, the value of the state that step t leads to, as in :func:`linscan.gae`.  The two sides
    are compared in the dtype of rewards and values; a tie goes on.

    Masks, shapes, dtypes, errors and the other arguments are those of :func:`linscan.gae`; rewards
    on masked steps are **dropped** unless ``masked_reward`` says otherwise.  At masked steps
    ``advantages`` is always 0.

    Args:
        rewards: rₜ, of any rank ≥ 1, with time along ``axis``.
        values: Vₜ, shaped like ``rewards`` or one step longer.
        gamma: The discount γ: a number, or an array that broadcasts to ``rewards``.
        rhos: ρₜ, the (clipped) ratios of the target policy to the behaviour's, likewise; None is 1.
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
        masked: See there; of ``returns``: the return that passes by.
        masked_reward: See there.
        out: Two arrays to write the results into.
        out_dtype: See there.
        backend: See there.
        chunk_size: See there.
        check: See there.
        differentiable: See there; no gradient flows through the comparison.

    Returns:
        ``UPGO(advantages, returns)``, each fresh and shaped like ``rewards``.

    Raises:
        TypeError: As in :func:`linscan.gae`.
        ValueError: As in :func:`linscan.gae`.

    Source:
        Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement
        learning" (2019), Nature 575, methods: "Upgoing policy update".

    >>> rewards, values = np.array([1.0, 0.0, 4.0]), np.array([0.0, 3.0, 2.0])
    >>> linscan.upgo(rewards, values).returns
    array([4., 4., 4.])
    """
    call = call_of(
        ESTIMATOR,
        rewards=rewards,
        values=values,
        gamma=gamma,
        rhos=rhos,
        next_values=next_values,
        last_values=last_values,
        truncation_values=truncation_values,
        on_missing_bootstrap=on_missing_bootstrap,
        terminated=terminated,
        truncated=truncated,
        mask=mask,
        lengths=lengths,
        cu_seqlens=cu_seqlens,
        axis=axis,
        masked=masked,
        masked_reward=masked_reward,
        out=out,
        out_dtype=out_dtype,
        backend=backend,
        chunk_size=chunk_size,
        check=check,
        differentiable=differentiable,
    )
    return UPGO(*estimate(call))
