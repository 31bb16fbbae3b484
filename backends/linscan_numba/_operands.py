"""Arrays as kernels see them: an address, and one stride in bytes per dimension.

Kernels take every operand as a three-dimensional ``(outer, time, inner)`` array of one numba type
per dtype, which matches arrays of any layout, alignment and writability, so that each kernel is
compiled once.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from linscan_numba import _simd as simd
from linscan_numba._jit import jit

_NUMBA = {
    "float16": types.uint16,
    "bfloat16": types.uint16,
    "float32": types.float32,
    "float64": types.float64,
    "complex64": types.complex64,
    "complex128": types.complex128,
    "bool": types.boolean,
}


def array(dtype: simd.Token | str) -> Any:
    """Numba's type of an operand.  The bits of 16-bit floats travel as uint16."""
    name = dtype if isinstance(dtype, str) else dtype.name
    return types.Array(_NUMBA[name], 3, "A", readonly=True, aligned=False)


NOWHERE = 0
"""The address of an operand that is not given."""


def multiplier(A: Any, a: Any, place: Any) -> Any:
    """:func:`locate` for a multiplier; if that is a number, it is put at the address ``place``.

    For kernels only: numba takes the overload below.
    """
    raise NotImplementedError("compiled code only")


@overload(multiplier, strict=False)
def _multiplier(A: Any, a: Any, place: Any) -> Any:
    if isinstance(a, types.Array):
        return lambda A, a, place: locate(a)

    def put(A: Any, a: Any, place: Any) -> Any:
        simd.store1(A, place, a)
        return place, 0, 0, 0

    return put


@jit(inline=True)
def locate(x: Any) -> Any:
    """``(address, outer, time, inner)`` of an operand: dimensions of size 1 have stride 0."""
    outer, time, inner = x.strides
    return (
        np.int64(x.ctypes.data),
        0 if x.shape[0] == 1 else outer,
        0 if x.shape[1] == 1 else time,
        0 if x.shape[2] == 1 else inner,
    )


@jit(inline=True)
def along(direction: Any, steps: int, x: Any) -> Any:
    """An operand in the order of a scan: from its first step on, the stride of time signed."""
    address, outer, time, inner = x
    if simd.is_reverse(direction):
        return address + (steps - 1) * time, outer, -time, inner
    return address, outer, time, inner


@jit(inline=True)
def line(x: Any, row: Any, step: int) -> Any:
    """``(address, stride)`` of the steps of a row ``(outer, inner)``, from a step on."""
    address, outer, time, inner = x
    return address + row[0] * outer + step * time + row[1] * inner, time


@jit(inline=True)
def optional(given: bool, x: Any) -> Any:
    """``x`` if it is given, else an operand at NOWHERE."""
    return x if given else (NOWHERE, 0, 0, 0)


HAS_INITIAL, HAS_RESET, IN_PLACE, STREAMED = 1, 2, 4, 8
"""What a call has, added up: an initial state, resets, ``out`` that is ``b``, streamed results."""


def signature(A: simd.Token, E: simd.Token, number: bool) -> tuple[Any, ...]:
    """The types of a scan kernel's arguments: ``(a, b, initial, reset, x, how)``.

    ``A`` and ``E`` are the types of the multipliers and of everything else; ``number``: the
    multiplier is a number, not an array.  What ``how`` says is not given may be anything.
    """
    operand = array(E)
    a = array(A) if not number else simd.working(A)
    return a, operand, operand, array("bool"), operand, types.int64


@jit(inline=True)
def located(
    direction: Any, A: Any, place: int, a: Any, b: Any, initial: Any, reset: Any, x: Any, how: int
) -> Any:
    """Where the operands of a scan kernel are, in the order of the scan.

    A multiplier that is a number is put at the address ``place``.
    """
    steps = x.shape[1]
    return (
        along(direction, steps, multiplier(A, a, place)),
        along(direction, steps, locate(b)),
        optional(how & HAS_INITIAL != 0, locate(initial)),
        optional(how & HAS_RESET != 0, along(direction, steps, locate(reset))),
        along(direction, steps, locate(x)),
    )
