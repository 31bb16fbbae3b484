"""For torchrl: ``torchrl.objectives.value.functional``.

Its modules import the functions by name::

    from torchrl.objectives.value import advantages
    advantages.vec_generalized_advantage_estimate = (
        linscan.compat.torchrl.vec_generalized_advantage_estimate
    )

All tensors are ``[*batch, time, *features]``; ``time_dim`` says where time is instead.  ``done``
cuts the trace, ``terminated`` the bootstrap too; without ``terminated``, it is ``done``.  γ and λ
are numbers or tensors that broadcast to the others.  Gradients flow, as in the originals, wherever
an input requires them.

Differs: the originals called ``vec_`` raise for γλ = 0 or below 1e-7, for T = 0, and for λ as a
tensor in TD(λ); drop weights below 1e-7; and need O(T²) memory for γ as a tensor.  All of them
round γ and λ to float32, in float64 too.  A step that is ``terminated`` is taken to be ``done``.
"""

from __future__ import annotations

from typing import Any

import torch

import linscan
from linscan.compat._gradients import wants_gradients


def generalized_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    *,
    time_dim: int = -2,
) -> tuple[Any, Any]:
    """GAE: ``(advantage, value_target)``, in the dtype of ``next_state_value``."""
    return linscan.gae(
        reward,
        state_value,
        gamma=gamma,
        lam=lmbda,
        next_values=next_state_value,
        axis=time_dim,
        out_dtype=_of(next_state_value),
        differentiable=wants_gradients(gamma, lmbda, state_value, next_state_value, reward),
        **_ends(done, terminated),
    )


def vec_generalized_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    *,
    time_dim: int = -2,
) -> tuple[Any, Any]:
    """GAE: ``(advantage, value_target)``, in the dtype that the inputs promote to."""
    return linscan.gae(
        reward,
        state_value,
        gamma=gamma,
        lam=lmbda,
        next_values=next_state_value,
        axis=time_dim,
        differentiable=wants_gradients(gamma, lmbda, state_value, next_state_value, reward),
        **_ends(done, terminated),
    )


def td_lambda_return_estimate(
    gamma: Any,
    lmbda: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    rolling_gamma: bool | None = None,
    *,
    time_dim: int = -2,
) -> Any:
    """λ-returns, in the dtype of ``next_state_value``.

    With ``rolling_gamma=False`` the return of step t takes γ and λ of that step at all later ones,
    too; then time and memory grow with T², here as in the original.
    """
    if rolling_gamma is False:
        return _td_lambda_of_own_gamma(
            gamma, lmbda, next_state_value, reward, done, terminated, time_dim
        )
    return linscan.td_lambda(
        reward,
        gamma=gamma,
        lam=lmbda,
        next_values=next_state_value,
        axis=time_dim,
        out_dtype=_of(next_state_value),
        differentiable=wants_gradients(gamma, lmbda, next_state_value, reward),
        **_ends(done, terminated),
    )


def vec_td_lambda_return_estimate(
    gamma: Any,
    lmbda: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    rolling_gamma: bool | None = None,
    *,
    time_dim: int = -2,
) -> Any:
    """λ-returns, as :func:`td_lambda_return_estimate` has them; ``rolling_gamma=False`` too."""
    return td_lambda_return_estimate(
        gamma,
        lmbda,
        next_state_value,
        reward,
        done,
        terminated,
        rolling_gamma,
        time_dim=time_dim,
    )


def td_lambda_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> Any:
    """λ-returns minus ``state_value``.

    This is GAE only where ``next_state_value`` is the next step's ``state_value``.
    """
    returns = td_lambda_return_estimate(
        gamma,
        lmbda,
        next_state_value,
        reward,
        done,
        terminated,
        rolling_gamma,
        time_dim=time_dim,
    )
    return returns - state_value


def vec_td_lambda_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> Any:
    """The same."""
    return td_lambda_advantage_estimate(
        gamma,
        lmbda,
        state_value,
        next_state_value,
        reward,
        done,
        terminated,
        rolling_gamma,
        time_dim,
    )


def vtrace_advantage_estimate(
    gamma: Any,
    log_pi: Any,
    log_mu: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    rho_thresh: Any = 1.0,
    c_thresh: Any = 1.0,
    time_dim: int = -2,
) -> tuple[Any, Any]:
    """V-trace: ``(advantages, vs)``; ``rho_thresh`` clips the ρ of both."""
    result = linscan.vtrace(
        log_pi - log_mu,
        reward,
        state_value,
        gamma=gamma,
        rho_clip=rho_thresh,
        c_clip=c_thresh,
        pg_rho_clip=rho_thresh,
        next_values=next_state_value,
        axis=time_dim,
        differentiable=wants_gradients(
            gamma, log_pi, log_mu, state_value, next_state_value, reward
        ),
        **_ends(done, terminated),
    )
    return result.pg_advantages, result.vs


def reward2go(reward: Any, done: Any, gamma: Any, *, time_dim: int = -2) -> Any:
    """Discounted returns; 0 follows every ``done`` step and the last one."""
    return linscan.discounted_returns(
        reward,
        gamma=gamma,
        terminated=done,
        axis=time_dim,
        differentiable=wants_gradients(reward, gamma),
    )


def _ends(done: Any, terminated: Any) -> dict[str, Any]:
    if terminated is None or terminated is done:
        return {"terminated": done}
    return {"terminated": terminated, "truncated": done}


def _of(x: Any) -> Any:
    """The dtype of ``x``; of integers, None: they are promoted."""
    return x.dtype if x.is_floating_point() else None


def _td_lambda_of_own_gamma(
    gamma: Any,
    lmbda: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any,
    time_dim: int,
) -> Any:
    """The diagonal of T scans, each with the γ and λ of one step."""
    shape, axis = reward.shape, time_dim % reward.ndim
    if not any(isinstance(x, torch.Tensor) and x.shape == shape for x in (gamma, lmbda)):
        raise ValueError(
            "rolling_gamma=False needs gamma or lmbda of one number per step: a tensor of shape "
            f"{tuple(shape)}"
        )

    def own(x: Any) -> Any:
        return x.expand(shape).unsqueeze(axis + 1) if isinstance(x, torch.Tensor) else x

    def each(x: Any) -> Any:
        later = (*shape[: axis + 1], *shape[axis:])
        return None if x is None else x.unsqueeze(axis).expand(later)

    returns = td_lambda_return_estimate(
        own(gamma),
        own(lmbda),
        each(next_state_value),
        each(reward),
        each(done),
        each(terminated),
        time_dim=axis + 1,
    )
    return returns.diagonal(dim1=axis, dim2=axis + 1).movedim(-1, axis).contiguous()
