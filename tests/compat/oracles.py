"""What each framework computes, in NumPy float64: loops over time, written from its conventions.

Time is the axis that the framework has it on.  Nothing here comes from linscan.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray


def zero_after_the_end(rewards: Array, values: Array, gamma: float, lam: float):
    """slime, OpenRLHF, TRL: ``[B, T]``, no flags; the value after the last step is 0."""
    advantages = np.zeros_like(rewards)
    following = carry = np.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        carry = rewards[:, t] + gamma * following - values[:, t] + gamma * lam * carry
        following = values[:, t]
        advantages[:, t] = carry
    return advantages, advantages + values


def returns_to_go(rewards: Array, gamma: float):
    """slime, OpenRLHF: discounted returns of ``[B, T]``."""
    returns, carry = np.zeros_like(rewards), np.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        carry = returns[:, t] = rewards[:, t] + gamma * carry
    return returns


def carried(rewards: Array, values: Array, weights: Array, gamma: float, lam: Any):
    """verl, NeMo-RL: a masked step passes on what follows it; fractions mix.  ``[B, T]``."""
    advantages = np.zeros_like(rewards)
    following = carry = np.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        m = weights[:, t]
        fresh = rewards[:, t] + gamma * following - values[:, t] + gamma * lam * carry
        carry = m * fresh + (1 - m) * carry
        following = m * values[:, t] + (1 - m) * following
        advantages[:, t] = carry
    return advantages, advantages + values


def carried_returns(rewards: Array, mask: Array, gamma: float):
    """verl's REINFORCE++, and holes mended elsewhere: 0 at masked steps, which pass on the rest."""
    returns, carry = np.zeros_like(rewards), np.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        carry = np.where(mask[:, t], rewards[:, t] + gamma * carry, carry)
        returns[:, t] = np.where(mask[:, t], carry, 0)
    return returns


def whitened(x: Array, mask: Array):
    """By mean and unbiased variance of the valid elements; the masked ones, too."""
    valid = x[mask]
    return (x - valid.mean()) / np.sqrt(valid.var(ddof=1) + 1e-8)


def normalised(x: Array):
    """skrl, rsl_rl: all elements, ε beside the deviation."""
    return (x - x.mean()) / (x.std(ddof=1) + 1e-8)


def starts(
    rewards: Array, values: Array, start: Array, last: Array, ended: Array, gamma: float, lam: float
):
    """Stable-Baselines3, CleanRL, rl_games: ``[T, ...]``, flags of the first step of an episode."""
    advantages = np.zeros_like(rewards)
    following, stop, carry = last, ended, np.zeros_like(last)
    for t in reversed(range(len(rewards))):
        going = 1.0 - stop
        delta = rewards[t] + gamma * going * following - values[t]
        carry = advantages[t] = delta + gamma * lam * going * carry
        following, stop = values[t], start[t]
    return advantages, advantages + values


def ends(rewards: Array, values: Array, done: Array, last: Array, gamma: float, lam: float):
    """rsl_rl, skrl: ``[T, N, 1]``, flags of the last step of an episode."""
    advantages = np.zeros_like(rewards)
    following, carry = last, np.zeros_like(last)
    for t in reversed(range(len(rewards))):
        going = 1.0 - done[t]
        delta = rewards[t] + gamma * going * following - values[t]
        carry = advantages[t] = delta + gamma * lam * going * carry
        following = values[t]
    return advantages, advantages + values


def packed(
    rewards: Array, values: Array, offsets: Array, bootstrap: Array, gamma: float, lam: float
):
    """AReaL: sequences one after the other; one value more for each."""
    advantages, own = np.zeros_like(rewards), np.zeros_like(rewards)
    for i, (start, end) in enumerate(pairwise(offsets)):
        following, carry = values[end + i] * bootstrap[i], 0.0
        for t in reversed(range(start, end)):
            own[t] = values[t + i]
            carry = rewards[t] + gamma * following - own[t] + gamma * lam * carry
            following, advantages[t] = own[t], carry
    return advantages, advantages + own


