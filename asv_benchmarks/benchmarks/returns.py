"""Discounted returns and λ-returns."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import linscan

from .arrays import Arrays
from .common import GAMMA, LAM, ROWS, TARGETS, AgainstCopy, Work, normal, sized


class Returns(AgainstCopy):
    """Reads rewards, and values for λ-returns, and writes returns: 8 bytes per element, or 12."""

    param_names = ("target", "case")
    params: ClassVar = [TARGETS, ["discounted_returns", "td_lambda"]]

    def prepare(self, backend: str, arrays: Arrays, case: str) -> Work:
        """Rewards and values are standard normal."""
        shape = sized(ROWS)
        rewards, values = (arrays.array(normal(seed, shape)) for seed in (0, 1))
        if case == "td_lambda":
            call = partial(linscan.td_lambda, rewards, values, gamma=GAMMA, lam=LAM)
        else:
            call = partial(linscan.discounted_returns, rewards, gamma=GAMMA)
        call = partial(call, backend=backend)
        out = arrays.array(normal(0, shape).copy())
        size = normal(0, shape).nbytes * (3 if case == "td_lambda" else 2)
        return Work(call, partial(call, out=out), size)
