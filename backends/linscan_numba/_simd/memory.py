"""Vectors, elements and bools in memory, which is named by integer addresses."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from linscan_numba._simd.elements import I8, I32, I64, element_of
from linscan_numba._simd.emitter import Emitter, emits, shaped


@emits(lambda token: (types.int64,))
def lanes(emit: Emitter, token: Any) -> Any:
    """How many elements a vector has."""
    return ir.Constant(I64, element_of(emit.types[0]).lanes)


@emits(lambda token: (types.int64,))
def size(emit: Emitter, token: Any) -> Any:
    """The bytes of an element in memory."""
    return ir.Constant(I64, element_of(emit.types[0]).size)


@emits(lambda token, address: (element_of(token).vector, token, types.int64))
def load(emit: Emitter, token: Any, address: Any) -> Any:
    """The vector at an address."""
    element = element_of(emit.types[0])
    pointer = emit.pointer(address, ir.VectorType(element.stored, element.lanes))
    return emit.decode(emit.types[0], emit.builder.load(pointer, align=1))


def _store(emit: Emitter, address: Any, x: Any, aligned: bool) -> Any:
    x = emit.encode(emit.types[0], x)
    size = element_of(emit.types[0]).size * x.type.count
    store = emit.builder.store(x, emit.pointer(address, x.type), align=size if aligned else 1)
    if aligned:
        store.set_metadata("nontemporal", emit.builder.module.add_metadata([ir.Constant(I32, 1)]))
    return emit.context.get_dummy_value()


@emits(lambda token, address, x: (types.none, token, types.int64, x))
def store(emit: Emitter, token: Any, address: Any, x: Any) -> Any:
    """Write a vector to an address."""
    return _store(emit, address, x, aligned=False)


@emits(
    lambda token, address, whole, inside, outside: (
        outside, token, types.int64, types.boolean, inside, outside
    )
)  # fmt: skip
def load_edge(
    emit: Emitter, token: Any, address: Any, whole: Any, inside: Any, outside: Any
) -> Any:
    """The vector at an address where a row may end.

    If it is not ``whole``, the lanes that are not ``inside`` are those of ``outside``, and their
    memory is not touched.
    """
    element = element_of(emit.types[0])
    kind, bits = (
        ir.VectorType(of, element.lanes) for of in (element.stored, ir.IntType(8 * element.size))
    )

    def all_lanes() -> Any:
        x = emit.builder.load(emit.pointer(address, kind), align=1)
        return emit.decode(emit.types[0], x)

    def some_lanes() -> Any:
        x = emit.builder.bitcast(emit.load_masked(bits, address, inside), kind)
        return emit.builder.select(inside, emit.decode(emit.types[0], x), outside)

    return emit.either(whole, all_lanes, some_lanes)


@emits(
    lambda token, address, whole, inside, x: (
        types.none, token, types.int64, types.boolean, inside, x
    )
)  # fmt: skip
def store_edge(emit: Emitter, token: Any, address: Any, whole: Any, inside: Any, x: Any) -> Any:
    """Write a vector where a row may end: if it is not ``whole``, the lanes ``inside``."""
    element = element_of(emit.types[0])
    bits = ir.VectorType(ir.IntType(8 * element.size), element.lanes)
    x = emit.builder.bitcast(emit.encode(emit.types[0], x), bits)
    pointer = emit.pointer(address, bits)
    with emit.builder.if_else(whole) as (then, otherwise):
        with then:
            emit.builder.store(x, pointer, align=1)
        with otherwise:
            align = ir.Constant(I32, 1)
            emit.masked("store", bits, x, pointer, align, inside, returns=ir.VoidType())
    return emit.context.get_dummy_value()


@emits(lambda token, address, x: (types.none, token, types.int64, x))
def stream(emit: Emitter, token: Any, address: Any, x: Any) -> Any:
    """Write a vector past the caches; the address is a multiple of the vector's size."""
    return _store(emit, address, x, aligned=True)


@emits(lambda token, address: (element_of(token).working, token, types.int64))
def load1(emit: Emitter, token: Any, address: Any) -> Any:
    """The element at an address."""
    element = element_of(emit.types[0])
    pointer = emit.pointer(address, element.stored)
    if not isinstance(element.working, types.Complex):
        return emit.decode(emit.types[0], emit.builder.load(pointer, align=1))
    number = emit.context.make_complex(emit.builder, element.working)
    number.real = emit.builder.load(pointer, align=1)
    number.imag = emit.builder.load(emit.builder.gep(pointer, [ir.Constant(I64, 1)]), align=1)
    return number._getvalue()


