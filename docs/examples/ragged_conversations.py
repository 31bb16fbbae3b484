"""Conversations with tools: ragged and in turns; padded or packed, with the same result.

In each turn the policy writes some tokens, and a tool answers with others.  The policy has the last
word, and then a score is given.  Only what the policy wrote is trained; what the critic says about
the tools' tokens is not read, which NaN shows here.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import linscan

BETA = 0.05  # what the policy pays for each unit of KL divergence
TOKENS = {"gamma": 1.0, "lam": 0.95}
TURNS = {**TOKENS, "gamma_turn": 0.95, "lam_turn": 0.9}


class Batch(NamedTuple):
    """What is known of conversations: of one, ``[tokens]``; of many, padded or packed."""

    mask: Any
    """True where the policy wrote the token."""
    turns: Any
    """The turn that the token belongs to."""
    rewards: Any
    values: Any
    last_values: Any
    """The value after the last token: 0, unless a limit cut the conversation off."""


def converse(rng: np.random.Generator) -> Batch:
    """One conversation: up to six turns of random lengths, and a score for those that end."""
    runs = rng.integers(1, 30, size=2 * rng.integers(1, 7) - 1)  # policy, tool, policy, …
    run = torch.from_numpy(np.repeat(np.arange(len(runs)), runs))
    mask, kl = run % 2 == 0, torch.from_numpy(rng.exponential(size=len(run)))
    score, value = torch.from_numpy(rng.random(2))
    cut_off = rng.random() < 0.2
    return Batch(
        mask,
        run // 2,
        linscan.place_terminal_reward(mask, 0 * score if cut_off else score) - BETA * kl,
        torch.from_numpy(rng.random(len(run))).where(mask, torch.nan),
        value if cut_off else 0 * value,
    )


def padded(conversations: list[Batch]) -> Batch:
    """One in each row, ``[B, T]``; the mask leaves out the zeros behind the end."""
    *tokens, last_values = zip(*conversations, strict=True)
    return Batch(*(pad_sequence(x, batch_first=True) for x in tokens), torch.stack(last_values))


def packed(conversations: list[Batch]) -> tuple[Batch, Tensor]:
    """One after the other, ``[tokens]``; and the offsets at which they begin and end."""
    *tokens, last_values = zip(*conversations, strict=True)
    offsets = torch.tensor([0, *map(len, tokens[0])]).cumsum(0)
    return Batch(*map(torch.cat, tokens), torch.stack(last_values)), offsets


def estimate(batch: Batch, cu_seqlens: Tensor | None = None) -> dict[str, Tensor]:
    """Results at the policy's tokens, conversation by conversation."""
    mask, turns, rewards, values, last_values = batch
    ends = {"mask": mask, "last_values": last_values, "cu_seqlens": cu_seqlens}
    gae = linscan.gae(rewards, values, **TOKENS, **ends)
    by_turn = linscan.turn_gae(rewards, values, turns, **TURNS, **ends)
    return {
        "GAE": gae.advantages[mask],
        "GAE, whitened": linscan.whiten(gae.advantages, mask)[mask],
        "returns": gae.returns[mask],
        "bi-level GAE": by_turn.advantages[mask],
    }


def main() -> None:
    """Draw conversations, and compare their two forms."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--conversations", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    conversations = [converse(rng) for _ in range(options.conversations)]

    rows = padded(conversations)
    line, offsets = packed(conversations)
    print(f"{len(conversations)} conversations, {int(line.mask.sum())} tokens of the policy")
    print(f"padded {tuple(rows.mask.shape)}, {rows.mask.numel()} tokens; packed {len(line.mask)}")
    print("largest difference at the policy's tokens")
    one, other = estimate(rows), estimate(line, offsets)
    for name in one:
        print(f"  {name:15}{(one[name] - other[name]).abs().max():.1e}")


if __name__ == "__main__":
    main()
