"""Arrays as kernels see them: an address, and one stride in bytes per dimension.

Kernels take every operand as a three-dimensional ``(outer, time, inner)`` array of one numba type
per dtype, which matches arrays of any layout, alignment and writability, so that each kernel is
compiled once.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any

from numba import types

from linscan_numba._jit import jit
from linscan_numba._simd import Token

_NUMBA = {
    "float16": types.uint16,
    "bfloat16": types.uint16,
    "float32": types.float32,
    "float64": types.float64,
    "complex64": types.complex64,
    "complex128": types.complex128,
    "bool": types.boolean,
}


def array(dtype: Token | str) -> Any:
    """Numba's type of an operand.  The bits of 16-bit floats travel as uint16."""
    name = dtype if isinstance(dtype, str) else dtype.name
    return types.Array(_NUMBA[name], 3, "A", readonly=True, aligned=False)


@jit(inline=True)
def locate(x: Any) -> Any:
    """``(address, outer, time, inner)`` of an operand: dimensions of size 1 have stride 0."""
    outer, time, inner = x.strides
    return (
        x.ctypes.data,
        0 if x.shape[0] == 1 else outer,
        0 if x.shape[1] == 1 else time,
        0 if x.shape[2] == 1 else inner,
    )
