"""The loop over time itself, each step vectorised over the lanes: it rounds as a serial loop does.

A lane is one recurrence: a position in outer and inner.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 16384
"""Lanes walked together: their state stays in cache from one step to the next."""


def row_loop(
    a: NDArray[Any],
    b: NDArray[Any],
    reset: NDArray[np.bool_] | None,
    state: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """Scan ``b`` into ``out``, forwards; ``state``, (outer, inner), goes from initial to final."""
    outer, _, inner = out.shape
    columns = min(inner, BLOCK)
    rows = max(1, BLOCK // columns)
    for o in range(0, outer, rows):
        for i in range(0, inner, columns):
            block = slice(o, o + rows), slice(i, i + columns)
            _walk(
                lanes(a, *block),
                lanes(b, *block),
                None if reset is None else lanes(reset, *block),
                state[block],
                lanes(out, *block),
            )


def lanes(x: NDArray[Any], outer: slice, inner: slice) -> NDArray[Any]:
    """A block of lanes of an operand whose dimensions of size 1 broadcast."""
    return x[outer if x.shape[0] > 1 else slice(None), :, inner if x.shape[2] > 1 else slice(None)]


def _walk(
    a: NDArray[Any],
    b: NDArray[Any],
    reset: NDArray[np.bool_] | None,
    state: NDArray[Any],
    out: NDArray[Any],
) -> None:
    carried = np.empty_like(state)
    stored = out.dtype == state.dtype
    previous = state
    for a_t, b_t, reset_t, out_t in zip(
        _steps(a),
        _steps(b),
        repeat(None) if reset is None else _steps(reset),
        _steps(out, True),
        strict=False,
    ):
        np.multiply(previous, a_t, carried)
        if reset_t is not None:
            np.copyto(carried, 0, where=reset_t)
        previous = np.add(carried, b_t, out_t if stored else state)
        if not stored:
            np.copyto(out_t, state, "same_kind")
    state[...] = previous


def _steps(x: NDArray[Any], last: bool = False) -> Iterable[NDArray[Any]]:
    steps = x.swapaxes(0, 1)
    return steps if last or len(steps) > 1 else repeat(steps[0])
