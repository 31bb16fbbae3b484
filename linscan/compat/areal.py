"""For AReaL (and ReaLHF): GAE of packed sequences, as its former CUDA extension had it.

::

    cugae.cugae1d_nolp_misalign_func = linscan.compat.areal.cugae1d_nolp_misalign_func
"""

from __future__ import annotations

from typing import Any

import torch

import linscan


def cugae1d_nolp_misalign_func(
    rewards: Any, values: Any, cu_seqlens: Any, bootstrap: Any, gamma: float, lam: float
) -> tuple[Any, Any]:
    """GAE of sequences packed along one axis: ``(advantages, returns)``.

    ``values`` has one more number per sequence than ``rewards``, the value after its last step;
    ``cu_seqlens`` are the offsets of rewards.  Where ``bootstrap`` is false that value counts as 0.

    Differs from the original's fallback in Python: values are not written to.
    """
    ends = cu_seqlens[1:].contiguous()
    steps = torch.arange(len(rewards), device=rewards.device)
    before = torch.bucketize(steps, ends, right=True)  # sequences that are over
    after = values[ends + torch.arange(len(ends), device=rewards.device)]
    return linscan.gae(
        rewards,
        values[steps + before],
        gamma=gamma,
        lam=lam,
        last_values=torch.where(bootstrap.bool(), after, torch.zeros_like(after)),
        cu_seqlens=cu_seqlens,
    )


def get_packed_advantages_and_returns(
    gamma: float,
    lam: float,
    values: Any,
    rewards: Any,
    short1cu_seqlens: Any,
    seq_no_eos_mask: Any,
) -> tuple[Any, Any]:
    """The same in the order of arguments that its trainer uses."""
    return cugae1d_nolp_misalign_func(
        rewards, values, short1cu_seqlens, seq_no_eos_mask, gamma, lam
    )