def torchrl_gae(gamma: Any, lam: Any, v: Array, n: Array, r: Array, done: Array, term: Array):
    """torchrl: ``[B, T, F]``, the next value given, cut where done, no bootstrap where term."""
    gamma, lam = np.broadcast_to(gamma, r.shape), np.broadcast_to(lam, r.shape)
    advantages, carry = np.zeros_like(r), np.zeros_like(r[:, 0])
    for t in reversed(range(r.shape[1])):
        delta = r[:, t] + gamma[:, t] * np.where(term[:, t], 0, n[:, t]) - v[:, t]
        carry = delta + gamma[:, t] * lam[:, t] * np.where(done[:, t], 0, carry)
        advantages[:, t] = carry
    return advantages, advantages + v


def torchrl_td_lambda(gamma: Any, lam: Any, n: Array, r: Array, done: Array, term: Array):
    """torchrl: λ-returns, likewise."""
    gamma, lam = np.broadcast_to(gamma, r.shape), np.broadcast_to(lam, r.shape)
    n = np.where(term, 0, n)
    returns, carry = np.zeros_like(r), n[:, -1]
    for t in reversed(range(r.shape[1])):
        carry = np.where(done[:, t], n[:, t], carry)
        mixture = (1 - lam[:, t]) * n[:, t] + lam[:, t] * carry
        carry = returns[:, t] = r[:, t] + gamma[:, t] * mixture
    return returns


def torchrl_own_gamma(gamma: Array, lam: Any, n: Array, r: Array, done: Array, term: Array):
    """torchrl, rolling_gamma=False: every return by γ and λ of its own step."""
    lam = np.broadcast_to(lam, r.shape)
    steps = [
        torchrl_td_lambda(gamma[:, t, None], lam[:, t, None], n, r, done, term)[:, t]
        for t in range(r.shape[1])
    ]
    return np.stack(steps, 1)


def torchrl_vtrace(
    gamma: Any, log_rho: Array, v: Array, n: Array, r: Array, done: Array, term: Array, clips: Any
):
    """torchrl: advantages by targets of the next step, or the next value where done; targets."""
    rho, c = (np.minimum(np.exp(log_rho), clip) for clip in clips)
    alive, errors, carry = np.where(term, 0, gamma), np.zeros_like(r), np.zeros_like(r[:, 0])
    for t in reversed(range(r.shape[1])):
        delta = rho[:, t] * (r[:, t] + alive[:, t] * n[:, t] - v[:, t])
        carry = errors[:, t] = delta + np.where(done[:, t], 0, gamma) * c[:, t] * carry
    vs = v + errors
    after = np.where(done, n, np.concatenate([vs[:, 1:], n[:, -1:]], 1))
    return rho * (r + alive * after - v), vs


def cut_returns(rewards: Array, done: Array, gamma: float):
    """torchrl's reward2go: ``[B, T, F]``."""
    returns, carry = np.zeros_like(rewards), np.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        carry = returns[:, t] = rewards[:, t] + gamma * np.where(done[:, t], 0, carry)
    return returns


def flat(v: Array, n: Array, r: Array, end: Array, gamma: float, lam: float):
    """tianshou: ``[T]``, the next value given, cut where a flag stands."""
    advantages, carry = np.zeros(len(r)), 0.0
    for t in reversed(range(len(r))):
        carry = r[t] + gamma * n[t] - v[t] + gamma * lam * (1.0 - end[t]) * carry
        advantages[t] = carry
    return advantages


def sample_factory(r: Array, done: Array, v: Array, valid: Array, gamma: float, lam: float):
    """``[E, T]``; V and the flags of valid steps are one step longer."""
    advantages, carry = np.zeros_like(r), np.zeros(len(r))
    for t in reversed(range(r.shape[1])):
        here, next_ = valid[:, t], valid[:, t + 1]
        going = 1.0 - done[:, t]
        delta = (r[:, t] - v[:, t]) * here + going * gamma * v[:, t + 1] * next_
        carry = delta + (gamma * lam * here + (1.0 - here)) * going * carry
        advantages[:, t] = carry
    return advantages


