"""V-trace, the actor-critic's correction for data of another policy."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from linscan import _arrays
from linscan._check import Check
from linscan._problem import EstimatorInputs
from linscan.rl._call import Estimator, Own, call_of
from linscan.rl._plan import estimate
from linscan.rl._trace import Trace


class VTrace(NamedTuple):
    """What :func:`vtrace` returns."""

    vs: Any
    """The targets that a value function is fitted to."""
    pg_advantages: Any
    """What the gradient of log π is weighed by."""
    errors: Any
    """``vs - values``."""


def _compose(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    log_rhos, rho_clip, c_clip, pg_rho_clip, leak = i.own
    xp, n, ends, lam = trace.xp, trace.next_values, trace.ends, trace.going_on(i.lam)
    rho = xp.exp(trace.weight(log_rhos))

    def leaky(limit: Any) -> Any:
        least = xp.clip(rho, max=limit)
        is_tight = _arrays.is_scalar(leak) and leak == 0  # and then 0 · ∞ must not be NaN
        return least if is_tight else leak * rho + (1.0 - leak) * least

    delta = leaky(rho_clip) * (i.rewards + i.gamma * n - i.values)
    errors = trace.scan(i.gamma * lam * leaky(c_clip), delta)
    after = n if i.next_values is None else trace.following(i.values)
    mixture = xp.where(ends, n, after + lam * trace.following(errors))
    advantages = xp.clip(rho, max=pg_rho_clip) * (i.rewards + i.gamma * mixture - i.values)
    return trace.output(errors + i.values), trace.valid(advantages), trace.output(errors)


ESTIMATOR = Estimator(
    "vtrace",
    ("vs", "pg_advantages", "errors"),
    _compose,
    needs=("values", "gamma", "lam", "log_rhos", "rho_clip", "c_clip", "pg_rho_clip", "leak"),
    own=(
        Own("log_rhos", "weight"),
        Own("rho_clip", "weight", least=0.0),
        Own("c_clip", "weight", least=0.0),
        Own("pg_rho_clip", "weight", least=0.0),
        Own("leak", "weight", least=0.0, most=1.0),
    ),
)


def vtrace(
    log_rhos: Any,
    rewards: Any,
    values: Any,
    *,
    gamma: Any,
    lam: Any = 1.0,
    rho_clip: Any = 1.0,
    c_clip: Any = 1.0,
    pg_rho_clip: Any = 1.0,
    leak: Any = 0.0,
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
    out: tuple[Any, Any, Any] | None = None,
    out_dtype: Any = None,
    backend: str = "auto",
    chunk_size: int | None = None,
    check: Check = "auto",
    differentiable: bool = False,
) -> VTrace:
    r"""V-trace: value targets and advantages of one policy, from the data of another.

    ::

        ρₜ  = π(aₜ|sₜ) / μ(aₜ|sₜ)
        xₜ  = ρ̄ₜ (rₜ + γ nₜ - Vₜ) + γ cₜ kₜ xₜ₊₁        with ρ̄ₜ = min(rho_clip, ρₜ)
        vsₜ = Vₜ + xₜ                                   and  cₜ = λ min(c_clip, ρₜ)
        gₜ  = min(pg_rho_clip, ρₜ) (rₜ + γ wₜ - Vₜ)     with wₜ = λ vsₜ₊₁ + (1 - λ) Vₜ₊₁, or nₜ
                                                        where the trace ends

    nₜ, the value of the state that step t leads to, and kₜ, whether the trace goes on, are those
    of :func:`linscan.gae`.  With ρ = 1 throughout, x is GAE at this λ, and vs its returns.

    Masks, shapes, dtypes, errors and the other arguments are those of :func:`linscan.gae`; rewards
    on masked steps are **dropped** unless ``masked_reward`` says otherwise.  At masked steps
    ``pg_advantages`` is always 0.

    Args:
        log_rhos: log ρₜ, of the actions that were taken: a number, or an array that broadcasts to
            ``rewards``.
        rewards: rₜ, of any rank ≥ 1, with time along ``axis``.
        values: Vₜ of the target policy, shaped like ``rewards`` or one step longer.
        gamma: The discount γ: a number, or an array that broadcasts to ``rewards``.
        lam: The trace decay λ, likewise.
        rho_clip: ρ̄, which decides what the targets converge to; infinity does not clip.  Like
            ``c_clip`` and ``pg_rho_clip``, a number that is not negative, or an array of them.
        c_clip: c̄, which decides how fast they do.
        pg_rho_clip: The clip of the policy gradient's own ρ.
        leak: The share of ρ itself in ρ̄ₜ and cₜ, between 0 and 1: leaky V-trace.
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
        masked: See there; of ``vs`` and ``errors``.
        masked_reward: See there.
        out: Three arrays to write the results into.
        out_dtype: See there.
        backend: See there.
        chunk_size: See there.
        check: See there.
        differentiable: See there.

    Returns:
        ``VTrace(vs, pg_advantages, errors)``, each fresh and shaped like ``rewards``.

    Raises:
        ValueError: A clip or leak out of range, and what :func:`linscan.gae` raises.

    Source:
        Espeholt et al., "IMPALA" (2018), arXiv 1802.01561, equation 1 and section 4.2; the leak:
        Zahavy et al., "A self-tuning actor-critic algorithm" (2020), arXiv 2002.12928.

    >>> log_rhos = np.log([0.5, 2.0])
    >>> rewards, values = np.array([1.0, 1.0]), np.array([0.0, 4.0])
    >>> vs, advantages, errors = linscan.vtrace(
    ...     log_rhos, rewards, values, gamma=1.0, last_values=6.0
    ... )
    >>> vs, advantages
    (array([4., 7.]), array([4., 3.]))
    """
    call = call_of(
        ESTIMATOR,
        log_rhos=log_rhos,
        rewards=rewards,
        values=values,
        gamma=gamma,
        lam=lam,
        rho_clip=rho_clip,
        c_clip=c_clip,
        pg_rho_clip=pg_rho_clip,
        leak=leak,
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
    return VTrace(*estimate(call))
