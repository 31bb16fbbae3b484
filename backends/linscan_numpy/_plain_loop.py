"""The serial loop on Python's own numbers: a handful of steps is over before NumPy has begun."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan_numpy._row_loop import row_loop


def plain_loop(
    a: NDArray[Any],
    b: NDArray[Any],
    reset: NDArray[np.bool_] | None,
    state: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """Scan ``b`` into ``out``, forwards; ``state``, (outer, inner), goes from initial to final."""
    outer, time, inner = out.shape
    initial = state.ravel().tolist()
    operands = (
        _lanes(a, out.shape),
        _lanes(b, out.shape),
        repeat(repeat(False)) if reset is None else _lanes(reset, out.shape),
    )
    states = np.array([_walk(*lane) for lane in zip(initial, *operands, strict=False)])
    states = states.astype(state.dtype)
    if not np.isfinite(states).all():
        if state.dtype.kind == "c":
            row_loop(a, b, reset, state, out)
            return
        limit = float(np.finfo(state.dtype).max)
        states = np.array(
            [_walk_in_range(limit, *lane) for lane in zip(initial, *operands, strict=False)]
        ).astype(state.dtype)
    states = states.reshape(outer, inner, time)
    np.copyto(out.swapaxes(1, 2), states, "same_kind")
    state[...] = states[..., -1]


def _walk(x: Any, a: Iterable[Any], b: Iterable[Any], reset: Iterable[bool]) -> list[Any]:
    states = []
    for multiplier, value, cut in zip(a, b, reset, strict=False):
        x = value if cut else multiplier * x + value
        states.append(x)
    return states


def _walk_in_range(
    limit: float, x: float, a: Iterable[float], b: Iterable[float], reset: Iterable[bool]
) -> list[float]:
    """The same for numbers that are infinite beyond ``limit``, where Python's are not yet."""
    states = []
    for multiplier, value, cut in zip(a, b, reset, strict=False):
        x = value if cut else multiplier * x + value
        if not -limit <= x <= limit:
            x *= 1e308
        states.append(x)
    return states


def _lanes(x: NDArray[Any], shape: tuple[int, ...]) -> list[list[Any]]:
    """The steps of each lane."""
    outer, time, inner = shape
    if x.shape[::2] != (outer, inner):
        x = np.broadcast_to(x, (outer, x.shape[1], inner))
    lanes: list[list[Any]] = x.swapaxes(1, 2).reshape(outer * inner, -1).tolist()
    return lanes if x.shape[1] == time else [lane * time for lane in lanes]