@emits(lambda token, address, x: (types.none, token, types.int64, element_of(token).working))
def store1(emit: Emitter, token: Any, address: Any, x: Any) -> Any:
    """Write an element to an address."""
    element = element_of(emit.types[0])
    pointer = emit.pointer(address, element.stored)
    if not isinstance(element.working, types.Complex):
        emit.builder.store(emit.encode(emit.types[0], x), pointer, align=1)
    else:
        number = emit.context.make_complex(emit.builder, element.working, value=x)
        second = emit.builder.gep(pointer, [ir.Constant(I64, 1)])
        emit.builder.store(number.real, pointer, align=1)
        emit.builder.store(number.imag, second, align=1)
    return emit.context.get_dummy_value()


@emits(lambda token, address: (element_of(token).mask, token, types.int64))
def load_flags(emit: Emitter, token: Any, address: Any) -> Any:
    """The mask of the bools at an address, as many as the token's vectors have lanes."""
    kind = ir.VectorType(I8, element_of(emit.types[0]).lanes)
    flags = emit.builder.load(emit.pointer(address, kind), align=1)
    return emit.builder.icmp_unsigned("!=", flags, ir.Constant(kind, [0] * kind.count))


@emits(
    lambda token, address, whole, inside: (
        inside, token, types.int64, types.boolean, inside
    )
)  # fmt: skip
def load_edge_flags(emit: Emitter, token: Any, address: Any, whole: Any, inside: Any) -> Any:
    """The mask of the bools at an address where a row may end: false beyond."""
    kind = ir.VectorType(I8, element_of(emit.types[0]).lanes)
    flags = emit.either(
        whole,
        lambda: emit.builder.load(emit.pointer(address, kind), align=1),
        lambda: emit.load_masked(kind, address, inside),
    )
    return emit.builder.icmp_unsigned("!=", flags, ir.Constant(kind, [0] * kind.count))


@emits(lambda token, address, mask: (types.none, token, types.int64, mask))
def store_flags(emit: Emitter, token: Any, address: Any, mask: Any) -> Any:
    """Write a mask as bools."""
    bools = emit.builder.zext(mask, shaped(I8, mask))
    emit.builder.store(bools, emit.pointer(address, bools.type), align=1)
    return emit.context.get_dummy_value()


@emits(lambda address: (types.boolean, types.int64))
def load_flag(emit: Emitter, address: Any) -> Any:
    """The bool at an address."""
    flag = emit.builder.load(emit.pointer(address, I8))
    return emit.builder.icmp_unsigned("!=", flag, ir.Constant(I8, 0))


def _prefetch(emit: Emitter, address: Any, write: int, locality: int) -> Any:
    hints = [ir.Constant(I32, n) for n in (write, locality, 1)]
    emit.call("prefetch", emit.pointer(address, I8), *hints, returns=ir.VoidType())
    return emit.context.get_dummy_value()


@emits(lambda address: (types.none, types.int64))
def prefetch(emit: Emitter, address: Any) -> Any:
    """Ask for the line at an address to be brought to the second-level cache."""
    return _prefetch(emit, address, write=0, locality=2)


@emits(lambda token, address: (types.none, token, types.int64))
def claim(emit: Emitter, token: Any, address: Any) -> Any:
    """Ask that this core alone may have the line at an address, which is soon to be written.

    A store has to wait for that, and so do all behind it.  Elements of 2 bytes are not claimed:
    what they cost is their conversion.
    """
    if element_of(emit.types[0]).size == 2:
        return emit.context.get_dummy_value()
    return _prefetch(emit, address, write=1, locality=3)


@emits(lambda token, address, stride: (element_of(token).vector, token, types.int64, types.int64))
def load_apart(emit: Emitter, token: Any, address: Any, stride: Any) -> Any:
    """A vector of elements that are ``stride`` bytes apart."""
    b, element = emit.builder, element_of(emit.types[0])
    x = ir.Constant(ir.VectorType(element.stored, element.lanes), ir.Undefined)
    for k in range(element.lanes):
        place = b.add(address, b.mul(stride, ir.Constant(I64, k)))
        y = b.load(emit.pointer(place, element.stored), align=1)
        x = b.insert_element(x, y, ir.Constant(I32, k))
    return emit.decode(emit.types[0], x)


@emits(lambda: (types.none,))
def fence(emit: Emitter) -> Any:
    """Wait until streamed vectors are visible to others."""
    emit.builder.fence("seq_cst")
    return emit.context.get_dummy_value()


SCRATCH = 8192
"""The bytes of a :func:`scratch`: a tile of a row, or a step of a block of columns."""


@emits(lambda: (types.int64,))
def scratch(emit: Emitter) -> Any:
    """The address of ``SCRATCH`` bytes, aligned to 64, that live as long as the caller runs.

    The caller must not be ``jit(inline=True)``: LLVM ends their life where its body ends.
    """
    with emit.builder.goto_entry_block():
        block = emit.builder.alloca(ir.ArrayType(I8, SCRATCH))
    block.align = 64
    return emit.builder.ptrtoint(block, I64)
