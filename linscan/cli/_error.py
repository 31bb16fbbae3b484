"""How far a result is from the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def largest_error(found: NDArray[Any], exact: NDArray[np.float64], axis: int) -> float:
    """In proportion to the largest magnitude along the axis of time; NaN if any is.

    Where the truth is 0 all along the axis, the error counts as it is.
    """
    largest = np.abs(exact).max(axis=axis)
    differences = np.abs(found - exact).max(axis=axis)
    return float((differences / np.where(largest == 0, 1, largest)).max())
