"""Kernels with faults that the static table must find, and one without."""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch
import triton
import triton.language as tl
from capture import TARGETS, launches
from resources import resources


@triton.jit
def add(a, b, sum_, time, STEPS: tl.constexpr, STRIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row; lanes ``STRIDE`` apart."""
    t = tl.arange(0, STEPS) * STRIDE
    x = tl.load(a + t, mask=t < time, other=0.0)
    y = tl.load(b + t, mask=t < time, other=0.0)
    tl.store(sum_ + t, x + y, mask=t < time)


@triton.jit
def hoard(a, b, sum_, TILES: tl.constexpr, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keeps more than there are registers for: all tiles are loaded before the barrier."""
    t = tl.arange(0, TILES)[:, None] * STEPS + tl.arange(0, STEPS)[None, :]
    x = tl.load(a + t)
    y = tl.load(b + t)
    tl.debug_barrier()
    total = tl.sum(x, 0) * tl.sum(y, 0)
    tl.store(sum_ + t, x + y + tl.expand_dims(total, 0))


def faults(kernel: Any, size: int, *rest: int, **options: Any) -> dict[str, list[str]]:
    """By target."""
    arrays = [torch.empty(size) for _ in range(3)]
    found = {}
    for target in TARGETS:
        with launches(target) as caught:
            kernel[(1,)](*arrays, *rest, **options, num_warps=4, enable_fp_fusion=True)
        found[target] = resources(caught[0].compile(target)).faults()
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = {
        "none": faults(add, 4096, 4096, STEPS=1024, STRIDE=1),
        "ragged": faults(add, 4096, 4095, STEPS=1024, STRIDE=1),
        "strided": faults(add, 4096, 4096, STEPS=1024, STRIDE=2),
        "spills": faults(hoard, 1 << 15, TILES=32, STEPS=1024),
    }
    print(json.dumps(found))
