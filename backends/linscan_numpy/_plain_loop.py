"""The serial loop on Python's own numbers: a handful of steps is over before NumPy has begun."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def plain_loop(
    a: NDArray[Any],
    b: NDArray[Any],
    reset: NDArray[np.bool_] | None,
    state: NDArray[Any],
    out: NDArray[Any],
) -> bool:
    """Scan ``b`` into ``out``, forwards; ``state``, (outer, inner), goes from initial to final.

    False, with nothing written, when a state is not finite: double precision does not overflow
    where ``state.dtype`` would.
    """
    outer, time, inner = out.shape
    a_lanes, b_lanes = _lanes(a, outer, inner), _lanes(b, outer, inner)
    reset_lanes = None if reset is None else _lanes(reset, outer, inner)
    results = []
    for lane, x in enumerate(state.ravel().tolist()):
        multipliers, values, result = a_lanes[lane], b_lanes[lane], []
        if len(values) < time:
            values *= time
        if reset_lanes is None and len(multipliers) == 1:
            w = multipliers[0]
            for value in values:
                x = w * x + value
                result.append(x)
        else:
            if len(multipliers) < time:
                multipliers *= time
            cuts = [False] if reset_lanes is None else reset_lanes[lane]
            if len(cuts) < time:
                cuts *= time
            for w, value, cut in zip(multipliers, values, cuts, strict=True):
                x = value if cut else w * x + value
                result.append(x)
        results.append(result)
    states = np.array(results).astype(state.dtype)
    if not np.isfinite(states).all():
        return False
    states = states.reshape(outer, inner, time)
    np.copyto(out.swapaxes(1, 2), states, "same_kind")
    state[...] = states[..., -1]
    return True


def _lanes(x: NDArray[Any], outer: int, inner: int) -> list[list[Any]]:
    whole = x if x.shape[::2] == (outer, inner) else np.broadcast_to(x, (outer, x.shape[1], inner))
    lanes: list[list[Any]] = whole.swapaxes(1, 2).reshape(outer * inner, -1).tolist()
    return lanes
