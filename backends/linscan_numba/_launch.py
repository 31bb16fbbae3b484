"""How the estimators' kernels are called: with a plan, a table of addresses and strides in memory.

An entry takes arrays, writes the plan, and calls a kernel by address, whole or in parts.  There is
one entry per dtype, whichever kernel it calls, so that arrays and threads are compiled for once.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils

from linscan_numba import _simd as simd
from linscan_numba._jit import jit, name_for_cache
from linscan_numba._operands import array
from linscan_numba._simd import _I64, _emits, _Emitter

REWARDS, VALUES, NEXT_VALUES, LAST_VALUES, FINAL_VALUES, RETURNS, ADVANTAGES = range(7)
"""The operands of the problem's dtype, by their rows in the plan.  ``FINAL_VALUES`` follow a
truncated step."""
ENDED, TRUNCATED, MASK = range(7, 10)
"""The bools."""
WEIGHTS = 10
"""Along time: of the next value where the trace goes on and where it ends; of the next state."""
TIME, INNER, WIDTH, HOW = range(44, 48)
"""Numbers, after the operands.  ``WIDTH``: the columns of a block, which are one unit of work."""

GIVEN, CARRIED, CURRENT, STREAMED = 1, 2, 4, 8
"""What a call has, added up in ``HOW``: next values; results at masked steps, which are the state
passing by; truncated steps that are followed by their own value; results that are written past the
caches."""

LINES, ROWS, COLUMNS = 0, 2, 3
"""What a kernel takes: any strides; adjoining steps; adjoining columns.  The last two are the
places of that stride in the plan."""

NARROWEST = 16
"""The vectors of a block of columns at least: it costs something per step, however narrow it is."""


@_emits(lambda plan, k: (types.int64, types.int64, types.int64))
def peek(emit: _Emitter, plan: Any, k: Any) -> Any:
    """Number ``k`` of a plan."""
    return emit.builder.load(emit.builder.gep(emit.pointer(plan, _I64), [k]))


@_emits(lambda plan, k, x: (types.none, types.int64, types.int64, types.int64))
def poke(emit: _Emitter, plan: Any, k: Any, x: Any) -> Any:
    """Set number ``k`` of a plan."""
    emit.builder.store(x, emit.builder.gep(emit.pointer(plan, _I64), [k]))
    return emit.context.get_dummy_value()


@_emits(lambda plan, operand, x: (types.none, types.int64, types.int64, x))
def place(emit: _Emitter, plan: Any, operand: Any, x: Any) -> Any:
    """Write the address of an array, and its strides, 0 where it broadcasts."""
    builder = emit.builder
    arrays = emit.context.make_array(emit.types[2])(emit.context, builder, x)
    strides = zip(
        cgutils.unpack_tuple(builder, arrays.shape),
        cgutils.unpack_tuple(builder, arrays.strides),
        strict=True,
    )
    one, zero = ir.Constant(_I64, 1), ir.Constant(_I64, 0)
    entry = [builder.ptrtoint(arrays.data, _I64)]
    entry += [builder.select(builder.icmp_signed("==", n, one), zero, s) for n, s in strides]
    first = builder.mul(operand, ir.Constant(_I64, 4))
    for k, number in enumerate(entry):
        at = builder.add(first, ir.Constant(_I64, k))
        builder.store(number, builder.gep(emit.pointer(plan, _I64), [at]))
    return emit.context.get_dummy_value()


@_emits(lambda plan, operand, row, column: (types.int64, *(types.int64,) * 4))
def line(emit: _Emitter, plan: Any, operand: Any, row: Any, column: Any) -> Any:
    """The address of an operand's first step in a row and column."""
    builder = emit.builder
    first = builder.gep(emit.pointer(plan, _I64), [builder.mul(operand, ir.Constant(_I64, 4))])
    address, by_row, by_column = (
        builder.load(builder.gep(first, [ir.Constant(_I64, k)])) for k in (0, 1, 3)
    )
    return builder.add(
        address, builder.add(builder.mul(row, by_row), builder.mul(column, by_column))
    )


@_emits(lambda plan, operand: (types.int64, types.int64, types.int64))
def step(emit: _Emitter, plan: Any, operand: Any) -> Any:
    """The bytes from one step of an operand to the next."""
    k = emit.builder.add(emit.builder.mul(operand, ir.Constant(_I64, 4)), ir.Constant(_I64, 2))
    return emit.builder.load(emit.builder.gep(emit.pointer(plan, _I64), [k]))


