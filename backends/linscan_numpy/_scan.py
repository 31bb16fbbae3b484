"""From a problem to the algorithm that fits its shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from linscan import _host
from linscan._problem import ScanProblem
from linscan._protocol import Kernel
from linscan_numpy._row_loop import row_loop


def kernel(problem: ScanProblem) -> Kernel:
    """What would run on contiguous operands."""
    size = np.dtype(problem.dtype).itemsize
    moved = 2.0 * size + size * (problem.a == "full") + problem.reset
    return Kernel("row loop", moved)


def scan(
    problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
) -> tuple[Any, Any]:
    """See :meth:`linscan._protocol.Backend.scan`."""
    outer, time, inner = problem.outer, problem.time, problem.inner
    kind = np.dtype(problem.accumulate)
    if out is None:
        x = _host.empty((outer, time, inner), problem.dtype)[0]
        out = _host.like(x, b, problem.dtype)
    else:
        x = _host.view(out)
    with np.errstate(all="ignore"):
        state = np.zeros((outer, inner), kind)
        if initial is not None:
            state[...] = _host.view(initial)[:, 0]
        if x.size:
            _run(problem, _host.view(a), _host.view(b), _host.view(reset), state, x)
        if not problem.final:
            return out, None
        last = _host.empty((outer, 1, inner), problem.dtype)[0]
        np.copyto(last[:, 0], state, "same_kind")
    return out, _host.like(last, b, problem.dtype)


def _run(problem: ScanProblem, a: Any, b: Any, reset: Any, state: Any, x: Any) -> None:
    if not isinstance(a, np.ndarray):
        a = np.full((1, 1, 1), a, state.dtype)
    if problem.reverse:
        a, b, x = a[:, ::-1], b[:, ::-1], x[:, ::-1]
        reset = reset if reset is None else reset[:, ::-1]
    if not problem.initial:
        x[:, 0] = state[...] = b[:, 0]
        if problem.time == 1:
            return
        b, x = b[:, b.shape[1] > 1 :], x[:, 1:]
        a = a[:, a.shape[1] > 1 :]
        reset = reset if reset is None else reset[:, reset.shape[1] > 1 :]
    row_loop(a, b, reset, state, x)
