"""From a problem to the algorithm that fits its shape."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from linscan import _host
from linscan._problem import ScanProblem
from linscan._protocol import Kernel
from linscan_numpy._plain_loop import plain_loop
from linscan_numpy._power_matrix import power_matrix
from linscan_numpy._row_loop import row_loop
from linscan_numpy._transposed_replay import transposed_replay

Algorithm = Literal["plain loop", "row loop", "power matrix", "transposed replay"]


def choose(lanes: int, time: int, adjacent: bool, powers: bool) -> Algorithm:
    """The algorithm expected to take least time, from measured microseconds.

    ``adjacent``: a step's lanes lie closer together in memory than a lane's steps.  ``powers``: one
    multiplier for everything, whose powers do not overflow, no resets, and lanes to be read whole.
    """
    n = lanes * time
    cost: dict[Algorithm, float] = {
        "plain loop": 15 + 2 * lanes + 0.1 * n,
        "row loop": 5 + 1.6 * time + (0.0013 if adjacent else 0.006) * n,
        "transposed replay": 110 + 0.005 * n,
    }
    if powers:
        cost["power matrix"] = 45 + 0.0022 * n
    return min(cost, key=cost.__getitem__)


def kernel(problem: ScanProblem) -> Kernel:
    """What would run on contiguous operands, with a multiplier of at most 1."""
    lanes = problem.outer * problem.inner
    powers = problem.a == "scalar" and not problem.reset
    adjacent = problem.inner >= 16
    size = np.dtype(problem.dtype).itemsize
    moved = 2 * size + size * (problem.a == "full") + problem.reset
    return Kernel(choose(lanes, problem.time, adjacent, powers and not adjacent), moved)


def scan(
    problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
) -> tuple[Any, Any]:
    """See :meth:`linscan._protocol.Backend.scan`."""
    outer, time, inner = problem.outer, problem.time, problem.inner
    if out is None:
        x = _host.empty((outer, time, inner), problem.dtype)[0]
        out = _host.like(x, b, problem.dtype)
    else:
        x = _host.view(out)
    with np.errstate(all="ignore"):
        state = np.zeros((outer, inner), problem.accumulate)
        if initial is not None:
            state[...] = _host.view(initial)[:, 0]
        if x.size:
            multiplier = a if problem.a == "scalar" else _host.view(a)
            _run(problem, multiplier, _host.view(b), _host.view(reset), state, x)
        if not problem.final:
            return out, None
        final = _host.empty((outer, 1, inner), problem.dtype)[0]
        np.copyto(final[:, 0], state, "same_kind")
    return out, _host.like(final, b, problem.dtype)


def _run(
    problem: ScanProblem,
    a: Any,
    b: NDArray[Any],
    reset: NDArray[np.bool_] | None,
    state: NDArray[Any],
    out: NDArray[Any],
) -> None:
    powers = problem.a == "scalar" and reset is None and abs(a) <= 1
    adjacent = _adjacent(b) and _adjacent(out)
    algorithm = choose(state.size, problem.time, adjacent, powers and not adjacent)
    if algorithm == "power matrix":
        power_matrix(a, b, state, out, problem.reverse)
        return
    if problem.a == "scalar":
        a = np.full((1, 1, 1), a, state.dtype)
    if problem.reverse:
        a, b, out = a[:, ::-1], b[:, ::-1], out[:, ::-1]
        reset = None if reset is None else reset[:, ::-1]
    if not problem.initial:
        np.copyto(state, b[:, 0])
        np.copyto(out[:, 0], b[:, 0])
        if problem.time == 1:
            return
        a, b, out = _rest(a), _rest(b), out[:, 1:]
        reset = None if reset is None else _rest(reset)
    if algorithm == "transposed replay":
        transposed_replay(a, b, reset, state, out)
    elif algorithm == "plain loop":
        plain_loop(a, b, reset, state, out)
    else:
        row_loop(a, b, reset, state, out)


def _rest(x: NDArray[Any]) -> NDArray[Any]:
    return x[:, 1:] if x.shape[1] > 1 else x


def _adjacent(x: NDArray[Any]) -> bool:
    """Whether a step's lanes, a cache line of them, lie closer together than a lane's steps."""
    step = abs(x.strides[1])
    return any(abs(x.strides[axis]) < step and x.shape[axis] >= 16 for axis in (0, 2))
