"""For slime: ``slime.utils.ppo_utils``, and its hook for advantages of one's own.

In a launch script::

    --custom-advantage-function-path linscan.compat.slime.ppo_advantages

or in Python::

    slime.utils.ppo_utils.chunked_gae = linscan.compat.slime.chunked_gae
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

import linscan
from linscan.compat._gradients import wants_gradients


def vanilla_gae(rewards: Any, values: Any, gamma: float, lambd: float) -> tuple[Any, Any]:
    """GAE of ``[B, T]`` tensors, with the value 0 after the last step: ``(advantages, returns)``.

    Differs: T = 0 gives empty results, and integer rewards are promoted; the original raises.
    """
    return chunked_gae(rewards, values, gamma, lambd)


def chunked_gae(
    rewards: Any, values: Any, gamma: float, lambd: float, chunk_size: int | None = None
) -> tuple[Any, Any]:
    """The same; ``chunk_size`` is for backends that have chunks, and by default theirs.

    Differs: the powers of γλ are not rounded to a 16-bit dtype, a NaN does not spread to later
    steps, and integer rewards are promoted.
    """
    return linscan.gae(
        rewards,
        values,
        gamma=gamma,
        lam=lambd,
        chunk_size=chunk_size,
        differentiable=wants_gradients(rewards, values),
    )


def chunked_discounted_returns(rewards: Any, discount: float, chunk_size: int | None = None) -> Any:
    """Discounted returns of ``[B, T]`` rewards; differs as :func:`chunked_gae` does."""
    return linscan.discounted_returns(
        rewards,
        gamma=discount,
        chunk_size=chunk_size,
        differentiable=wants_gradients(rewards),
    )


def get_advantages_and_returns_batch(
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    values_list: Sequence[Any],
    rewards_list: Sequence[Any],
    gamma: float,
    lambd: float,
    chunked: bool = True,
) -> tuple[list[Any], list[Any]]:
    """GAE of a ragged batch of responses: lists of ``(advantages, returns)``, in values' dtype.

    Under context parallelism the pieces of each response are gathered, and the results cut, with
    slime's own functions.  ``chunked`` changes nothing.
    """
    values = _whole(values_list, total_lengths, response_lengths)
    rewards = _whole(rewards_list, total_lengths, response_lengths)
    advantages, returns = _ragged_gae(rewards, values, response_lengths, gamma, lambd)
    return (
        _own_piece(advantages, total_lengths, response_lengths),
        _own_piece(returns, total_lengths, response_lengths),
    )


def ppo_advantages(args: Any, rollout_data: Any, *, fix: bool = False) -> None:
    """The hook: fills ``rollout_data["advantages"]`` and ``["returns"]`` as slime's PPO does.

    It is called after the KL divergence has been computed.  The reward of a token is
    ``-args.kl_coef`` times its divergence, plus the score of the response on its last token.

    With ``fix``, loss masks are respected (:data:`masked_ppo_advantages` is the hook that does so):
    masked tokens are stepped over, their divergence counts nothing, and the score goes to the last
    token that is not masked.  The original reads no mask, so that tool output is credited like the
    policy's own tokens.
    """
    if rollout_data.get("values") is None:
        raise ValueError("rollout_data['values'] is missing: PPO needs a critic")
    lengths = rollout_data["total_lengths"], rollout_data["response_lengths"]
    values = _whole(rollout_data["values"], *lengths)
    rewards = [-args.kl_coef * kl for kl in _whole(rollout_data["kl"], *lengths)]
    masks = [mask.bool() for mask in rollout_data["loss_masks"]] if fix else None
    for i, score in enumerate(rollout_data["rewards"]):
        if masks is None:
            rewards[i][-1:] += score
        else:
            score = torch.as_tensor(score, dtype=rewards[i].dtype, device=rewards[i].device)
            rewards[i] = rewards[i] + linscan.place_terminal_reward(masks[i], score)
    advantages, returns = _ragged_gae(
        rewards, values, lengths[1], args.gamma, args.lambd, masks=masks
    )
    rollout_data["advantages"] = _own_piece(advantages, *lengths)
    rollout_data["returns"] = _own_piece(returns, *lengths)


masked_ppo_advantages = partial(ppo_advantages, fix=True)
"""The hook :func:`ppo_advantages` with ``fix=True``."""


def _ragged_gae(
    rewards: Sequence[Any],
    values: Sequence[Any],
    lengths: Sequence[int],
    gamma: float,
    lam: float,
    masks: Sequence[Any] | None = None,
) -> tuple[list[Any], list[Any]]:
    if not values:
        return [], []

    def padded(xs: Sequence[Any]) -> Any:
        """Zeros behind the end, which count as nothing: neither reward nor value."""
        cut = [x[:length] for x, length in zip(xs, lengths, strict=True)]
        return pad_sequence(cut, batch_first=True)

    advantages, returns = linscan.gae(
        padded(rewards),
        padded(values),
        gamma=gamma,
        lam=lam,
        mask=None if masks is None else padded(masks),
        out_dtype=values[0].dtype if values[0].is_floating_point() else None,
    )
    return (
        [row[:length] for row, length in zip(advantages, lengths, strict=True)],
        [row[:length] for row, length in zip(returns, lengths, strict=True)],
    )


def _context_parallel() -> Any:
    """The module of slime for responses cut over several ranks; None if they are whole."""
    megatron = sys.modules.get("megatron.core")
    if megatron is None or megatron.mpu.get_context_parallel_world_size() == 1:
        return None
    return import_module("slime.backends.megatron_utils.cp_utils")


def _whole(pieces: Sequence[Any], totals: Sequence[int], responses: Sequence[int]) -> list[Any]:
    if (cut := _context_parallel()) is None:
        return list(pieces)
    return list(map(cut.all_gather_with_cp, pieces, totals, responses))


def _own_piece(wholes: Sequence[Any], totals: Sequence[int], responses: Sequence[int]) -> list[Any]:
    if (cut := _context_parallel()) is None:
        return list(wholes)
    return list(map(cut.slice_log_prob_with_cp, wholes, totals, responses))