@_emits(lambda kernel, plan, begin, end: (types.none, *(types.int64,) * 4))
def invoke(emit: _Emitter, kernel: Any, plan: Any, begin: Any, end: Any) -> Any:
    """Call a kernel by its address."""
    signature = ir.FunctionType(ir.VoidType(), [_I64] * 3)
    emit.builder.call(emit.pointer(kernel, signature), [plan, begin, end])
    return emit.context.get_dummy_value()


def kernel(function: Any) -> Any:
    """``function(plan, begin, end)``, which does some of a problem's units of work, compiled."""
    signature = types.void(types.int64, types.int64, types.int64)
    name_for_cache(function, signature)
    try:
        return numba.cfunc(signature, cache=True, error_model="numpy")(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        return numba.cfunc(signature, error_model="numpy")(function)


@jit(inline=True)
def write(
    token: simd.Token,
    plan: int,
    parts: int,
    axis: int,
    fits: int,
    values: Any,
    flags: Any,
    weights: Any,
    how: int,
) -> Any:
    """Write the plan of a call; the units of work, or -1 if the kernel does not take the strides.

    Bit k of ``fits`` is set for each operand k that must have the stride.
    """
    size, lanes = simd.size(token), simd.lanes(token)
    outer, time, inner = values[RETURNS].shape
    k = 0
    for x in values:
        place(plan, k, x)
        k += 1
    for x in flags:
        place(plan, k, x)
        k += 1
    place(plan, WEIGHTS, weights)
    poke(plan, TIME, time)
    poke(plan, INNER, inner)

    for k in range(WEIGHTS):
        if (fits >> k) & 1:
            if peek(plan, 4 * k + axis) != (size if k < ENDED else 1):
                return -1
            if k in (RETURNS, ADVANTAGES):
                for i in range(axis):
                    if peek(plan, 4 * k + i) % 64 != 0:
                        how &= ~STREAMED
    if axis == COLUMNS and inner % lanes != 0:
        how &= ~STREAMED  # whole vectors are streamed
    poke(plan, HOW, how)
    if axis != COLUMNS:
        return outer * inner
    share = inner if outer >= parts else (inner + parts - 1) // parts
    width = max(NARROWEST, (share + lanes - 1) // lanes) * lanes
    width = min(width, simd.SCRATCH // size)
    poke(plan, WIDTH, width)
    return outer * ((inner + width - 1) // width)


@cache
def entries(dtype: str) -> tuple[Any, Callable[[], Any]]:
    """``(serial, threaded)`` for :func:`linscan_numba._threads.run`.

    They take the address of a kernel, what strides it needs, and the operands in the order of the
    plan.  Both return whether the operands had the strides; if not, nothing was done.
    """
    token = simd.ELEMENTS[dtype]

    def serial(  # type: ignore[no-untyped-def]
        kernel, axis, fits, x0, x1, x2, x3, x4, x5, x6, f0, f1, f2, weights, how
    ):
        plan, values, flags = simd.scratch(), (x0, x1, x2, x3, x4, x5, x6), (f0, f1, f2)
        units = write(token, plan, 1, axis, fits, values, flags, weights, how)
        if units > 0:
            invoke(kernel, plan, 0, units)
        return units >= 0

    def threaded(  # type: ignore[no-untyped-def]
        parts, kernel, axis, fits, x0, x1, x2, x3, x4, x5, x6, f0, f1, f2, weights, how
    ):
        plan, values, flags = simd.scratch(), (x0, x1, x2, x3, x4, x5, x6), (f0, f1, f2)
        units = write(token, plan, parts, axis, fits, values, flags, weights, how)
        some = max(units, 0)
        for part in numba.prange(parts):
            invoke(kernel, plan, some * part // parts, some * (part + 1) // parts)
        return units >= 0

    arguments = (
        *(types.int64,) * 3,
        *(array(token),) * 7,
        *(array("bool"),) * 3,
        array(simd.FLOAT64),
        types.int64,
    )
    return (
        jit(types.boolean(*arguments))(serial),
        cache(lambda: jit(types.boolean(types.int64, *arguments), parallel=True)(threaded)),
    )
