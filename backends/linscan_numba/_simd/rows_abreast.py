"""Four steps of as many rows as there are lanes.

Where lanes are rows, and the steps of a row lie side by side, four steps of all the rows are loaded
at once, four contiguous elements per row, and turned: four vectors, one per step, in the order in
which a scan meets them.  Before it is turned, vector k holds the rows k, k + 4, k + 8...  so that
turning exchanges neighbours only.  ``n`` is how many of the four steps are there; None means all of
them, and costs nothing.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from linscan_numba._simd.elements import I8, I32, I64, element_of, is_reversed
from linscan_numba._simd.emitter import Emitter, emits

SIDE = 4
"""The steps of a block."""


def _turned(emit: Emitter, x: Sequence[Any]) -> list[Any]:
    """Four vectors, every four lanes of them transposed as a matrix.  Its own inverse."""
    lanes = range(x[0].type.count)

    def pick(y: Any, z: Any, order: Sequence[int]) -> Any:
        """In every four lanes, those of ``y`` (0 to 3) and of ``z`` (4 to 7) in that order."""
        chosen = [order[i % SIDE] for i in lanes]
        base = [i - i % SIDE for i in lanes]
        places = [
            b + c % SIDE + len(lanes) * (c // SIDE) for b, c in zip(base, chosen, strict=True)
        ]
        return emit.shuffle(y, places, z)

    low, high, left, right = (0, 4, 1, 5), (2, 6, 3, 7), (0, 1, 4, 5), (2, 3, 6, 7)
    y = [
        pick(x[0], x[1], low),
        pick(x[2], x[3], low),
        pick(x[0], x[1], high),
        pick(x[2], x[3], high),
    ]
    return [
        pick(y[0], y[1], left),
        pick(y[0], y[1], right),
        pick(y[2], y[3], left),
        pick(y[2], y[3], right),
    ]


def _block(
    emit: Emitter, reverse: bool, size: int, lanes: int, address: Any, stride: Any, n: Any
) -> tuple[list[Any], Any]:
    """Where the four steps of each row begin in memory; and which of them are there, if not all."""
    b = emit.builder
    if reverse:
        address = b.sub(address, ir.Constant(I64, (SIDE - 1) * size))
    places = []
    for row in range(0, lanes, SIDE):
        first = b.gep(emit.pointer(address, I8), [b.mul(stride, ir.Constant(I64, row))])
        places += [b.gep(first, [b.mul(stride, ir.Constant(I64, k))]) for k in range(SIDE)]
    if n.type != I64:
        return places, None
    order = range(SIDE)[::-1] if reverse else range(SIDE)
    numbers = ir.Constant(ir.VectorType(I64, SIDE), list(order))
    return places, b.icmp_signed("<", numbers, emit.splat(n, SIDE))


def _load_block(
    emit: Emitter, reverse: bool, bits: Any, lanes: int, address: Any, stride: Any, n: Any
) -> list[Any]:
    """Four vectors of integers."""
    kind = ir.VectorType(bits, SIDE)
    places, inside = _block(emit, reverse, bits.width // 8, lanes, address, stride, n)
    vectors = []
    for k in range(SIDE):
        parts = [
            emit.builder.load(emit.builder.bitcast(place, kind.as_pointer()), align=1)
            if inside is None
            else emit.load_masked(kind, emit.builder.ptrtoint(place, I64), inside)
            for place in places[k::SIDE]
        ]
        while len(parts) > 1:
            wide = range(2 * parts[0].type.count)
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [emit.shuffle(x, wide, y) for x, y in pairs]
        vectors += parts
    steps = _turned(emit, vectors)
    return steps[::-1] if reverse else steps


@emits(
    lambda direction, token, address, stride, n: (
        types.UniTuple(element_of(token).vector, SIDE),
        direction, token, types.int64, types.int64, n
    )
)  # fmt: skip
def load_rows(emit: Emitter, direction: Any, token: Any, address: Any, stride: Any, n: Any) -> Any:
    """Four steps of as many rows as there are lanes, ``stride`` bytes apart.

    ``address`` is the element that a scan in this direction meets first.
    """
    element = element_of(emit.types[1])
    bits = ir.IntType(8 * element.size)
    steps = _load_block(emit, is_reversed(emit.types[0]), bits, element.lanes, address, stride, n)
    kind = ir.VectorType(element.stored, element.lanes)
    steps = [emit.decode(emit.types[1], emit.builder.bitcast(x, kind)) for x in steps]
    return emit.context.make_tuple(emit.builder, emit.returns, steps)


@emits(
    lambda direction, token, address, stride, n: (
        types.UniTuple(element_of(token).mask, SIDE), direction, token, types.int64, types.int64, n
    )
)  # fmt: skip
def load_rows_flags(
    emit: Emitter, direction: Any, token: Any, address: Any, stride: Any, n: Any
) -> Any:
    """The same of bools: four masks."""
    lanes = element_of(emit.types[1]).lanes
    steps = _load_block(emit, is_reversed(emit.types[0]), I8, lanes, address, stride, n)
    zero = ir.Constant(ir.VectorType(I8, lanes), [0] * lanes)
    masks = [emit.builder.icmp_unsigned("!=", x, zero) for x in steps]
    return emit.context.make_tuple(emit.builder, emit.returns, masks)


@emits(
    lambda direction, token, address, stride, n, steps: (
        types.none, direction, token, types.int64, types.int64, n, steps
    )
)  # fmt: skip
def store_rows(
    emit: Emitter, direction: Any, token: Any, address: Any, stride: Any, n: Any, steps: Any
) -> Any:
    """Write what :func:`load_rows` would read."""
    b, element, reverse = emit.builder, element_of(emit.types[1]), is_reversed(emit.types[0])
    bits = ir.VectorType(ir.IntType(8 * element.size), element.lanes)
    vectors = [
        b.bitcast(emit.encode(emit.types[1], b.extract_value(steps, k)), bits) for k in range(SIDE)
    ]
    vectors = _turned(emit, vectors[::-1] if reverse else vectors)
    places, inside = _block(emit, reverse, element.size, element.lanes, address, stride, n)
    for row, place in enumerate(places):
        first = row - row % SIDE
        x = emit.shuffle(vectors[row % SIDE], range(first, first + SIDE))
        pointer = b.bitcast(place, x.type.as_pointer())
        if inside is None:
            b.store(x, pointer, align=1)
        else:
            align = ir.Constant(I32, 1)
            emit.masked("store", x.type, x, pointer, align, inside, returns=ir.VoidType())
    return emit.context.get_dummy_value()
