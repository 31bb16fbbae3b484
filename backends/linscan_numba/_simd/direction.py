"""In which order a scan meets the elements of a vector and of a row."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from linscan_numba._simd.elements import I1, I32, I64, element_of, is_reversed
from linscan_numba._simd.emitter import Emitter, emits


@emits(lambda direction: (types.boolean,))
def is_reverse(emit: Emitter, direction: Any) -> Any:
    """Whether a direction is REVERSE; folds to a constant."""
    return ir.Constant(I1, int(is_reversed(emit.types[0])))


@emits(lambda direction, token: (types.int64,))
def step(emit: Emitter, direction: Any, token: Any) -> Any:
    """The bytes from one step's element to the next's, where those of a row lie side by side."""
    size = element_of(emit.types[1]).size
    return ir.Constant(I64, -size if is_reversed(emit.types[0]) else size)


@emits(lambda direction, token: (types.int64,))
def lead(emit: Emitter, direction: Any, token: Any) -> Any:
    """The bytes from the element that a scan meets first in a vector to the vector's address."""
    element = element_of(emit.types[1])
    back = (element.lanes - 1) * element.size
    return ir.Constant(I64, -back if is_reversed(emit.types[0]) else 0)


AHEAD = 1024
"""How many bytes before it is written the memory of a row is claimed."""


@emits(lambda direction: (types.int64,))
def ahead(emit: Emitter, direction: Any) -> Any:
    """The bytes from what a scan writes to what it has to claim."""
    return ir.Constant(I64, -AHEAD if is_reversed(emit.types[0]) else AHEAD)


@emits(lambda direction, x: (x.dtype,))
def last(emit: Emitter, direction: Any, x: Any) -> Any:
    """The lane that a scan in this direction meets last."""
    return emit.lane(x, 0 if is_reversed(emit.types[0]) else x.type.count - 1)


@emits(lambda direction, x, before: (x,))
def previous(emit: Emitter, direction: Any, x: Any, before: Any) -> Any:
    """In each lane the element that a scan in this direction met just before.

    For the first lane that is the last one of ``before``, the vector before ``x``.  In a reverse
    scan these are the values of step t + 1.  Works on masks too.
    """
    n = x.type.count
    if is_reversed(emit.types[0]):
        return emit.shuffle(x, range(1, n + 1), before)
    return emit.shuffle(before, range(n - 1, 2 * n - 1), x)


@emits(lambda direction, token, n: (element_of(token).mask, direction, token, types.int64))
def first_lanes(emit: Emitter, direction: Any, token: Any, n: Any) -> Any:
    """A mask that is true in the first ``n`` lanes that a scan in this direction meets."""
    count = element_of(emit.types[1]).lanes
    order = range(count)
    if is_reversed(emit.types[0]):
        order = order[::-1]
    numbers = ir.Constant(ir.VectorType(I32, count), list(order))
    bound = emit.splat(emit.builder.trunc(n, I32), count)
    return emit.builder.icmp_signed("<", numbers, bound)
