"""The smallest backend: one loop over time, in the dtype of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from linscan._problem import ScanProblem
from linscan._protocol import Kernel


class ToyBackend:
    """NumPy arrays, one step after the other."""

    name = "toy"
    rank = 1000
    fused: dict[str, Any] = {}  # noqa: RUF012

    def why_not(self) -> str | None:
        return None

    def owns(self, x: Any) -> bool:
        return isinstance(x, np.ndarray)

    def supports(self, problem: ScanProblem) -> str | None:
        return "the toy keeps its state in 16 bits" if problem.dtype == "float16" else None

    def explain(self, problem: Any) -> Kernel:
        return Kernel("loop", bytes_per_element=3 * np.dtype(problem.dtype).itemsize)

    def scan(
        self, problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
    ) -> tuple[Any, Any]:
        shape = (problem.outer, problem.time, problem.inner)
        a, b = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
        x = np.empty(shape, problem.dtype) if out is None else out
        cut = np.broadcast_to(False if reset is None else reset, shape)
        state = np.zeros((problem.outer, problem.inner), problem.dtype)
        if initial is not None:
            state[...] = initial[:, 0]
        unread = initial is None
        with np.errstate(all="ignore"):
            for t in range(problem.time)[:: -1 if problem.reverse else 1]:
                state = np.where(cut[:, t] | unread, b[:, t], a[:, t] * state + b[:, t])
                state = x[:, t] = state.astype(problem.dtype)
                unread = False
        return x, state[:, np.newaxis].copy() if problem.final else None


BACKEND = ToyBackend()
