"""In the manner of rlax, on NumPy arrays and torch tensors; acme and Stoix follow it.

Time is the last axis: ``[T]`` as in rlax, and ``[..., T]`` instead of its ``vmap``.
``discount_t`` is γ, and 0 where the step ended an episode.  ``stop_target_gradients`` means what it
does there, for tensors that require gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import linscan
from linscan import _arrays
from linscan.compat._gradients import wants_gradients


class VTraceOutput(NamedTuple):
    """What :func:`vtrace_td_error_and_advantage` returns."""

    errors: Any
    """Targets minus values."""
    pg_advantage: Any
    """What the gradient of log π is weighed by."""
    q_estimate: Any
    """The action values behind it."""


def lambda_returns(
    r_t: Any,
    discount_t: Any,
    v_t: Any,
    lambda_: Any = 1.0,
    stop_target_gradients: bool = False,
) -> Any:
    """λ-returns; ``v_t`` are the values of the states that the steps lead to."""
    return linscan.td_lambda(
        r_t,
        gamma=discount_t,
        lam=lambda_,
        next_values=v_t,
        differentiable=not stop_target_gradients and wants_gradients(r_t, discount_t, v_t, lambda_),
    )


def discounted_returns(
    r_t: Any, discount_t: Any, v_t: Any, stop_target_gradients: bool = False
) -> Any:
    """Discounted returns; the last of ``v_t``, or the number ``v_t``, is the bootstrap."""
    is_sequence = getattr(v_t, "ndim", 0) > 0
    return linscan.discounted_returns(
        r_t,
        gamma=discount_t,
        last_values=v_t[..., -1] if is_sequence else v_t,
        differentiable=not stop_target_gradients and wants_gradients(r_t, discount_t, v_t),
    )


def truncated_generalized_advantage_estimation(
    r_t: Any,
    discount_t: Any,
    lambda_: Any,
    values: Any,
    stop_target_gradients: bool = False,
) -> Any:
    """GAE advantages; ``values`` has one step more than the others.

    A step that was truncated cannot be said in these terms: with a discount of 0 it counts as
    terminated, with any other the trace goes on into the next episode.
    """
    return linscan.gae(
        r_t,
        values,
        gamma=discount_t,
        lam=lambda_,
        differentiable=not stop_target_gradients
        and wants_gradients(r_t, discount_t, lambda_, values),
    ).advantages


def vtrace(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    lambda_: Any = 1.0,
    clip_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> Any:
    """V-trace errors, targets minus ``v_tm1``; a step without ``sample_mask`` passes them by."""
    return leaky_vtrace(
        v_tm1,
        v_t,
        r_t,
        discount_t,
        rho_tm1,
        1.0,
        lambda_,
        clip_rho_threshold,
        stop_target_gradients,
        sample_mask,
    )


def leaky_vtrace(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    alpha_: float = 1.0,
    lambda_: Any = 1.0,
    clip_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> Any:
    """Errors of leaky V-trace, which mixes clipped and plain ρ: ``alpha_`` is the clipped share."""
    operands = v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_
    is_tracked = wants_gradients(*operands)
    xp = _arrays.namespace(rho_tm1)
    with _arrays.quiet(rho_tm1):
        log_rhos = xp.log(rho_tm1)
    result = linscan.vtrace(
        log_rhos,
        r_t,
        v_tm1,
        gamma=discount_t,
        lam=lambda_,
        rho_clip=clip_rho_threshold,
        leak=1.0 - alpha_,
        next_values=v_t,
        mask=sample_mask,
        masked="carry",
        differentiable=not stop_target_gradients and is_tracked,
    )
    return result.vs - v_tm1 if stop_target_gradients and is_tracked else result.errors


def vtrace_td_error_and_advantage(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    lambda_: Any = 1.0,
    clip_rho_threshold: float = 1.0,
    clip_pg_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> VTraceOutput:
    """V-trace errors, advantages and action values."""
    errors = vtrace(
        v_tm1,
        v_t,
        r_t,
        discount_t,
        rho_tm1,
        lambda_,
        clip_rho_threshold,
        stop_target_gradients,
        sample_mask,
    )
    xp = _arrays.namespace(r_t)
    lam = lambda_ if getattr(lambda_, "shape", ())[-1:] != r_t.shape[-1:] else lambda_[..., :-1]
    after = v_tm1[..., 1:] + lam * errors[..., 1:]
    q_estimate = r_t + discount_t * xp.concat([after, v_t[..., -1:]], axis=-1)
    advantages = xp.clip(rho_tm1, max=clip_pg_rho_threshold) * (q_estimate - v_tm1)
    return VTraceOutput(errors, advantages, q_estimate)
