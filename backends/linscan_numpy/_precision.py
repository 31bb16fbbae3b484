"""The next wider type, for sums and products whose rounding would otherwise add up."""

from __future__ import annotations

from typing import Any

import numpy as np

SINGLE = (np.dtype(np.float32), np.dtype(np.complex64))


def wider(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Single to double, double to extended: slow, and on some platforms no wider than double."""
    return np.dtype({"f": "d", "d": "g", "F": "D", "D": "G"}[dtype.char])
