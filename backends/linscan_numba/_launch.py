"""How kernels are called: with a plan, a table in memory of numbers, addresses and strides.

Every kernel is ``kernel(plan, part, parts)``, and does one of ``parts`` parts of a call's work.  So
compiled code knows nothing of arrays.  What is known before a call is written before it: almost all
but the addresses.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from linscan_numba._jit import jit, kept_on_disk, name_for_cache
from linscan_numba._simd.elements import I64, is_reversed
from linscan_numba._simd.emitter import Emitter, emits

OUTER, TIME, INNER, HOW = range(4)
"""The first numbers of a plan: the sizes of the result; what else a call has, as its kernel says.
Four more are the kernel's own."""
FIRST = 2
"""The first operand: operand k has four numbers from 4 * k on, its address and its strides, as in
:data:`linscan._protocol.Strides`.  The address of one that is not there may be 0."""
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


class Numbers:
    """Numbers of a call in memory, and their address; those of the last call are kept."""

    def __init__(self, make: Callable[..., NDArray[Any]]) -> None:
        self._make = make
        self._last: tuple[tuple[Any, ...], tuple[NDArray[Any], int]] | None = None

    def __call__(self, *numbers: Any) -> tuple[NDArray[Any], int]:
        last = self._last
        # Zeros of both signs are equal, also as parts of complex numbers.
        real = not isinstance(numbers[0], (complex, np.complexfloating))
        if last is not None and last[0] == numbers and 0 not in numbers and real:
            return last[1]
        with np.errstate(all="ignore"):
            array = self._make(*numbers)
        made = array, _host.address(array)
        self._last = numbers, made
        return made


@cache
def absent(dtype: str) -> NDArray[Any]:
    """What stands for an operand that is not there: all that is loaded around it are zeros."""
    return np.zeros((1, 128, 1), dtype)[:, 64:65]


# These are instructions rather than functions, which numba would compile for every operand anew.


def _number(emit: Emitter, plan: Any, k: Any) -> Any:
    return emit.builder.load(emit.builder.gep(emit.pointer(plan, I64), [k]))


def _of_operand(emit: Emitter, plan: Any, operand: Any, k: Any) -> Any:
    """Number ``k`` of an operand: its address, or the stride ``k - 1``."""
    if isinstance(k, int):
        k = ir.Constant(I64, k)
    first = emit.builder.mul(operand, ir.Constant(I64, 4))
    return _number(emit, plan, emit.builder.add(first, k))


@emits(lambda plan, k: (types.int64,) * 3)
def peek(emit: Emitter, plan: Any, k: Any) -> Any:
    """Number ``k`` of a plan."""
    return _number(emit, plan, k)


@emits(lambda plan, operand: (types.UniTuple(types.int64, 4), types.int64, types.int64))
def locate(emit: Emitter, plan: Any, operand: Any) -> Any:
    """``(address, outer, time, inner)`` of an operand."""
    numbers = [_of_operand(emit, plan, operand, k) for k in range(4)]
    return emit.context.make_tuple(emit.builder, emit.returns, numbers)


@emits(
    lambda direction, plan, operand: (
        types.UniTuple(types.int64, 4),
        direction,
        types.int64,
        types.int64,
    )
)
def walk(emit: Emitter, direction: Any, plan: Any, operand: Any) -> Any:
    """The same in the order of a scan: from its first step on, the stride of time signed."""
    b = emit.builder
    address, outer, time, inner = (_of_operand(emit, plan, operand, k) for k in range(4))
    if is_reversed(emit.types[0]):
        steps = _number(emit, plan, ir.Constant(I64, TIME))
        back = b.mul(b.sub(steps, ir.Constant(I64, 1)), time)
        address, time = b.add(address, back), b.neg(time)
    return emit.context.make_tuple(b, emit.returns, [address, outer, time, inner])


@emits(lambda x, row, step, column: (types.UniTuple(types.int64, 3), x, *(types.int64,) * 3))
def line(emit: Emitter, x: Any, row: Any, step: Any, column: Any) -> Any:
    """``(address, time, inner)`` from an element on, of what ``locate`` or ``walk`` found."""
    b = emit.builder
    address, outer, time, inner = (b.extract_value(x, k) for k in range(4))
    for i, by in ((row, outer), (column, inner), (step, time)):
        address = b.add(address, b.mul(i, by))
    return emit.context.make_tuple(b, emit.returns, [address, time, inner])


@emits(lambda plan, operand, axis: (types.int64,) * 4)
def stride(emit: Emitter, plan: Any, operand: Any, axis: Any) -> Any:
    """The bytes from one element to the next along an axis: ``OUTER``, ``TIME`` or ``INNER``."""
    return _of_operand(emit, plan, operand, emit.builder.add(axis, ir.Constant(I64, 1)))


@emits(lambda plan, operand, row, column: (types.int64,) * 5)
def origin(emit: Emitter, plan: Any, operand: Any, row: Any, column: Any) -> Any:
    """The address of an operand's first step in a row and column."""
    address = _of_operand(emit, plan, operand, 0)
    for i, axis in ((row, OUTER), (column, INNER)):
        bytes_apart = _of_operand(emit, plan, operand, 1 + axis)
        address = emit.builder.add(address, emit.builder.mul(i, bytes_apart))
    return address


@emits(lambda kernel, plan, part, parts: (types.none, *(types.int64,) * 4))
def invoke(emit: Emitter, kernel: Any, plan: Any, part: Any, parts: Any) -> Any:
    """Call a kernel by its address."""
    signature = ir.FunctionType(ir.VoidType(), [I64] * 3)
    emit.builder.call(emit.pointer(kernel, signature), [plan, part, parts])
    return emit.context.get_dummy_value()


def kernel(function: Any) -> Any:
    """``function(plan, part, parts)`` compiled: its ``address`` is what :func:`invoke` takes."""
    signature = types.void(types.int64, types.int64, types.int64)
    name_for_cache(function, signature)
    return kept_on_disk(
        lambda cache: numba.cfunc(signature, cache=cache, error_model="numpy")(function)
    )


@jit(inline=True)
def share(n: int, part: int, parts: int) -> tuple[int, int]:
    """Where a part of ``n`` things begins and ends."""
    return n * part // parts, n * (part + 1) // parts


FEW = 2
"""Columns that fill no more vectors are few: they are walked a vector after the other."""

STEPS_AHEAD = 16
"""How many steps before it is written the memory of few columns is claimed."""

NARROWEST = 16
"""The vectors of a block of columns at least.  A step of it costs something, however narrow it is,
and threads that write into neighbouring lines of memory wait for each other."""


@jit(inline=True)
def vectors_of_a_block(outer: int, inner: int, lanes: int, most: int, parts: int) -> Any:
    """How many vectors to take together of columns that are divided into so many parts."""
    own = inner if outer >= parts else (inner + parts - 1) // parts
    return min(most, max(NARROWEST, (own + lanes - 1) // lanes))
