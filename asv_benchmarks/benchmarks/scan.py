"""``scan``: multipliers per element or one for all, both directions, every shape of kernel."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import linscan

from .arrays import Arrays
from .common import LONG_ROW, ROWS, TARGETS, TIME_FIRST, AgainstCopy, Work, normal, sized, uniform

CASES = {  # shape, axis, whether a is per element, reverse
    "full a": (ROWS, -1, True, False),
    "full a, backward": (ROWS, -1, True, True),
    "constant a": (ROWS, -1, False, False),
    "constant a, backward": (ROWS, -1, False, True),
    "full a, one long row": (LONG_ROW, -1, True, False),
    "full a, time first": (TIME_FIRST, 0, True, False),
}


class Scan(AgainstCopy):
    """Reads a and b and writes x: 12 bytes per element, or 8."""

    param_names = ("target", "case")
    params: ClassVar = [TARGETS, list(CASES)]

    def prepare(self, backend: str, arrays: Arrays, case: str) -> Work:
        """Full ``a`` lies between 0.9 and 1."""
        usual, axis, full, reverse = CASES[case]
        shape = sized(usual)
        b = normal(0, shape)
        a = arrays.array(0.9 + uniform(1, shape) / 10) if full else 0.9405
        call = partial(
            linscan.scan, a, arrays.array(b), axis=axis, reverse=reverse, backend=backend
        )
        out = arrays.array(b.copy())
        return Work(call, partial(call, out=out), b.size * (12 if full else 8))
