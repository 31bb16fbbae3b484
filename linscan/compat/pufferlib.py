"""For PufferLib.

::

    pufferlib.pufferl.compute_puff_advantage = linscan.compat.pufferlib.compute_puff_advantage
"""

from __future__ import annotations

from typing import Any, Literal

import torch

import linscan


@torch.no_grad()
def compute_puff_advantage(
    values: Any,
    rewards: Any,
    terminals: Any,
    ratio: Any,
    advantages: Any,
    gamma: float,
    gae_lambda: float,
    vtrace_rho_clip: float,
    vtrace_c_clip: float,
    *,
    variant: Literal["3.0", "4.0-scalar"] = "3.0",
) -> Any:
    """Write V-trace errors into ``advantages``, ``[segments, horizon]``, and return it.

    Rewards and terminals arrive *with* an observation: those of step t are found at t + 1, and a
    segment of H observations holds H - 1 whole steps.  As in the original, the last column of
    ``advantages`` is not written; the caller keeps it 0.

    The variants differ in what ρ weighs: ``"3.0"``, and the vectorised kernels of version 4, the
    whole temporal difference, as V-trace has it; ``"4.0-scalar"``, the scalar ones, the reward
    alone.
    """
    if variant not in ("3.0", "4.0-scalar"):
        raise ValueError(f"variant must be '3.0' or '4.0-scalar', not {variant!r}")
    arrived, ended, ratio = rewards[:, 1:], terminals[:, 1:] != 0, ratio[:, :-1]
    rho = torch.clamp(ratio, max=vtrace_rho_clip)
    delta = torch.where(ended, 0.0, values[:, 1:]).mul_(gamma).sub_(values[:, :-1])
    if variant == "3.0":
        delta.add_(arrived).mul_(rho)
    else:
        delta.addcmul_(rho, arrived)
    c = rho if vtrace_c_clip == vtrace_rho_clip else torch.clamp(ratio, max=vtrace_c_clip)
    linscan.scan(
        c.mul_(gamma * gae_lambda), delta, reverse=True, reset=ended, out=advantages[:, :-1]
    )
    return advantages
