"""The loop itself for lanes in which an algorithm met a number that is not finite.

Sums of products spread NaN further than the loop does, and make it where a product of multipliers
overflows; what is not finite is therefore always the loop's own doing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan_numpy._plain_loop import plain_loop
from linscan_numpy._row_loop import row_loop

FEW = 24
"""Lanes up to which Python's numbers beat NumPy's vectors."""


def exact(
    chosen: NDArray[np.bool_],
    a: NDArray[Any],
    b: NDArray[Any],
    reset: NDArray[np.bool_] | None,
    state: NDArray[Any],
    time: int,
) -> NDArray[Any]:
    """The chosen lanes alone, (lanes, time), forwards; their ``state`` goes to final."""

    def pick(x: NDArray[Any]) -> NDArray[Any]:
        whole = np.broadcast_to(x, (chosen.shape[0], time, chosen.shape[1]))
        picked: NDArray[Any] = whole.swapaxes(1, 2)[chosen]
        return picked

    a, b, carried = pick(a), pick(b), state[chosen]
    reset = None if reset is None else pick(reset)
    out = np.empty(b.shape, state.dtype)
    stuck = _stuck(a, b, reset, carried)
    out[stuck] = carried[stuck, None] * np.cumprod(np.sign(a[stuck]), axis=1)
    carried[stuck] = out[stuck, -1]
    free = ~stuck
    if free.any():
        loop = plain_loop if np.count_nonzero(free) <= FEW else row_loop
        last, x = carried[None, free], np.empty((1, time, np.count_nonzero(free)), out.dtype)
        cuts = None if reset is None else reset[free].T[None]
        loop(a[free].T[None], b[free].T[None], cuts, last, x)
        out[free], carried[free] = x[0].T, last[0]
    state[chosen] = carried
    return out


def _stuck(
    a: NDArray[Any], b: NDArray[Any], reset: NDArray[np.bool_] | None, state: NDArray[Any]
) -> NDArray[np.bool_]:
    """Lanes that stay not finite whatever is added: only the sign of infinity may still turn."""
    stuck: NDArray[np.bool_] = ~np.isfinite(state)
    if state.dtype.kind == "c":
        stuck[:] = False
    if stuck.any():
        stuck &= (np.isfinite(a) & (a != 0) & np.isfinite(b)).all(axis=1)
        if reset is not None:
            stuck &= ~reset.any(axis=1)
    return stuck
