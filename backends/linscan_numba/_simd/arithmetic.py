"""Constants, arithmetic and logic, lane by lane."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types

from linscan_numba._simd.elements import I1, element_of
from linscan_numba._simd.emitter import Emitter, as_first, emits


@emits(lambda token, x: (element_of(token).vector, token, x))
def splat(emit: Emitter, token: Any, x: Any) -> Any:
    """A vector of the working type whose lanes are all ``x``, rounded to that type."""
    element = element_of(emit.types[0])
    x = emit.context.cast(emit.builder, x, emit.types[1], element.working)
    return emit.splat(x, element.lanes)


@emits(lambda token, x: (element_of(token).working, token, x))
def rounded(emit: Emitter, token: Any, x: Any) -> Any:
    """A number in the working type."""
    return emit.context.cast(emit.builder, x, emit.types[1], element_of(emit.types[0]).working)


@emits(lambda token: (element_of(token).vector,))
def zeros(emit: Emitter, token: Any) -> Any:
    """A vector of zeros."""
    vector = emit.context.get_value_type(element_of(emit.types[0]).vector)
    return ir.Constant(vector, [0.0] * vector.count)


@emits(lambda token: (element_of(token).mask,))
def never(emit: Emitter, token: Any) -> Any:
    """A mask that is false everywhere."""
    n = element_of(emit.types[0]).lanes
    return ir.Constant(ir.VectorType(I1, n), [0] * n)


@emits(as_first)
def add(emit: Emitter, x: Any, y: Any) -> Any:
    """``x + y``."""
    return emit.add(x, y)


@emits(as_first)
def sub(emit: Emitter, x: Any, y: Any) -> Any:
    """``x - y``."""
    return emit.builder.fsub(x, y)


@emits(as_first)
def mul(emit: Emitter, x: Any, y: Any) -> Any:
    """``x * y``."""
    return emit.mul(x, y)


@emits(as_first)
def fma(emit: Emitter, x: Any, y: Any, z: Any) -> Any:
    """``x * y + z``; unless complex, in one rounding where the machine can.  Vectors or scalars."""
    kind = emit.types[0]
    if not isinstance(kind, types.Complex):
        return emit.fma(x, y, z)
    mul, add = (
        emit.context.get_function(f, kind(kind, kind)) for f in (operator.mul, operator.add)
    )
    return add(emit.builder, (mul(emit.builder, (x, y)), z))


@emits(lambda mask, x, y: (x,))
def select(emit: Emitter, mask: Any, x: Any, y: Any) -> Any:
    """Of ``x`` where the mask is true, of ``y`` elsewhere."""
    return emit.builder.select(mask, x, y)


@emits(as_first)
def both(emit: Emitter, x: Any, y: Any) -> Any:
    """Where two masks are true."""
    return emit.builder.and_(x, y)


@emits(as_first)
def either(emit: Emitter, x: Any, y: Any) -> Any:
    """Where one of two masks is true."""
    return emit.builder.or_(x, y)


@emits(as_first)
def invert(emit: Emitter, x: Any) -> Any:
    """Where a mask is false."""
    return emit.builder.not_(x)


def _bits(emit: Emitter, mask: Any) -> Any:
    return emit.builder.bitcast(mask, ir.IntType(mask.type.count))


@emits(lambda mask: (types.boolean,))
def any_of(emit: Emitter, mask: Any) -> Any:
    """Whether a mask is true anywhere."""
    bits = _bits(emit, mask)
    return emit.builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))


@emits(lambda mask: (types.boolean,))
def all_of(emit: Emitter, mask: Any) -> Any:
    """Whether a mask is true everywhere."""
    bits = _bits(emit, mask)
    return emit.builder.icmp_unsigned("==", bits, ir.Constant(bits.type, -1))


@emits(lambda x: (types.boolean,))
def any_nan(emit: Emitter, x: Any) -> Any:
    """Whether a vector holds a NaN."""
    bits = _bits(emit, emit.builder.fcmp_unordered("uno", x, x))
    return emit.builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
