"""Problems with known answers: operands that their dtype holds exactly, and float64 results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan import reference
from linscan.testing._interpreter import affordable

Array = NDArray[Any]

LONG = affordable(70_001, 8195)
"""Long enough for one row to be shared out."""

LENGTHS: tuple[int, ...] = (
    0,
    1,
    2,
    3,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    129,
    1023,
    1024,
    1025,
    2049,
)
LENGTHS += (65537,) * affordable(1, 0)
"""One less and one more than the sizes that blocks, vectors and chunks come in."""

KINDS = ("number", "row", "step", "full", "partial", "larger")
"""What a is: a Python number, one per row, one per step, one per element, one per element but the
same along some axes, and full while b is one per step."""

TOLERANCE = {
    # Results are rounded once, by half a unit in the last place, from a float32 state: a tenth
    # more leaves room for that state's own error, and none for a 16-bit state.
    "float16": 1.1 * 2.0**-11,
    "bfloat16": 1.1 * 2.0**-8,
    # The multipliers drawn here forget within tens of steps, each of which rounds twice.
    "float32": 16 * 2.0**-24,
    "float64": 16 * 2.0**-53,
    # A complex product rounds its four parts, and their sums.
    "complex64": 32 * 2.0**-24,
    "complex128": 32 * 2.0**-53,
}
"""The largest error, in units of the largest magnitude in the row."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Operands in float64 or complex128 (a may be a number), and the answer to them."""

    dtype: str
    axis: int
    reverse: bool
    a: Any
    b: Array
    initial: Array | None
    reset: Array | None
    x: Array
    final: Array

    @property
    def options(self) -> dict[str, Any]:
        """The direction."""
        return {"axis": self.axis, "reverse": self.reverse}


@cache
def problem(
    shape: tuple[int, ...],
    kind: str = "full",
    dtype: str = "float32",
    axis: int = -1,
    reverse: bool = False,
    initial: bool = False,
    reset: bool = False,
    seed: int = 0,
) -> Problem:
    """One drawn at random; the same for the same arguments."""
    rng = np.random.default_rng([seed, *shape, KINDS.index(kind)])
    axis %= len(shape)
    rest = shape[:axis] + shape[axis + 1 :]
    step = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    shapes = {
        "row": tuple(1 if i == axis else n for i, n in enumerate(shape)),
        "step": step,
        "partial": tuple(n if i == axis or i % 2 else 1 for i, n in enumerate(shape)),
    }
    a: Any = (0.9375 + 0.25j if "complex" in dtype else 0.9375) if kind == "number" else None
    if kind == "row":
        a = 0.75 * numbers(rng, shapes["row"], dtype)
        a = rounded(a / np.maximum(1, np.abs(a)) * 0.96875, dtype)
    elif kind != "number":
        a = multipliers(rng, shapes.get(kind, shape), dtype)
    b = numbers(rng, step if kind == "larger" else shape, dtype)
    start = numbers(rng, rest, dtype) if initial else None
    cut = rng.random(shape) < 0.05 if reset else None
    x, final = reference.serial(a, b, start, axis=axis, reverse=reverse, reset=cut)
    return Problem(dtype, axis, reverse, a, b, start, cut, x, final)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Normally distributed."""
    x = rng.standard_normal(shape)
    if "complex" in dtype:
        x = x + 1j * rng.standard_normal(shape)
    return rounded(x, dtype)


def multipliers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Between -1 and 1, with zeros, ones and some that are larger by a sixteenth."""
    a = rng.uniform(-1, 1, shape)
    special = np.array([0.0, 1.0, -1.0, 1.0625, -1.0625])
    a = np.where(rng.random(shape) < 0.2, special[rng.integers(0, 5, shape)], a)
    if "complex" in dtype:
        a = a * np.exp(1j * rng.uniform(-np.pi, np.pi, shape))
    return rounded(a, dtype)


def rounded(x: Array, dtype: str) -> Array:
    """``x`` as that dtype holds it, in float64 or complex128."""
    if dtype == "bfloat16":
        bits = x.astype(np.float32).view(np.uint32)
        bits = bits + 0x7FFF + ((bits >> 16) & 1) & np.uint32(0xFFFF0000)
        return bits.view(np.float32).astype(np.float64)
    return x.astype(dtype).astype(np.complex128 if "complex" in dtype else np.float64)


def assert_close(x: Array, expected: Array, dtype: str, axis: int = -1, factor: float = 1) -> None:
    """Every element within the tolerance of its row, and infinite or NaN where expected."""
    assert x.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(expected))
    infinite = np.isinf(expected)
    if not np.iscomplexobj(expected):
        np.testing.assert_array_equal(x[infinite], expected[infinite])
    zero = np.zeros_like(expected)
    error = np.abs(np.where(finite, x, zero) - np.where(finite, expected, zero))
    largest = np.abs(np.where(finite, expected, zero)).max(axis=axis, keepdims=True, initial=0)
    bound = np.broadcast_to(factor * TOLERANCE[dtype] * largest, error.shape)
    if (error > bound).any():
        worst = np.unravel_index(np.argmax(error - bound), error.shape)
        raise AssertionError(
            f"{int((error > bound).sum())} of {error.size} elements are off; at "
            f"{tuple(map(int, worst))}: {x[worst]}, not {expected[worst]} "
            f"(error {error[worst]:.3g}, allowed {bound[worst]:.3g})"
        )
