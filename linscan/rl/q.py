"""Returns for action values: Retrace and its relatives, and Q(λ)."""

from __future__ import annotations

from typing import Any, Literal

from linscan._check import Check
from linscan._problem import EstimatorInputs
from linscan.rl._call import Call, Estimator, Own, call_of
from linscan.rl._plan import estimate
from linscan.rl._trace import Trace


def _compose_retrace(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    log_rhos, log_pi, kind = i.own
    decay = i.gamma * trace.going_on(i.lam)
    if kind != "harutyunyan":
        log_c = trace.weight(log_pi if kind == "tree-backup" else log_rhos)
        c = trace.xp.exp(trace.xp.where(trace.starts, 0.0, log_c))
        c = trace.xp.clip(c, max=1.0) if kind == "retrace" else c
        decay = decay * trace.following(c)
    errors = trace.scan(decay, i.rewards + i.gamma * trace.next_values - i.values)
    return (trace.output(errors + i.values),)


def _check_retrace(call: Call) -> None:
    log_rhos, log_pi, kind = call.own or (None, None, None)
    if kind in ("retrace", "importance") and log_rhos is None:
        raise ValueError(f"log_rhos is None, and kind={kind!r} needs it")
    if kind == "tree-backup" and log_pi is None:
        raise ValueError("kind='tree-backup' needs log_pi=")
    if kind != "tree-backup" and log_pi is not None:
        raise ValueError(f"log_pi is read by kind='tree-backup' alone, and kind is {kind!r}")


def _compose_q_lambda(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    (greedy, _), ends, lam = i.own, trace.ends, trace.going_on(i.lam)
    stop = None if greedy is None else ~greedy
    bootstrap = i.gamma * trace.next_values
    whole = ends if stop is None else ends | stop
    b = i.rewards + trace.xp.where(whole, bootstrap, bootstrap * (1.0 - lam))
    return (trace.output(trace.scan(i.gamma * lam, b, stop)),)


def _check_q_lambda(call: Call) -> None:
    greedy, kind = call.own or (None, None)
    if kind == "watkins" and greedy is None:
        raise ValueError("kind='watkins' needs greedy_next=")
    if kind == "peng" and greedy is not None:
        raise ValueError("greedy_next is read by kind='watkins' alone, and kind is 'peng'")


RETRACE = Estimator(
    "retrace",
    ("targets",),
    _compose_retrace,
    needs=("values", "next_values", "gamma", "lam"),
    own=(
        Own("log_rhos", "weight"),
        Own("log_pi", "weight"),
        Own("kind", "option", words=("retrace", "importance", "tree-backup", "harutyunyan")),
    ),
    names={"values": "q_values", "next_values": "expected_next_q"},
    check=_check_retrace,
)
Q_LAMBDA = Estimator(
    "q_lambda",
    ("targets",),
    _compose_q_lambda,
    needs=("next_values", "gamma", "lam"),
    own=(Own("greedy_next", "flag"), Own("kind", "option", words=("peng", "watkins"))),
    names={"next_values": "next_q_max"},
    check=_check_q_lambda,
)


def retrace(
    rewards: Any,
    q_values: Any,
    expected_next_q: Any,
    log_rhos: Any = None,
    *,
    gamma: Any,
    lam: Any = 1.0,
    kind: Literal["retrace", "importance", "tree-backup", "harutyunyan"] = "retrace",
    log_pi: Any = None,
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
    r"""Retrace(λ) and its relatives: targets for Q from the data of another policy.

    ::

        Gₜ = rₜ + γ (Eₜ + cₜ₊₁ (Gₜ₊₁ - Qₜ₊₁))       where the trace goes on
        Gₜ = rₜ + γ Eₜ                              where it ends

    Eₜ is the expectation of Q(sₜ₊₁, ·) under the target policy, taken as 0 where terminated.  The
    trace is that of the action taken *next*, in contrast to V-trace's; it is taken from the next
    step by this function:

    ===============  ======================  =====================================
    kind             cₜ₊₁                    needs
    ===============  ======================  =====================================
    ``retrace``      λ min(1, ρₜ₊₁)          ``log_rhos``
    ``importance``   λ ρₜ₊₁                  ``log_rhos``
    ``tree-backup``  λ π(aₜ₊₁|sₜ₊₁)          ``log_pi``
    ``harutyunyan``  λ                       neither
    ===============  ======================  =====================================

    ``truncated`` needs no further value: ``expected_next_q`` is that of the final observation.
    Masks, shapes, dtypes, errors and the other arguments are those of :func:`linscan.gae`; rewards
    on masked steps are **dropped** unless ``masked_reward`` says otherwise.

    Args:
        rewards: rₜ, of any rank ≥ 1, with time along ``axis``.
        q_values: Q(sₜ, aₜ) of the actions that were taken, shaped like ``rewards``.
        expected_next_q: Eₜ, shaped like ``rewards``.
        log_rhos: log ρₜ = log π(aₜ|sₜ) - log μ(aₜ|sₜ): a number, or an array that broadcasts to
            ``rewards``; the first one is not read.
        gamma: The discount γ: a number, or an array that broadcasts to ``rewards``.
        lam: The trace decay λ, likewise; the λ at step t belongs to cₜ₊₁.
        kind: Which trace, as above.
        log_pi: log π(aₜ|sₜ), like ``log_rhos``.
        terminated: As in :func:`linscan.gae`, and so are all the others.
        truncated: See there.
        mask: See there.
        lengths: See there.
        cu_seqlens: See there.
        axis: See there.
        masked: See there; ``"carry"`` is the error Gₜ - Qₜ that passes by, plus the Q there.
        masked_reward: See there.
        out: One array to write the targets into.
        out_dtype: See there.
        backend: See there.
        chunk_size: See there.
        check: See there.
        differentiable: See there.

    Returns:
        The targets Gₜ, fresh, shaped like ``rewards``.

    Raises:
        ValueError: An unknown kind, or one without what it needs; and what :func:`linscan.gae`
            raises.

    Source:
        Munos et al., "Safe and efficient off-policy reinforcement learning" (2016), arXiv
        1606.02647, equations 3 and 4 and table 1; Harutyunyan et al., "Q(λ) with off-policy
        corrections" (2016), arXiv 1602.04951.

    >>> rewards, q = np.array([1.0, 1.0]), np.array([0.0, 2.0])
    >>> linscan.retrace(rewards, q, np.array([2.0, 4.0]), np.log([9.0, 0.5]), gamma=1.0)
    array([4.5, 5. ])
    """
    call = call_of(
        RETRACE,
        rewards=rewards,
        q_values=q_values,
        expected_next_q=expected_next_q,
        log_rhos=log_rhos,
        gamma=gamma,
        lam=lam,
        kind=kind,
        log_pi=log_pi,
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
    return estimate(call)[0]


def q_lambda(
    rewards: Any,
    next_q_max: Any,
    *,
    gamma: Any,
    lam: Any,
    kind: Literal["peng", "watkins"] = "peng",
    greedy_next: Any = None,
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
    r"""Q(λ): λ-returns of the greedy policy.

    ::

        Gₜ = rₜ + γ ((1 - λ) mₜ + λ Gₜ₊₁)       where the trace goes on
        Gₜ = rₜ + γ mₜ                          where it ends

    with mₜ = maxₐ Q(sₜ₊₁, a), taken as 0 where terminated.  Peng's trace ends with the episode;
    that of Watkins ends, too, where the action taken next is not the greedy one.

    ``truncated`` needs no further value: ``next_q_max`` is that of the final observation.
    Masks, shapes, dtypes, errors and the other arguments are those of :func:`linscan.gae`; rewards
    on masked steps are **dropped** unless ``masked_reward`` says otherwise.

    Args:
        rewards: rₜ, of any rank ≥ 1, with time along ``axis``.
        next_q_max: mₜ, shaped like ``rewards``.
        gamma: The discount γ: a number, or an array that broadcasts to ``rewards``.
        lam: The trace decay λ, likewise; the λ at step t weighs Gₜ₊₁.
        kind: ``"peng"`` or ``"watkins"``.
        greedy_next: For Watkins: whether the action taken *after* step t, at the next valid one,
            is greedy there.  Bool or 0 and 1, with the time axis of ``rewards``.
        terminated: As in :func:`linscan.gae`, and so are all the others.
        truncated: See there.
        mask: See there.
        lengths: See there.
        cu_seqlens: See there.
        axis: See there.
        masked: See there; ``"carry"`` is the target that passes by.
        masked_reward: See there.
        out: One array to write the targets into.
        out_dtype: See there.
        backend: See there.
        chunk_size: See there.
        check: See there.
        differentiable: See there.

    Returns:
        The targets Gₜ, fresh, shaped like ``rewards``.

    Raises:
        ValueError: An unknown kind, ``greedy_next`` missing with Watkins or given with Peng; and
            what :func:`linscan.gae` raises.

    Source:
        Watkins, "Learning from delayed rewards" (1989), chapter 7; Peng and Williams, "Incremental
        multi-step Q-learning" (1996), equation 9; Sutton and Barto (2018), section 12.10.

    >>> rewards, maxima = np.array([1.0, 1.0]), np.array([4.0, 8.0])
    >>> linscan.q_lambda(rewards, maxima, gamma=1.0, lam=0.5)
    array([7.5, 9. ])
    >>> greedy = np.array([False, False])
    >>> linscan.q_lambda(rewards, maxima, gamma=1.0, lam=0.5, kind="watkins", greedy_next=greedy)
    array([5., 9.])
    """
    call = call_of(
        Q_LAMBDA,
        rewards=rewards,
        next_q_max=next_q_max,
        gamma=gamma,
        lam=lam,
        kind=kind,
        greedy_next=greedy_next,
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
    return estimate(call)[0]
