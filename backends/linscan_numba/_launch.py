"""How kernels are called: with a plan, a table in memory of numbers, addresses and strides.

Every kernel is ``kernel(plan, part, parts)``, and does one of ``parts`` parts of a call's work.  So
compiled code knows nothing of arrays, and what is known before a call is written before it: all but
the addresses.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from linscan import _host
from linscan._protocol import Strides
from linscan_numba._jit import jit, name_for_cache
from linscan_numba._simd import _I64, _emits, _Emitter

OUTER, TIME, INNER, HOW = range(4)
"""The first numbers of a plan: the sizes of the result; what else a call has, as its kernel says.
Four more are the kernel's own."""
FIRST = 2
"""The first operand: operand k has four numbers from 4 * k on, its address and its strides, which
are 0 where it broadcasts.  The address of one that is not there may be 0."""
SIZE = 64
"""The numbers in a plan."""


def plan_of(
    shape: tuple[int, int, int], how: int, strides: Mapping[int, Strides] = MappingProxyType({})
) -> NDArray[np.int64]:
    """The plan of a problem, without addresses."""
    plan = np.zeros(SIZE, np.int64)
    plan[: HOW + 1] = *shape, how
    for k, own in strides.items():
        plan[4 * k + 1 : 4 * k + 4] = own
    return plan


def place(plan: NDArray[np.int64], arrays: Mapping[int, NDArray[Any]]) -> None:
    """Write the addresses and strides of operands, which must outlive the plan's use."""
    for k, x in arrays.items():
        plan[4 * k : 4 * k + 4] = _host.address(x), *_host.strides(x)


@cache
def absent(dtype: str) -> NDArray[Any]:
    """What stands for an operand that is not there: all that is loaded around it are zeros."""
    return np.zeros((1, 128, 1), dtype)[:, 64:65]


@_emits(lambda plan, k: (types.int64, types.int64, types.int64))
def peek(emit: _Emitter, plan: Any, k: Any) -> Any:
    """Number ``k`` of a plan."""
    return emit.builder.load(emit.builder.gep(emit.pointer(plan, _I64), [k]))


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


@_emits(lambda kernel, plan, part, parts: (types.none, *(types.int64,) * 4))
def invoke(emit: _Emitter, kernel: Any, plan: Any, part: Any, parts: Any) -> Any:
    """Call a kernel by its address."""
    signature = ir.FunctionType(ir.VoidType(), [_I64] * 3)
    emit.builder.call(emit.pointer(kernel, signature), [plan, part, parts])
    return emit.context.get_dummy_value()


def kernel(function: Any) -> Any:
    """``function(plan, part, parts)`` compiled: its ``address`` is what :func:`invoke` takes."""
    signature = types.void(types.int64, types.int64, types.int64)
    name_for_cache(function, signature)
    try:
        return numba.cfunc(signature, cache=True, error_model="numpy")(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        return numba.cfunc(signature, error_model="numpy")(function)


@jit(inline=True)
def share(n: int, part: int, parts: int) -> tuple[int, int]:
    """Where a part of ``n`` things begins and ends."""
    return n * part // parts, n * (part + 1) // parts
