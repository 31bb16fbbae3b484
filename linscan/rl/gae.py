"""Generalized advantage estimation."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from linscan._check import Check
from linscan._problem import EstimatorInputs
from linscan.rl._call import Call, Estimator
from linscan.rl._plan import estimate
from linscan.rl._trace import Trace


class GAE(NamedTuple):
    """What :func:`gae` returns."""

    advantages: Any
    """Aₜ, the generalized advantage estimates."""
    returns: Any
    """Aₜ + Vₜ: the TD(λ) targets that a value function is fitted to."""


def _compose(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    delta = i.rewards + i.gamma * trace.next_values - i.values
    advantages = other = trace.scan(i.gamma * trace.going_on(i.lam), delta)
    if i.lam_returns is not None:
        other = trace.scan(i.gamma * trace.going_on(i.lam_returns), delta)
    return trace.output(advantages), trace.output(other + i.values)


ESTIMATOR = Estimator("gae", ("advantages", "returns"), _compose, needs=("values", "gamma", "lam"))


def gae(
    rewards: Any,
    values: Any,
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
    lam_returns: Any = None,
    out: tuple[Any, Any] | None = None,
    out_dtype: Any = None,
    backend: str = "auto",
    chunk_size: int | None = None,
    check: Check = "auto",
    differentiable: bool = False,
) -> GAE:
    r"""Generalized advantage estimation.

    ::

        δₜ = rₜ + γ nₜ - Vₜ
        Aₜ = δₜ + γ λ kₜ Aₜ₊₁
        Rₜ = Aₜ + Vₜ

    where nₜ is the value of the state that step t leads to, and kₜ is 1 where the trace goes on to
    step t + 1 and 0 where it ends:

    ================================  ==========================================  ==
    step t                            nₜ                                          kₜ
    ================================  ==========================================  ==
    terminated (whatever truncated)   0                                           0
    truncated                         ``truncation_values[t]``, or ``next_values[t]``   0
    last of its row                   the bootstrap, or 0                         0
    any other                         Vₜ₊₁, or ``next_values[t]``                 1
    ================================  ==========================================  ==

    **Masks.** A masked step is a hole that the recurrence steps over: γ and λ apply once per valid
    step, and nₜ is the value of the next *valid* step.  A flag on a masked step acts on the last
    valid step before it; of several, the first one does.  ``truncation_values`` is read where that
    flag stands, ``next_values`` at the valid step.  Rewards on masked steps are **dropped**, unless
    ``masked_reward`` says otherwise.  Whatever stands behind a cut or in a hole, NaN included, is
    selected away.

    **Gradients** do not flow, unless ``differentiable``: the results are detached.

    Args:
        rewards: rₜ, of any rank ≥ 1, with time along ``axis``.
        values: Vₜ, shaped like ``rewards``; or one step longer, and then the last one is the
            bootstrap (with ``lengths``: the one at index ``lengths``).
        gamma: The discount γ: a number, or an array that broadcasts to ``rewards`` (``[B, 1]``
            for one per row, ``[T]`` for one per step).
        lam: The trace decay λ, likewise.
        next_values: The value of the state that each step leads to, shaped like ``rewards``, for
            values that were computed separately.
        last_values: The value of the state after the last step of each row, shaped like
            ``rewards`` without ``axis`` (with ``cu_seqlens``: segments first).  At most one of
            longer ``values``, ``next_values`` and ``last_values``; with none of them it is 0.
        truncation_values: The values of the final observations, shaped like ``rewards``; read only
            where ``truncated``.
        on_missing_bootstrap: What a truncated step bootstraps from when its final observation's
            value is not at hand: ``"zero"`` treats truncation as termination, ``"current_value"``
            takes Vₜ.  Both are biased, so neither is a default.
        terminated: Whether step t ended in a terminal state: Gymnasium's own flag, unshifted.  Like
            ``truncated`` and ``mask``, it has the time axis of ``rewards`` and may broadcast along
            the others.
        truncated: Whether step t was the last before a time limit: Gymnasium's own flag, unshifted.
            Needs ``truncation_values``, ``next_values`` or ``on_missing_bootstrap``.
        mask: True at valid steps.
        lengths: The number of steps in each row, shaped like ``rewards`` without ``axis``; what
            follows is padding.
        cu_seqlens: Offsets of sequences packed along ``axis``, instead of ``lengths``.
        axis: The time axis of ``rewards``.
        masked: What the results are at masked steps: ``"zero"``, or ``"carry"``: the advantage that
            passes by, and that plus the value.
        masked_reward: ``"drop"``; ``"raise"`` a ValueError for one that is not 0; or
            ``"to_previous_valid"`` adds it to the last valid step before it in its episode (one
            with no such step is dropped).
        lam_returns: A second λ, for the returns alone (VAPO, arXiv 2504.05118).
        out: Two arrays to write the results into; they may share no memory with an input.
        out_dtype: The dtype of the results; by default that of rewards and all values together.
        backend: ``"auto"``, or the name of one in :func:`linscan.backends`.
        chunk_size: As in :func:`linscan.scan`.
        check: ``"auto"`` also checks the data of CPU arrays (flags and masks hold 0 and 1, offsets
            and lengths are in range); ``"full"`` checks on every device, and refuses NaN at valid
            steps and rewards other than 0 at masked ones; ``"off"`` leaves data alone.
        differentiable: Let gradients flow into every input that requires them, ``gamma`` and
            ``lam`` too; torch tensors only.  Then the work is done in several passes, whose
            intermediate results are kept for the backward pass.

    Returns:
        ``GAE(advantages, returns)``: fresh, shaped like ``rewards``; integers become the default
        float, and 16-bit types are computed in float32 and rounded once.

    Raises:
        TypeError: Arrays of several libraries or devices, or of an unsupported dtype.
        ValueError: Shapes that do not fit, arguments that exclude each other, data that a check
            refuses, an unknown backend.
        BackendUnavailable: The backend named cannot run on this machine.
        BackendUnsupported: The backend named cannot do this.

    Source:
        Schulman et al., "High-dimensional continuous control using generalized advantage
        estimation" (2016), arXiv 1506.02438, equations 11 to 16.

    >>> advantages, returns = linscan.gae(
    ...     np.array([1.0, 1.0]), np.array([1.0, 2.0]), gamma=1.0, lam=1.0, last_values=10.0
    ... )
    >>> advantages, returns
    (array([11.,  9.]), array([12., 11.]))
    """
    call = Call(
        ESTIMATOR,
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
        lam_returns,
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
    return GAE(*estimate(call))
