"""Calls so small that only their overhead is left."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import linscan

from .arrays import Arrays
from .common import GAMMA, LAM, TARGETS, OnTargets, Work, normal, uniform


class SmallCalls(OnTargets):
    """8 × 128 elements: checks, dispatch, allocation, launch."""

    param_names = ("target", "case")
    params: ClassVar = [TARGETS, ["gae", "gae, flags", "scan"]]
    number = 100
    repeat = (5, 20, 0.5)
    rounds = 2

    def prepare(self, backend: str, arrays: Arrays, case: str) -> Work:
        """Rewards and values are standard normal."""
        shape = (8, 128)
        rewards, values = (arrays.array(normal(seed, shape)) for seed in (0, 1))
        if case == "scan":
            call = partial(linscan.scan, 0.9405, rewards, backend=backend)
        else:
            call = partial(linscan.gae, rewards, values, gamma=GAMMA, lam=LAM, backend=backend)
        if case == "gae, flags":
            call = partial(call, terminated=arrays.array(uniform(2, shape) < 0.01))
        return Work(call, call, 0)
