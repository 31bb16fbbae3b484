"""The definition: every scheme and every estimator in float64 NumPy, written to be read.

A first-order linear recurrence is

    x[t] = a[t]·x[t-1] + b[t],        t = 0, …, T-1

with ``x[-1]`` the initial state, or zero.  It is solved three ways below: one step after the other
(:func:`serial`), as one product with a triangular matrix (:func:`matrix`), and in chunks that are
scanned side by side (:func:`chunk`).  All three return ``(x, final)``, where ``final`` is the state
after the last step.  With ``reverse`` the recurrence runs from the end, and "before" and "after"
trade places: ``x[t] = a[t]·x[t+1] + b[t]``.

Where ``reset`` is true, ``x[t] = b[t]``: the past is *selected away*, not multiplied by zero, so
that a NaN or an infinity does not cross.  Having no initial state is the same thing: the first
step is a reset, and its multiplier is never read.

The estimators after them, from :func:`gae` to :func:`turn_gae`, are loops from the end over
transitions, as the textbooks write them; :func:`eligibility_traces` alone runs forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

__all__ = [
    "GAE",
    "UPGO",
    "VTrace",
    "chunk",
    "discounted_returns",
    "eligibility_traces",
    "gae",
    "matrix",
    "n_step_returns",
    "q_lambda",
    "retrace",
    "serial",
    "td_lambda",
    "turn_gae",
    "upgo",
    "vtrace",
]


def serial(
    a: ArrayLike,
    b: ArrayLike,
    initial: ArrayLike | None = None,
    *,
    axis: int = -1,
    reverse: bool = False,
    reset: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """The recurrence itself, one step after the other.

        x[t] = a[t]·x[t-1] + b[t]

    Exact but for rounding; O(T) steps, each waiting for the one before.

    >>> x, final = serial(0.5, [1.0, 1.0, 1.0])
    >>> x
    array([1.  , 1.5 , 1.75])
    >>> serial(0.5, [1.0, 1.0, 1.0], initial=8.0, reverse=True)[0]
    array([2.75, 3.5 , 5.  ])
    """
    a, b, state, cut = _in_order(a, b, initial, axis, reverse, reset)
    x = np.empty_like(b)
    with np.errstate(all="ignore"):
        for t in range(len(b)):
            state = x[t] = np.where(cut[t], b[t], a[t] * state + b[t])
    return _as_given(x, axis, reverse), state


def matrix(
    a: ArrayLike,
    b: ArrayLike,
    initial: ArrayLike | None = None,
    *,
    axis: int = -1,
    reverse: bool = False,
    reset: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """The recurrence unrolled: a sum over the past, that is, one triangular matrix.

        x[t] = Σ_{k≤t} W[t,k]·b[k],        W[t,k] = Π_{k<j≤t} a[j]

    For constant a, ``W[t,k] = a^(t-k)``.  No step waits for another, but time and memory are O(T²).
    The initial state is the term k = -1.  A term from before a reset is left out of the sum.

    >>> matrix(0.5, [1.0, 1.0, 1.0])[0]
    array([1.  , 1.5 , 1.75])
    """
    a, b, state, cut = _in_order(a, b, initial, axis, reverse, reset)
    terms = np.concatenate([state[np.newaxis], b])
    weights, reached = np.ones_like(terms), np.ones(terms.shape, bool)
    x = np.empty_like(b)
    with np.errstate(all="ignore"):
        for t in range(len(b)):
            weights[: t + 1] *= a[t]
            reached[: t + 1] &= ~cut[t]
            x[t] = np.where(reached, weights * terms, 0)[: t + 2].sum(axis=0)
    return _as_given(x, axis, reverse), x[-1] if len(x) else state


def chunk(
    a: ArrayLike,
    b: ArrayLike,
    initial: ArrayLike | None = None,
    *,
    axis: int = -1,
    reverse: bool = False,
    reset: ArrayLike | None = None,
    chunk_size: int = 64,
) -> tuple[Array, Array]:
    """The recurrence in chunks of C steps, scanned side by side, then joined one by one.

    Each chunk first runs from a zero state, keeping the product of its multipliers so far:

        s[t] = a[t]·s[t-1] + b[t],        p[t] = a[t]·p[t-1],        t = 0, …, C-1

    Then every chunk receives the last state X of the one before it:

        S[t] = s[t] + p[t]·X,        X = S[C-1]

    For constant a, ``p[t] = a^(t+1)``.  O(C + T/C) steps wait for one another, instead of O(T).
    T is made a multiple of C by steps that change nothing: a = 1, b = 0.

    >>> chunk(0.5, [1.0, 1.0, 1.0], chunk_size=2)[0]
    array([1.  , 1.5 , 1.75])
    """
    a, b, state, cut = _in_order(a, b, initial, axis, reverse, reset)
    time, missing = len(b), -len(b) % chunk_size

    def chunks(x: Array, fill: float) -> Array:
        padding = np.full((missing, *x.shape[1:]), fill, x.dtype)
        return np.concatenate([x, padding]).reshape(-1, chunk_size, *x.shape[1:]).swapaxes(0, 1)

    a, b, cut = chunks(a, 1), chunks(b, 0), chunks(cut, False)
    s, p, apart = np.empty_like(b), np.empty_like(a), np.empty_like(cut)
    with np.errstate(all="ignore"):
        for t in range(chunk_size):
            s[t] = b[t] if t == 0 else np.where(cut[t], b[t], a[t] * s[t - 1] + b[t])
            p[t] = a[t] if t == 0 else a[t] * p[t - 1]
            apart[t] = cut[t] if t == 0 else cut[t] | apart[t - 1]
        for n in range(s.shape[1]):
            s[:, n] = np.where(apart[:, n], s[:, n], s[:, n] + p[:, n] * state)
            state = s[-1, n]
    x = s.swapaxes(0, 1).reshape(-1, *state.shape)[:time]
    return _as_given(x, axis, reverse), state


def _in_order(
    a: ArrayLike,
    b: ArrayLike,
    initial: ArrayLike | None,
    axis: int,
    reverse: bool,
    reset: ArrayLike | None,
) -> tuple[Array, Array, Array, Array]:
    """``(a, b, state, cut)`` in float64, time first and in the order of the recurrence."""
    given = [np.asarray(x) for x in (a, b, initial) if x is not None]
    dtype = np.result_type(np.float64, *given)
    shape = np.broadcast_shapes(np.shape(a), np.shape(b))

    def steps(x: ArrayLike, dtype: Any) -> Array:
        x = np.moveaxis(np.broadcast_to(np.asarray(x, dtype), shape), axis, 0)
        return x[::-1] if reverse else x

    cut = steps(False if reset is None else reset, bool).copy()
    cut[:1] |= initial is None
    a, b = steps(a, dtype), steps(b, dtype)
    state = np.zeros(b.shape[1:], dtype)
    if initial is not None:
        state += np.asarray(initial)
    return a, b, state, cut


def _as_given(x: Array, axis: int, reverse: bool) -> Array:
    return np.moveaxis(x[::-1] if reverse else x, 0, axis)


class GAE(NamedTuple):
    """What :func:`gae` returns."""

    advantages: Array
    returns: Array


class Ends(TypedDict, total=False):
    """Where episodes end, and which steps count: every estimator takes these by keyword.

    Flags are transition flags, unshifted: step t ended there.
    """

    terminated: ArrayLike | None
    truncated: ArrayLike | None
    mask: ArrayLike | None
    """False at steps to be stepped over, wherever they are."""
    lengths: ArrayLike | None
    """How many steps of each row are valid; shape without the time axis."""
    cu_seqlens: ArrayLike | None
    """Offsets of sequences packed one after another along time."""


class Episodes(Ends, total=False):
    """And what the steps lead to, unless the estimator is given that anyway.

    At most one of ``next_values``, ``last_values`` and values of length T + 1 says so.
    """

    next_values: ArrayLike | None
    """The value of the state that each step led to."""
    last_values: ArrayLike | None
    """The value after the last step: without the time axis; packed: segments first."""
    truncation_values: ArrayLike | None
    """Read where truncated: the value of the final observation."""
    on_missing_bootstrap: Literal["zero", "current_value"] | None
    """What stands for ``truncation_values`` that nobody has."""


class Transition(NamedTuple):
    """Step t, as the estimators see it on their way from the end."""

    t: int
    n: Array
    """The value of what follows."""
    k: Array
    """Whether the trace goes on to a later step."""
    end: Array
    """Whether an episode ends right after step t: nothing of what follows may pass."""
    valid: Array
    """False at a hole, which changes nothing."""


def gae(
    rewards: ArrayLike,
    values: ArrayLike,
    *,
    gamma: ArrayLike,
    lam: ArrayLike,
    lam_returns: ArrayLike | None = None,
    masked: Literal["zero", "carry"] = "zero",
    axis: int = -1,
    **episodes: Unpack[Episodes],
) -> GAE:
    """Generalized advantage estimation, and the returns that are the critic's target.

        δ[t] = r[t] + γ·n[t] - V[t]
        A[t] = δ[t] + γλ·k[t]·A[t+1]
        R[t] = A[t] + V[t]

    n is the value of what follows step t, and k is 1 where the trace goes on, else 0.  With
    ``lam_returns`` the A of the returns has that λ instead.

    >>> gae([1.0, 1.0], [1.0, 2.0], gamma=1.0, lam=1.0, last_values=10.0).advantages
    array([11.,  9.])
    """
    r, v = _steps(rewards, axis), _steps(values, axis)
    γ, λ = _like(gamma, rewards, axis), _like(lam, rewards, axis)
    μ = λ if lam_returns is None else _like(lam_returns, rewards, axis)
    advantages, returns = np.empty_like(r), np.empty_like(r)
    A = B = np.zeros(r.shape[1:])
    with np.errstate(all="ignore"):
        for t, n, k, end, valid in _backwards(r, v, axis, **episodes):
            A, B = np.where(end, 0, A), np.where(end, 0, B)
            δ = r[t] + γ[t] * n - v[t]
            A = np.where(valid, δ + np.where(k, γ[t] * λ[t] * A, 0), A)
            B = np.where(valid, δ + np.where(k, γ[t] * μ[t] * B, 0), B)
            shown = valid | (masked == "carry")
            advantages[t] = np.where(shown, A, 0)
            returns[t] = np.where(shown, B + v[t], 0)
    return GAE(np.moveaxis(advantages, 0, axis), np.moveaxis(returns, 0, axis))


def discounted_returns(
    rewards: ArrayLike,
    *,
    gamma: ArrayLike,
    masked: Literal["zero", "carry"] = "zero",
    axis: int = -1,
    **episodes: Unpack[Episodes],
) -> Array:
    """The discounted sum of the rewards to come.

        G[t] = r[t] + γ·G[t+1]     where the trace goes on
               r[t] + γ·n[t]       at its end

    n is zero where terminated or where nothing was given.

    >>> discounted_returns([1.0, 1.0, 1.0], gamma=0.5)
    array([1.75, 1.5 , 1.  ])
    """
    r = _steps(rewards, axis)
    γ = _like(gamma, rewards, axis)
    returns = np.empty_like(r)
    G = np.zeros(r.shape[1:])
    with np.errstate(all="ignore"):
        for t, n, k, end, valid in _backwards(r, None, axis, **episodes):
            G = np.where(end, 0, G)
            G = np.where(valid, r[t] + γ[t] * np.where(k, G, n), G)
            returns[t] = np.where(valid | (masked == "carry"), G, 0)
    return np.moveaxis(returns, 0, axis)


def td_lambda(
    rewards: ArrayLike,
    values: ArrayLike | None = None,
    *,
    gamma: ArrayLike,
    lam: ArrayLike,
    masked: Literal["zero", "carry"] = "zero",
    axis: int = -1,
    **episodes: Unpack[Episodes],
) -> Array:
    """The λ-return, the target of TD(λ).

        G[t] = r[t] + γ·((1 - λ)·n[t] + λ·G[t+1])     where the trace goes on
               r[t] + γ·n[t]                          at its end

    ``values`` may be left out when ``next_values`` is given.

    >>> td_lambda([0.0, 0.0], [0.0, 4.0], gamma=1.0, lam=0.5, last_values=8.0)
    array([6., 8.])
    """
    r = _steps(rewards, axis)
    v = None if values is None else _steps(values, axis)
    γ, λ = _like(gamma, rewards, axis), _like(lam, rewards, axis)
    returns = np.empty_like(r)
    G = np.zeros(r.shape[1:])
    with np.errstate(all="ignore"):
        for t, n, k, end, valid in _backwards(r, v, axis, **episodes):
            G = np.where(end, 0, G)
            target = r[t] + γ[t] * np.where(k, (1 - λ[t]) * n + λ[t] * G, n)
            G = np.where(valid, target, G)
            returns[t] = np.where(valid | (masked == "carry"), G, 0)
    return np.moveaxis(returns, 0, axis)


class VTrace(NamedTuple):
    """What :func:`vtrace` returns."""

    vs: Array
    pg_advantages: Array
    errors: Array


def vtrace(
    log_rhos: ArrayLike,
    rewards: ArrayLike,
    values: ArrayLike,
    *,
    gamma: ArrayLike,
    lam: ArrayLike = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    pg_rho_clip: float = 1.0,
    leak: float = 0.0,
    masked: Literal["zero", "carry"] = "zero",
    axis: int = -1,
    **episodes: Unpack[Episodes],
) -> VTrace:
    """V-trace: values, and advantages for the policy gradient, from another policy's data.

        x[t]  = ρ̄[t]·(r[t] + γ·n[t] - V[t]) + γ·c[t]·x[t+1]
        vs[t] = V[t] + x[t]
        g[t]  = min(pg_rho_clip, ρ[t])·(r[t] + γ·w[t] - V[t])

    with ``ρ̄ = min(rho_clip, ρ)`` and ``c = λ·min(c_clip, ρ)``, in both of which a share ``leak`` of
    the minimum is ρ itself; w is ``λ·vs[t+1] + (1 - λ)·V[t+1]`` where the trace goes on, else n.

    >>> vtrace(np.log([0.5, 2.0]), [1.0, 1.0], [0.0, 4.0], gamma=1.0, last_values=6.0).vs
    array([4., 7.])
    """
    r, v = _steps(rewards, axis), _steps(values, axis)
    γ, λ = _like(gamma, rewards, axis), _like(lam, rewards, axis)
    vs, g, errors = np.empty_like(r), np.empty_like(r), np.empty_like(r)
    X = V = np.zeros(r.shape[1:])
    with np.errstate(all="ignore"):
        ρ = np.exp(_like(log_rhos, rewards, axis))
        for t, n, k, end, valid in _backwards(r, v, axis, **episodes):
            ρ_bar = leak * ρ[t] + (1 - leak) * np.minimum(rho_clip, ρ[t])
            c = λ[t] * (leak * ρ[t] + (1 - leak) * np.minimum(c_clip, ρ[t]))
            w = np.where(k, λ[t] * (V + X) + (1 - λ[t]) * V, n)
            advantage = np.minimum(pg_rho_clip, ρ[t]) * (r[t] + γ[t] * w - v[t])
            g[t] = np.where(valid, advantage, 0)
            X = np.where(end, 0, X)
            X = np.where(valid, ρ_bar * (r[t] + γ[t] * n - v[t]) + np.where(k, γ[t] * c * X, 0), X)
            V = np.where(valid, v[t], V)
            errors[t] = np.where(valid | (masked == "carry"), X, 0)
            vs[t] = np.where(valid | (masked == "carry"), v[t] + X, 0)
    return VTrace(*(np.moveaxis(x, 0, axis) for x in (vs, g, errors)))


def retrace(
    rewards: ArrayLike,
    q_values: ArrayLike,
    expected_next_q: ArrayLike,
    log_rhos: ArrayLike | None = None,
    *,
    gamma: ArrayLike,
    lam: ArrayLike = 1.0,
    kind: Literal["retrace", "importance", "tree-backup", "harutyunyan"] = "retrace",
    log_pi: ArrayLike | None = None,
    masked: Literal["zero", "carry"] = "zero",
    axis: int = -1,
    **ends: Unpack[Ends],
) -> Array:
    """Retrace(λ) and its relatives: targets for the values of actions that were taken.

        G[t] = r[t] + γ·(E[t] + c[t+1]·(G[t+1] - Q[t+1]))

    E is the expectation of Q under the target policy after step t, and 0 where terminated; the
    trace c is λ times min(1, ρ), ρ, π or 1, in the order of the kinds.

    >>> retrace([1.0, 1.0], [0.0, 2.0], [2.0, 4.0], np.log([9.0, 0.5]), gamma=1.0)
    array([4.5, 5. ])
    """
    r, q = _steps(rewards, axis), _steps(q_values, axis)
    γ, λ = _like(gamma, rewards, axis), _like(lam, rewards, axis)
    targets = np.empty_like(r)
    G_less_Q = c_next = np.zeros(r.shape[1:])
    with np.errstate(all="ignore"):
        log_c = {"tree-backup": log_pi, "harutyunyan": 0.0}.get(kind, log_rhos)
        c = np.exp(_like(0.0 if log_c is None else log_c, rewards, axis))
        c = np.minimum(1, c) if kind == "retrace" else c
        for t, n, k, end, valid in _backwards(r, q, axis, expected_next_q, **ends):
            G = r[t] + γ[t] * (n + np.where(k, λ[t] * c_next * G_less_Q, 0))
            G_less_Q = np.where(valid, G - q[t], np.where(end, 0, G_less_Q))
            c_next = np.where(valid, c[t], c_next)
            targets[t] = np.where(valid | (masked == "carry"), G_less_Q + q[t], 0)
    return np.moveaxis(targets, 0, axis)


def q_lambda(
    rewards: ArrayLike,
    next_q_max: ArrayLike,
    *,
    kind: Literal["peng", "watkins"] = "peng",
    greedy_next: ArrayLike | None = None,
    gamma: ArrayLike,
    lam: ArrayLike,
    masked: Literal["zero", "carry"] = "zero",
    axis: int = -1,
    **ends: Unpack[Ends],
) -> Array:
    """Q(λ): the λ-return of the greedy policy's values.

        G[t] = r[t] + γ·((1 - λ)·m[t] + λ·G[t+1])     where the trace goes on
               r[t] + γ·m[t]                          at its end

    m is the maximum of Q after step t, and 0 where terminated.  Watkins ends the trace, too, where
    the next action is not the greedy one; Peng does not.

    >>> q_lambda([1.0, 1.0], [4.0, 8.0], gamma=1.0, lam=0.5)
    array([7.5, 9. ])
    """
    r = _steps(rewards, axis)
    γ, λ = _like(gamma, rewards, axis), _like(lam, rewards, axis)
    greedy = _like(
        greedy_next if kind == "watkins" and greedy_next is not None else 1, rewards, axis
    )
    targets = np.empty_like(r)
    G = np.zeros(r.shape[1:])
    with np.errstate(all="ignore"):
        for t, n, k, end, valid in _backwards(r, None, axis, next_q_max, **ends):
            G = np.where(end, 0, G)
            mixture = np.where(k & (greedy[t] != 0), (1 - λ[t]) * n + λ[t] * G, n)
            G = np.where(valid, r[t] + γ[t] * mixture, G)
            targets[t] = np.where(valid | (masked == "carry"), G, 0)
    return np.moveaxis(targets, 0, axis)


class UPGO(NamedTuple):
    """What :func:`upgo` returns."""

    advantages: Array
    returns: Array


def upgo(
    rewards: ArrayLike,
    values: ArrayLike,
    *,
    gamma: ArrayLike = 1.0,
    rhos: ArrayLike | None = None,
    masked: Literal["zero", "carry"] = "zero",
    axis: int = -1,
    **episodes: Unpack[Episodes],
) -> UPGO:
    """Upgoing policy updates: the return follows the trace for as long as it does better.

        G[t] = r[t] + γ·G[t+1]     where the trace goes on and r[t+1] + γ·n[t+1] >= V[t+1]
               r[t] + γ·n[t]       elsewhere
        A[t] = ρ[t]·(G[t] - V[t])

    >>> upgo([1.0, 0.0, 4.0], [0.0, 3.0, 2.0]).returns
    array([4., 4., 4.])
    """
    r, v = _steps(rewards, axis), _steps(values, axis)
    γ, ρ = _like(gamma, rewards, axis), _like(1.0 if rhos is None else rhos, rewards, axis)
    advantages, returns = np.empty_like(r), np.empty_like(r)
    G, better = np.zeros(r.shape[1:]), np.zeros(r.shape[1:], bool)
    with np.errstate(all="ignore"):
        for t, n, k, end, valid in _backwards(r, v, axis, **episodes):
            target = r[t] + γ[t] * n
            G = np.where(end, 0, G)
            G = np.where(valid, np.where(k & better, r[t] + γ[t] * G, target), G)
            better = np.where(valid, target >= v[t], better)
            advantages[t] = np.where(valid, ρ[t] * (G - v[t]), 0)
            returns[t] = np.where(valid | (masked == "carry"), G, 0)
    return UPGO(np.moveaxis(advantages, 0, axis), np.moveaxis(returns, 0, axis))


def n_step_returns(
    rewards: ArrayLike,
    next_values: ArrayLike,
    *,
    gamma: ArrayLike,
    n: int,
    axis: int = -1,
    **ends: Unpack[Ends],
) -> Array:
    """The sum of n discounted rewards, and the value of what follows them.

        G₁[t] = r[t] + γ·n[t]
        Gₘ[t] = r[t] + γ·Gₘ₋₁[t+1]     where the trace goes on, else G₁[t]

    >>> n_step_returns([1.0, 1.0, 1.0], [8.0, 8.0, 8.0], gamma=0.5, n=2)
    array([3.5, 3.5, 5. ])
    """
    r = _steps(rewards, axis)
    γ = _like(gamma, rewards, axis)
    returns = np.empty_like(r)
    G = [np.zeros(r.shape[1:])] * n
    with np.errstate(all="ignore"):
        for t, value, k, _, valid in _backwards(r, None, axis, next_values, **ends):
            one = r[t] + γ[t] * value
            more = [np.where(k, r[t] + γ[t] * x, one) for x in G[:-1]]
            G = [np.where(valid, new, old) for new, old in zip([one, *more], G, strict=True)]
            returns[t] = np.where(valid, G[-1], 0)
    return np.moveaxis(returns, 0, axis)


def eligibility_traces(
    x: ArrayLike,
    *,
    gamma: ArrayLike,
    lam: ArrayLike,
    terminated: ArrayLike | None = None,
    truncated: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    masked: Literal["zero", "carry"] = "zero",
    axis: int = -1,
) -> Array:
    """Accumulating traces, from the first step to the last.

        e[t] = x[t] + γ[t-1]·λ[t-1]·e[t-1]

    and ``e[t] = x[t]`` right after the end of an episode: γ[t-1] is the discount *into* step t.

    >>> eligibility_traces([1.0, 1.0, 1.0], gamma=[0.25, 1.0, 1.0], lam=0.5)
    array([1.    , 1.125 , 1.5625])
    """
    b = _steps(x, axis)
    decay = _like(gamma, x, axis) * _like(lam, x, axis)
    e, traces = np.zeros(b.shape[1:]), np.empty_like(b)
    steps = _backwards(
        b,
        None,
        axis,
        terminated=terminated,
        truncated=truncated,
        on_missing_bootstrap="zero",
        mask=mask,
        lengths=lengths,
        cu_seqlens=cu_seqlens,
    )
    with np.errstate(all="ignore"):
        for t, _, _, end, valid in reversed(list(steps)):
            e = np.where(valid, b[t] + e, e)
            traces[t] = np.where(valid | (masked == "carry"), e, 0)
            e = np.where(end, 0, np.where(valid, decay[t] * e, e))
    return np.moveaxis(traces, 0, axis)


def turn_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    turn_ids: ArrayLike,
    *,
    gamma: ArrayLike,
    lam: ArrayLike,
    gamma_turn: ArrayLike,
    lam_turn: ArrayLike,
    variant: Literal["end", "start", "turn", "token"] = "end",
    axis: int = -1,
    **episodes: Unpack[Episodes],
) -> GAE:
    """GAE over turns, and within each turn over its tokens.

    A turn is a run of valid steps with one id; H is the advantage of a turn.  ``end`` (e is the
    last token of a turn, e' that of the next one)::

        H[e] = r[e] + γ_turn·V[e'] - V[e] + γ_turn·λ_turn·H[e']
        A[e] = H[e]
        A[t] = r[t] + γ·V[t+1] - V[t] + γ·λ·A[t+1]                 elsewhere

    ``start`` (s is the first token of a turn, s' that of the next one, R the turn's rewards)::

        H[s] = R + γ_turn·V[s'] - V[s] + γ_turn·λ_turn·H[s']
        A[t] = r[t] + γ·V[t+1] - V[t] + γ·λ·H[t+1]                 at the last token of a turn
        A[t] = r[t] + γ·V[t+1] - V[t] + γ·λ·A[t+1]                 elsewhere

    ``turn`` gives H[s] to every token of its turn, and ``token`` knows no turns.  At the end of an
    episode the next value is the bootstrap and the next advantage 0.

    >>> rule = {"gamma": 1.0, "lam": 1.0, "gamma_turn": 0.5, "lam_turn": 1.0}
    >>> turn_gae([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [0, 0, 1], **rule).advantages
    array([ 1.,  0., -1.])
    """
    if variant == "token":
        return gae(rewards, values, gamma=gamma, lam=lam, axis=axis, **episodes)
    r, v = _steps(rewards, axis), _steps(values, axis)
    ids = np.broadcast_to(_steps(turn_ids, axis, r.ndim), r.shape)
    γ, λ, γ_turn, λ_turn = (_like(x, rewards, axis) for x in (gamma, lam, gamma_turn, lam_turn))
    advantages, valids, lasts = np.zeros_like(r), np.zeros(r.shape, bool), np.zeros(r.shape, bool)
    A = H = V = S = R = after = next_id = np.zeros(r.shape[1:])
    first = np.ones(r.shape[1:], bool)
    with np.errstate(all="ignore"):
        for t, n, k, _, valid in _backwards(r, v, axis, **episodes):
            last = ~k | (ids[t] != next_id)
            δ = r[t] + γ[t] * n - v[t]
            if variant == "end":  # V and H: value and advantage at the end of the turn to come
                turn = r[t] + γ_turn[t] * np.where(k, V, n) - v[t]
                turn = turn + np.where(k, γ_turn[t] * λ_turn[t] * H, 0)
                A = np.where(valid, np.where(last, turn, δ + γ[t] * λ[t] * A), A)
                V, H = (np.where(valid & last, new, old) for new, old in ((v[t], V), (turn, H)))
            else:  # S: the advantage of a turn that starts here; after and H: of the turn to come
                follower = np.where(last, np.where(k, S, 0), A)
                H = np.where(valid & last, np.where(k, S, 0), H)
                after = np.where(valid & last, n, after)
                R = np.where(valid, r[t] + np.where(last, 0, R), R)
                turn = R + γ_turn[t] * after - v[t] + γ_turn[t] * λ_turn[t] * H
                A, S = (
                    np.where(valid, new, old)
                    for new, old in ((δ + γ[t] * λ[t] * follower, A), (turn, S))
                )
            next_id = np.where(valid, ids[t], next_id)
            advantages[t] = S if variant == "turn" else A
            valids[t], lasts[t] = valid, last
        if variant == "turn":
            for t in range(len(r)):
                S = np.where(valids[t] & first, advantages[t], S)
                first = np.where(valids[t], lasts[t], first)
                advantages[t] = S
        advantages = np.where(valids, advantages, 0)
        returns = np.where(valids, advantages + v[: len(r)], 0)
    return GAE(np.moveaxis(advantages, 0, axis), np.moveaxis(returns, 0, axis))


def _backwards(
    r: Array,
    v: Array | None,
    axis: int,
    next_values: ArrayLike | None = None,
    last_values: ArrayLike | None = None,
    truncation_values: ArrayLike | None = None,
    on_missing_bootstrap: Literal["zero", "current_value"] | None = None,
    terminated: ArrayLike | None = None,
    truncated: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
) -> Iterator[Transition]:
    """The transitions, from the last step to the first; ``r`` and ``v`` have time first.

    Going back in time, ``following`` is the value of what comes next: that of the next *valid*
    step.  At the end of an episode, which may lie in a hole, it starts anew: from 0 where
    terminated, which wins over truncated, from ``truncation_values`` where truncated, and from
    ``last_values``, V[T] or 0 at the end of the data.
    """
    rows = r.shape[1:]

    def flags(x: ArrayLike | None, default: bool) -> Array:
        return np.broadcast_to(_steps(default if x is None else x, axis, r.ndim) != 0, r.shape)

    ends, cuts, valid = flags(terminated, False), flags(truncated, False), flags(mask, True)
    if lengths is not None:
        valid = valid & (np.arange(len(r)).reshape(-1, *(1 for _ in rows)) < np.asarray(lengths))

    offsets = [0, len(r)] if cu_seqlens is None else [int(i) for i in np.asarray(cu_seqlens)]
    after = np.zeros((len(offsets) - 1, *rows))
    if last_values is not None:
        after[:] = np.asarray(last_values, np.float64)
    elif v is not None and len(v) > len(r):
        index = len(r) if lengths is None else np.asarray(lengths)
        after[:] = np.take_along_axis(v, np.broadcast_to(index, (1, *rows)), axis=0)

    successors = None if next_values is None else _steps(next_values, axis)
    finals = np.zeros_like(r) if truncation_values is None else _steps(truncation_values, axis)
    if truncated is not None and (
        truncation_values is None and next_values is None and on_missing_bootstrap is None
    ):
        raise ValueError("truncated steps have no value: give truncation_values or next_values")

    for i in reversed(range(len(offsets) - 1)):
        following, followed = after[i], np.zeros(rows, bool)
        terminal, timeout = np.zeros(rows, bool), np.zeros(rows, bool)
        for t in reversed(range(offsets[i], offsets[i + 1])):
            end = ends[t] | cuts[t]
            terminal, timeout = np.where(end, ends[t], terminal), np.where(end, cuts[t], timeout)
            following = np.where(end, np.where(ends[t], 0, finals[t]), following)
            followed = followed & ~end

            n = following
            if successors is not None:
                n = np.where(terminal, 0, successors[t])
            elif truncation_values is None and on_missing_bootstrap == "current_value":
                n = np.where(timeout & ~terminal, 0 if v is None else v[t], following)
            end = end | (t == offsets[i + 1] - 1)
            yield Transition(t, n, followed, end, valid[t])

            following = following if v is None else np.where(valid[t], v[t], following)
            followed = followed | valid[t]
            terminal, timeout = terminal & ~valid[t], timeout & ~valid[t]


def _steps(x: ArrayLike, axis: int, rank: int = 0) -> Array:
    """``x`` with time first, numbers in float64, and sizes of 1 put before it up to ``rank``."""
    x = np.asarray(x, np.float64)
    return np.moveaxis(x.reshape((1,) * (rank - x.ndim) + x.shape), axis, 0)


def _like(x: ArrayLike, rewards: ArrayLike, axis: int) -> Array:
    return _steps(np.broadcast_to(np.asarray(x), np.shape(rewards)), axis)