def mended_sample_factory(r: Array, done: Array, v: Array, valid: Array, gamma: float, lam: float):
    """The same with holes that are stepped over; a flag in one ends the step before it."""
    advantages = np.zeros_like(r)
    for row in range(len(r)):
        following, carry = v[row, -1] * valid[row, -1], 0.0
        for t in reversed(range(r.shape[1])):
            if done[row, t]:
                following = carry = 0.0
            if valid[row, t]:
                carry = r[row, t] + gamma * following - v[row, t] + gamma * lam * carry
                following, advantages[row, t] = v[row, t], carry
    return advantages


def brax(trunc: Array, term: Array, r: Array, v: Array, last: Array, lam: float, gamma: float):
    """``[T, B]``: a truncated step counts nothing; advantages of one step over the targets."""
    after = np.concatenate([v[1:], last[None]])
    delta = (r + gamma * (1 - term) * after - v) * (1 - trunc)
    errors, carry = np.zeros_like(r), np.zeros_like(last)
    for t in reversed(range(len(r))):
        carry = errors[t] = delta[t] + gamma * (1 - term[t]) * (1 - trunc[t]) * lam * carry
    vs = v + errors
    after = np.concatenate([vs[1:], last[None]])
    return vs, (r + gamma * (1 - term) * after - v) * (1 - trunc), errors


def rlax_lambda_returns(r: Array, discount: Array, n: Array, lam: Any):
    """``[T]``: the last value given seeds the recurrence."""
    lam = np.broadcast_to(lam, r.shape)
    returns, carry = np.zeros_like(r), n[-1]
    for t in reversed(range(len(r))):
        carry = returns[t] = r[t] + discount[t] * ((1 - lam[t]) * n[t] + lam[t] * carry)
    return returns


def discounted(r: Array, discount: Array, last: Any):
    """rlax, tf-agents: ``[T, ...]``, ends folded into the discount."""
    returns, carry = np.zeros_like(r), last
    for t in reversed(range(len(r))):
        carry = returns[t] = r[t] + discount[t] * carry
    return returns


def discounted_gae(r: Array, discount: Array, v: Array, lam: Any):
    """rlax, tf-agents: ``[T, ...]``, V one step longer."""
    lam = np.broadcast_to(lam, r.shape)
    advantages, carry = np.zeros_like(r), np.zeros_like(r[0])
    for t in reversed(range(len(r))):
        delta = r[t] + discount[t] * v[t + 1] - v[t]
        carry = advantages[t] = delta + discount[t] * lam[t] * carry
    return advantages


def rlax_vtrace(
    v: Array, n: Array, r: Array, discount: Array, rho: Array, lam: Any, clips: Any, share: float,
    mask: Array,
):  # fmt: skip
    """``[T]``: errors, advantages and action values; c is clipped at 1."""
    lam = np.broadcast_to(lam, r.shape)
    clip, pg_clip = clips
    bounded = share * np.minimum(clip, rho) + (1 - share) * rho
    c = lam * (share * np.minimum(1.0, rho) + (1 - share) * rho)
    errors, carry = np.zeros_like(r), 0.0
    for t in reversed(range(len(r))):
        fresh = bounded[t] * (r[t] + discount[t] * n[t] - v[t]) + discount[t] * c[t] * carry
        carry = errors[t] = fresh if mask[t] else carry
    after = lam[:-1] * (errors + v)[1:] + (1 - lam[:-1]) * v[1:]
    q = r + discount * np.concatenate([after, n[-1:]])
    return errors, np.minimum(pg_clip, rho) * (q - v), q


def puffer(
    v: Array, r: Array, done: Array, rho: Array, gamma: float, lam: float, clips: Any, variant: str
):
    """``[segments, horizon]``: rewards and flags stand one step later; the last column is 0."""
    advantages, carry = np.zeros_like(r), np.zeros(len(r))
    for t in reversed(range(r.shape[1] - 1)):
        bounded, c = (np.minimum(rho[:, t], clip) for clip in clips)
        going = 1.0 - done[:, t + 1]
        weight = bounded if variant == "3.0" else 1.0
        delta = bounded * r[:, t + 1] + weight * (gamma * v[:, t + 1] * going - v[:, t])
        carry = advantages[:, t] = delta + gamma * lam * c * going * carry
    return advantages
