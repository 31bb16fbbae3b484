"""``gae``, with all that rollouts have: flags, holes, padding left out by packing."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

import linscan

from .arrays import Arrays
from .common import (
    GAMMA,
    LAM,
    LONG_ROW,
    ROWS,
    TARGETS,
    TIME_FIRST,
    AgainstCopy,
    Shape,
    Work,
    normal,
    sized,
    uniform,
)

CASES = {  # shape, axis, what comes with rewards and values
    "plain": (ROWS, -1, ()),
    "flags": (ROWS, -1, ("terminated",)),
    "mask with holes": (ROWS, -1, ("mask",)),
    "packed": (LONG_ROW[1:], -1, ("cu_seqlens",)),
    "time first, flags": (TIME_FIRST, 0, ("terminated",)),
}


def terminated(shape: Shape) -> np.ndarray:
    """An episode ends at every hundredth step, at random."""
    return uniform(2, shape) < 0.01


def mask(shape: Shape) -> np.ndarray:
    """Runs of some 200 steps, valid and not in turn."""
    changes = uniform(3, shape) < 1 / 200
    return np.logical_xor.accumulate(changes, axis=-1)


def cu_seqlens(shape: Shape) -> np.ndarray:
    """Sequences of 2 to 1000 steps."""
    (steps,) = shape
    lengths = np.random.default_rng(4).integers(2, 1000, steps // 2)
    inner = np.cumsum(lengths)
    return np.concatenate([[0], inner[inner < steps], [steps]])


EXTRAS = {"terminated": terminated, "mask": mask, "cu_seqlens": cu_seqlens}


class GAE(AgainstCopy):
    """Reads rewards and values, writes advantages and returns: 16 bytes per element, and a flag."""

    param_names = ("target", "case")
    params: ClassVar = [TARGETS, list(CASES)]

    def prepare(self, backend: str, arrays: Arrays, case: str) -> Work:
        """Rewards and values are standard normal."""
        shape, axis, names = CASES[case]
        shape = sized(shape)
        rewards, values = normal(0, shape), normal(1, shape)
        extras = {name: EXTRAS[name](shape) for name in names}
        keywords: dict[str, Any] = {name: arrays.array(x) for name, x in extras.items()}
        keywords |= {"gamma": GAMMA, "lam": LAM, "axis": axis, "backend": backend}
        call = partial(linscan.gae, arrays.array(rewards), arrays.array(values), **keywords)
        out = arrays.array(rewards.copy()), arrays.array(rewards.copy())
        size = 4 * rewards.nbytes + sum(x.nbytes for x in extras.values())
        return Work(call, partial(call, out=out), size)
