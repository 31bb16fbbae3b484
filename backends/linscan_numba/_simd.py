"""A small SIMD layer: numba functions that are LLVM vector instructions.

A *vector* holds consecutive steps of one row, or neighbouring columns of one step: 16 elements of
the 2-byte and 4-byte types, 8 of float64.  LLVM lowers it to whatever the machine has.  A *mask* is
a vector of booleans.  Memory is named by integer addresses, which need not be aligned unless a
function says so.

What depends on the type of an element or on the direction of a scan takes a :class:`Token`, a
constant that exists for the compiler only.  An element is stored in the token's type and computed
with in its *working* type: float32 for the 16-bit types, otherwise the same.  Complex elements have
the scalar functions only.

The functions are grouped: memory, rows abreast, arithmetic, lanes, scans.  Each is written as a
Python function that emits LLVM instructions through an :class:`_Emitter` when a kernel is compiled.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model, typeof_impl

# Tokens ------------------------------------------------------------------------------------------


class Token:
    """A constant for the compiler: a kernel that closes over one is specialised for it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[type[Token], tuple[str]]:
        return Token, (self.name,)


FLOAT16 = Token("float16")
BFLOAT16 = Token("bfloat16")
FLOAT32 = Token("float32")
FLOAT64 = Token("float64")
COMPLEX64 = Token("complex64")
COMPLEX128 = Token("complex128")
ELEMENTS = {t.name: t for t in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128)}

FORWARD = Token("forward")
"""From step 0 on: lane 0 is the first of a vector."""
REVERSE = Token("reverse")
"""From the last step back: the highest lane is the first of a vector."""


class TokenType(types.Dummy):
    """numba's type of one token."""

    def __init__(self, token: str) -> None:
        self.token = token
        super().__init__(f"Token({token})")


@typeof_impl.register(Token)
def _typeof_token(value: Token, context: Any) -> TokenType:
    return TokenType(value.name)


register_model(TokenType)(models.OpaqueModel)

# Vectors -----------------------------------------------------------------------------------------


class VectorType(types.Type):
    """numba's type of a vector."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        super().__init__(f"Vector({dtype} x {lanes})")


_I1, _I8, _I16, _I32, _I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
_LLVM = {types.float32: ir.FloatType(), types.float64: ir.DoubleType(), types.boolean: _I1}


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: VectorType) -> None:
        super().__init__(manager, vector, ir.VectorType(_LLVM[vector.dtype], vector.lanes))


class _Element(NamedTuple):
    """What the code generators need to know of an element type."""

    stored: Any
    working: Any
    lanes: int
    size: int

    @property
    def vector(self) -> VectorType:
        return VectorType(self.working, self.lanes)

    @property
    def mask(self) -> VectorType:
        return VectorType(types.boolean, self.lanes)


_ELEMENTS = {
    "float16": _Element(ir.HalfType(), types.float32, 16, 2),
    "bfloat16": _Element(_I16, types.float32, 16, 2),
    "float32": _Element(ir.FloatType(), types.float32, 16, 4),
    "float64": _Element(ir.DoubleType(), types.float64, 8, 8),
    "complex64": _Element(ir.FloatType(), types.complex64, 8, 8),
    "complex128": _Element(ir.DoubleType(), types.complex128, 4, 16),
}


WIDTH = {name: element.lanes for name, element in _ELEMENTS.items()}
"""How many elements a vector has, by the name of their type."""


def _of(token: TokenType) -> _Element:
    return _ELEMENTS[token.token]


class _Emitter:
    """Emits the instructions of one call: LLVM's, in the few forms this layer needs.

    ``types`` are the numba types of the call's arguments.
    """

    def __init__(self, context: Any, builder: Any, signature: Any) -> None:
        self.context = context
        self.builder = builder
        self.types = signature.args
        self.returns = signature.return_type

    def pointer(self, address: Any, to: Any) -> Any:
        return self.builder.inttoptr(address, to.as_pointer())

    def call(self, name: str, *args: Any, returns: Any = None) -> Any:
        """An LLVM intrinsic overloaded on the type of its first argument."""
        of = args[0].type
        suffix = f"v{of.count}{of.element.intrinsic_name}" if _wide(of) else of.intrinsic_name
        function = ir.FunctionType(returns or of, [x.type for x in args])
        callee = cgutils.get_or_insert_function(
            self.builder.module, function, f"llvm.{name}.{suffix}"
        )
        return self.builder.call(callee, args)

    def masked(self, name: str, vector: Any, *args: Any, returns: Any) -> Any:
        """An LLVM intrinsic for some lanes of a vector in memory."""
        name = f"llvm.masked.{name}.v{vector.count}{vector.element.intrinsic_name}.p0"
        function = ir.FunctionType(returns, [x.type for x in args])
        callee = cgutils.get_or_insert_function(self.builder.module, function, name)
        return self.builder.call(callee, args)

    def load_masked(self, vector: Any, address: Any, mask: Any) -> Any:
        """Those lanes of integers at an address where the mask is true, elsewhere 0."""
        zero, align = ir.Constant(vector, [0] * vector.count), ir.Constant(_I32, 1)
        pointer = self.pointer(address, vector)
        return self.masked("load", vector, pointer, align, mask, zero, returns=vector)

    def either(self, flag: Any, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """What one of two generators emits, as a flag decides when the code runs."""
        results = []
        with self.builder.if_else(flag) as branches:
            for branch, generate in zip(branches, (one, other), strict=True):
                with branch:
                    results.append((generate(), self.builder.block))
        phi = self.builder.phi(results[0][0].type)
        for x, block in results:
            phi.add_incoming(x, block)
        return phi

    def add(self, x: Any, y: Any) -> Any:
        return self.builder.fadd(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        return self.builder.fmul(x, y)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """``x * y + z``, fused where the machine can."""
        return self.call("fmuladd", x, y, z)

    def error(self, x: Any, y: Any, product: Any) -> Any:
        """``x * y - product`` exactly: what the product lost to rounding."""
        return self.call("fma", x, y, self.builder.fneg(product))

    def constant(self, like: Any, value: Any) -> Any:
        return ir.Constant(like.type, [value] * like.type.count if _wide(like.type) else value)

    def select(self, flags: Sequence[bool], x: Any, y: Any) -> Any:
        """Of ``x`` where the constant flag is true, of ``y`` elsewhere."""
        mask = ir.Constant(ir.VectorType(_I1, len(flags)), [int(f) for f in flags])
        return self.builder.select(mask, x, y)

    def shuffle(self, x: Any, lanes: Sequence[int], y: Any = None) -> Any:
        """Lanes of ``x``, and of ``y`` counted on from there, in the constant order."""
        order = ir.Constant(ir.VectorType(_I32, len(lanes)), list(lanes))
        undefined = ir.Constant(x.type, ir.Undefined)
        return self.builder.shuffle_vector(x, undefined if y is None else y, order)

    def halves(self, x: Any) -> tuple[Any, Any]:
        n = x.type.count
        return self.shuffle(x, range(n // 2)), self.shuffle(x, range(n // 2, n))

    def lane(self, x: Any, i: int) -> Any:
        return self.builder.extract_element(x, ir.Constant(_I32, i))

    def splat(self, x: Any, n: int) -> Any:
        vector = ir.Constant(ir.VectorType(x.type, n), ir.Undefined)
        first = self.builder.insert_element(vector, x, ir.Constant(_I32, 0))
        return self.shuffle(first, [0] * n)

    def widen(self, x: Any) -> Any:
        """To float64, exactly."""
        double = ir.DoubleType()
        to = ir.VectorType(double, x.type.count) if _wide(x.type) else double
        return x if x.type == to else self.builder.fpext(x, to)

    def narrow(self, x: Any, to: Any) -> Any:
        """From float64, rounded."""
        return x if x.type == to else self.builder.fptrunc(x, to)

    def decode(self, token: TokenType, x: Any) -> Any:
        """What was loaded, in the working type."""
        if token.token == "bfloat16":
            bits = self.builder.zext(x, _shaped(_I32, x))
            shift = ir.Constant(bits.type, [16] * x.type.count if _wide(x.type) else 16)
            return self.builder.bitcast(self.builder.shl(bits, shift), _shaped(ir.FloatType(), x))
        if token.token == "float16":
            return self.builder.fpext(x, _shaped(ir.FloatType(), x))
        return x

    def encode(self, token: TokenType, x: Any) -> Any:
        """What is to be stored: ``x`` rounded to nearest, ties to even."""
        b = self.builder
        if token.token == "float16":
            return b.fptrunc(x, _shaped(ir.HalfType(), x))
        if token.token != "bfloat16":
            return x
        whole = _shaped(_I32, x)

        def integer(value: int) -> Any:
            return ir.Constant(whole, [value] * x.type.count if _wide(x.type) else value)

        bits = b.bitcast(x, whole)
        odd = b.and_(b.lshr(bits, integer(16)), integer(1))
        rounded = b.add(bits, b.add(odd, integer(0x7FFF)))
        quiet = b.or_(bits, integer(0x400000))
        bits = b.select(b.fcmp_unordered("uno", x, x), quiet, rounded)
        return b.trunc(b.lshr(bits, integer(16)), _shaped(_I16, x))


def _wide(kind: Any) -> bool:
    return isinstance(kind, ir.VectorType)


def _shaped(element: Any, like: Any) -> Any:
    return ir.VectorType(element, like.type.count) if _wide(like.type) else element


def _emits(result: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """The decorated generator as a numba function.

    ``result`` maps the types of its arguments to its signature, given as the return type followed
    by those argument types that the arguments are to be converted to.
    """

    def define(generate: Callable[..., Any]) -> Any:
        def definition(typing_context: Any, *arguments: Any) -> Any:
            returns, *converted = result(*arguments)
            signature = returns(*(converted or arguments))

            def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                return generate(_Emitter(context, builder, signature), *values)

            return signature, codegen

        definition.__name__ = generate.__name__
        definition.__doc__ = generate.__doc__
        definition.__signature__ = inspect.signature(generate)  # type: ignore[attr-defined]
        return intrinsic(definition)

    return define


def _same(x: Any, *rest: Any) -> tuple[Any]:
    return (x,)


# Memory ------------------------------------------------------------------------------------------


@_emits(lambda token: (types.int64,))
def lanes(emit: _Emitter, token: Any) -> Any:
    """How many elements a vector has."""
    return ir.Constant(_I64, _of(emit.types[0]).lanes)


@_emits(lambda token: (types.int64,))
def size(emit: _Emitter, token: Any) -> Any:
    """The bytes of an element in memory."""
    return ir.Constant(_I64, _of(emit.types[0]).size)


@_emits(lambda token, address: (_of(token).vector, token, types.int64))
def load(emit: _Emitter, token: Any, address: Any) -> Any:
    """The vector at an address."""
    element = _of(emit.types[0])
    pointer = emit.pointer(address, ir.VectorType(element.stored, element.lanes))
    return emit.decode(emit.types[0], emit.builder.load(pointer, align=1))


def _store(emit: _Emitter, address: Any, x: Any, aligned: bool) -> Any:
    x = emit.encode(emit.types[0], x)
    size = _of(emit.types[0]).size * x.type.count
    store = emit.builder.store(x, emit.pointer(address, x.type), align=size if aligned else 1)
    if aligned:
        store.set_metadata("nontemporal", emit.builder.module.add_metadata([ir.Constant(_I32, 1)]))
    return emit.context.get_dummy_value()


@_emits(lambda token, address, x: (types.none, token, types.int64, x))
def store(emit: _Emitter, token: Any, address: Any, x: Any) -> Any:
    """Write a vector to an address."""
    return _store(emit, address, x, aligned=False)


@_emits(
    lambda token, address, whole, inside, outside: (
        outside, token, types.int64, types.boolean, inside, outside
    )
)  # fmt: skip
def load_edge(
    emit: _Emitter, token: Any, address: Any, whole: Any, inside: Any, outside: Any
) -> Any:
    """The vector at an address where a row may end.

    If it is not ``whole``, the lanes that are not ``inside`` are those of ``outside``, and their
    memory is not touched.
    """
    element = _of(emit.types[0])
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


@_emits(
    lambda token, address, whole, inside, x: (
        types.none, token, types.int64, types.boolean, inside, x
    )
)  # fmt: skip
def store_edge(emit: _Emitter, token: Any, address: Any, whole: Any, inside: Any, x: Any) -> Any:
    """Write a vector where a row may end: if it is not ``whole``, the lanes ``inside``."""
    element = _of(emit.types[0])
    bits = ir.VectorType(ir.IntType(8 * element.size), element.lanes)
    x = emit.builder.bitcast(emit.encode(emit.types[0], x), bits)
    pointer = emit.pointer(address, bits)
    with emit.builder.if_else(whole) as (then, otherwise):
        with then:
            emit.builder.store(x, pointer, align=1)
        with otherwise:
            align = ir.Constant(_I32, 1)
            emit.masked("store", bits, x, pointer, align, inside, returns=ir.VoidType())
    return emit.context.get_dummy_value()


@_emits(lambda token, address, x: (types.none, token, types.int64, x))
def stream(emit: _Emitter, token: Any, address: Any, x: Any) -> Any:
    """Write a vector past the caches; the address is a multiple of the vector's size."""
    return _store(emit, address, x, aligned=True)


@_emits(lambda token, address: (_of(token).working, token, types.int64))
def load1(emit: _Emitter, token: Any, address: Any) -> Any:
    """The element at an address."""
    element = _of(emit.types[0])
    pointer = emit.pointer(address, element.stored)
    if not isinstance(element.working, types.Complex):
        return emit.decode(emit.types[0], emit.builder.load(pointer, align=1))
    number = emit.context.make_complex(emit.builder, element.working)
    number.real = emit.builder.load(pointer, align=1)
    number.imag = emit.builder.load(emit.builder.gep(pointer, [ir.Constant(_I64, 1)]), align=1)
    return number._getvalue()


@_emits(lambda token, address, x: (types.none, token, types.int64, _of(token).working))
def store1(emit: _Emitter, token: Any, address: Any, x: Any) -> Any:
    """Write an element to an address."""
    element = _of(emit.types[0])
    pointer = emit.pointer(address, element.stored)
    if not isinstance(element.working, types.Complex):
        emit.builder.store(emit.encode(emit.types[0], x), pointer, align=1)
    else:
        number = emit.context.make_complex(emit.builder, element.working, value=x)
        second = emit.builder.gep(pointer, [ir.Constant(_I64, 1)])
        emit.builder.store(number.real, pointer, align=1)
        emit.builder.store(number.imag, second, align=1)
    return emit.context.get_dummy_value()


@_emits(lambda token, address: (_of(token).mask, token, types.int64))
def load_flags(emit: _Emitter, token: Any, address: Any) -> Any:
    """The mask of the bools at an address, as many as the token's vectors have lanes."""
    kind = ir.VectorType(_I8, _of(emit.types[0]).lanes)
    flags = emit.builder.load(emit.pointer(address, kind), align=1)
    return emit.builder.icmp_unsigned("!=", flags, ir.Constant(kind, [0] * kind.count))


@_emits(
    lambda token, address, whole, inside: (
        inside, token, types.int64, types.boolean, inside
    )
)  # fmt: skip
def load_edge_flags(emit: _Emitter, token: Any, address: Any, whole: Any, inside: Any) -> Any:
    """The mask of the bools at an address where a row may end: false beyond."""
    kind = ir.VectorType(_I8, _of(emit.types[0]).lanes)
    flags = emit.either(
        whole,
        lambda: emit.builder.load(emit.pointer(address, kind), align=1),
        lambda: emit.load_masked(kind, address, inside),
    )
    return emit.builder.icmp_unsigned("!=", flags, ir.Constant(kind, [0] * kind.count))


@_emits(lambda token, address, mask: (types.none, token, types.int64, mask))
def store_flags(emit: _Emitter, token: Any, address: Any, mask: Any) -> Any:
    """Write a mask as bools."""
    bools = emit.builder.zext(mask, _shaped(_I8, mask))
    emit.builder.store(bools, emit.pointer(address, bools.type), align=1)
    return emit.context.get_dummy_value()


@_emits(lambda address: (types.boolean, types.int64))
def load_flag(emit: _Emitter, address: Any) -> Any:
    """The bool at an address."""
    flag = emit.builder.load(emit.pointer(address, _I8))
    return emit.builder.icmp_unsigned("!=", flag, ir.Constant(_I8, 0))


@_emits(lambda address: (types.none, types.int64))
def prefetch(emit: _Emitter, address: Any) -> Any:
    """Ask for the line at an address to be brought to the second-level cache."""
    read, second_level, data = (ir.Constant(_I32, n) for n in (0, 2, 1))
    emit.call(
        "prefetch", emit.pointer(address, _I8), read, second_level, data, returns=ir.VoidType()
    )
    return emit.context.get_dummy_value()


# Rows abreast ------------------------------------------------------------------------------------
#
# Where lanes are rows, and the steps of a row lie side by side, four steps of all the rows are
# loaded at once, four contiguous elements per row, and turned: four vectors, one per step, in the
# order in which a scan meets them.  Before it is turned, vector k holds the rows k, k + 4, k + 8...
# so that turning exchanges neighbours only.  ``n`` is how many of the four steps are there; None
# means all of them, and costs nothing.

SIDE = 4
"""The steps of a block."""


def _turned(emit: _Emitter, x: Sequence[Any]) -> list[Any]:
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
    emit: _Emitter, reverse: bool, size: int, lanes: int, address: Any, stride: Any, n: Any
) -> tuple[list[Any], Any]:
    """Where the four steps of each row begin in memory; and which of them are there, if not all."""
    b = emit.builder
    if reverse:
        address = b.sub(address, ir.Constant(_I64, (SIDE - 1) * size))
    places = []
    for row in range(0, lanes, SIDE):
        first = b.gep(emit.pointer(address, _I8), [b.mul(stride, ir.Constant(_I64, row))])
        places += [b.gep(first, [b.mul(stride, ir.Constant(_I64, k))]) for k in range(SIDE)]
    if n.type != _I64:
        return places, None
    order = range(SIDE)[::-1] if reverse else range(SIDE)
    numbers = ir.Constant(ir.VectorType(_I64, SIDE), list(order))
    return places, b.icmp_signed("<", numbers, emit.splat(n, SIDE))


def _load_block(
    emit: _Emitter, reverse: bool, bits: Any, lanes: int, address: Any, stride: Any, n: Any
) -> list[Any]:
    """Four vectors of integers."""
    kind = ir.VectorType(bits, SIDE)
    places, inside = _block(emit, reverse, bits.width // 8, lanes, address, stride, n)
    vectors = []
    for k in range(SIDE):
        parts = [
            emit.builder.load(emit.builder.bitcast(place, kind.as_pointer()), align=1)
            if inside is None
            else emit.load_masked(kind, emit.builder.ptrtoint(place, _I64), inside)
            for place in places[k::SIDE]
        ]
        while len(parts) > 1:
            wide = range(2 * parts[0].type.count)
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [emit.shuffle(x, wide, y) for x, y in pairs]
        vectors += parts
    steps = _turned(emit, vectors)
    return steps[::-1] if reverse else steps


@_emits(
    lambda direction, token, address, stride, n: (
        types.UniTuple(_of(token).vector, SIDE), direction, token, types.int64, types.int64, n
    )
)  # fmt: skip
def load_rows(emit: _Emitter, direction: Any, token: Any, address: Any, stride: Any, n: Any) -> Any:
    """Four steps of as many rows as there are lanes, ``stride`` bytes apart.

    ``address`` is the element that a scan in this direction meets first.
    """
    element = _of(emit.types[1])
    bits = ir.IntType(8 * element.size)
    steps = _load_block(emit, _reversed(emit.types[0]), bits, element.lanes, address, stride, n)
    kind = ir.VectorType(element.stored, element.lanes)
    steps = [emit.decode(emit.types[1], emit.builder.bitcast(x, kind)) for x in steps]
    return emit.context.make_tuple(emit.builder, emit.returns, steps)


@_emits(
    lambda direction, token, address, stride, n: (
        types.UniTuple(_of(token).mask, SIDE), direction, token, types.int64, types.int64, n
    )
)  # fmt: skip
def load_rows_flags(
    emit: _Emitter, direction: Any, token: Any, address: Any, stride: Any, n: Any
) -> Any:
    """The same of bools: four masks."""
    lanes = _of(emit.types[1]).lanes
    steps = _load_block(emit, _reversed(emit.types[0]), _I8, lanes, address, stride, n)
    zero = ir.Constant(ir.VectorType(_I8, lanes), [0] * lanes)
    masks = [emit.builder.icmp_unsigned("!=", x, zero) for x in steps]
    return emit.context.make_tuple(emit.builder, emit.returns, masks)


@_emits(
    lambda direction, token, address, stride, n, steps: (
        types.none, direction, token, types.int64, types.int64, n, steps
    )
)  # fmt: skip
def store_rows(
    emit: _Emitter, direction: Any, token: Any, address: Any, stride: Any, n: Any, steps: Any
) -> Any:
    """Write what :func:`load_rows` would read."""
    b, element, reverse = emit.builder, _of(emit.types[1]), _reversed(emit.types[0])
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
            align = ir.Constant(_I32, 1)
            emit.masked("store", x.type, x, pointer, align, inside, returns=ir.VoidType())
    return emit.context.get_dummy_value()


@_emits(lambda token, address, stride: (_of(token).vector, token, types.int64, types.int64))
def load_apart(emit: _Emitter, token: Any, address: Any, stride: Any) -> Any:
    """A vector of elements that are ``stride`` bytes apart."""
    b, element = emit.builder, _of(emit.types[0])
    x = ir.Constant(ir.VectorType(element.stored, element.lanes), ir.Undefined)
    for k in range(element.lanes):
        place = b.add(address, b.mul(stride, ir.Constant(_I64, k)))
        y = b.load(emit.pointer(place, element.stored), align=1)
        x = b.insert_element(x, y, ir.Constant(_I32, k))
    return emit.decode(emit.types[0], x)


@_emits(lambda: (types.none,))
def outline(emit: _Emitter) -> Any:
    """Keep the calling function out of its own callers, which spares the compiler copies of it."""
    emit.builder.function.attributes.add("noinline")
    return emit.context.get_dummy_value()


@_emits(lambda: (types.none,))
def fence(emit: _Emitter) -> Any:
    """Wait until streamed vectors are visible to others."""
    emit.builder.fence("seq_cst")
    return emit.context.get_dummy_value()


SCRATCH = 8192
"""The bytes of a :func:`scratch`: a tile of a row, or a step of a block of columns."""


@_emits(lambda: (types.int64,))
def scratch(emit: _Emitter) -> Any:
    """The address of ``SCRATCH`` bytes, aligned to 64, that live as long as the caller runs.

    The caller must not be ``jit(inline=True)``: LLVM ends their life where its body ends.
    """
    with emit.builder.goto_entry_block():
        block = emit.builder.alloca(ir.ArrayType(_I8, SCRATCH))
    block.align = 64
    return emit.builder.ptrtoint(block, _I64)


# Arithmetic --------------------------------------------------------------------------------------


@_emits(_same)
def add(emit: _Emitter, x: Any, y: Any) -> Any:
    """``x + y``."""
    return emit.add(x, y)


@_emits(_same)
def sub(emit: _Emitter, x: Any, y: Any) -> Any:
    """``x - y``."""
    return emit.builder.fsub(x, y)


@_emits(_same)
def mul(emit: _Emitter, x: Any, y: Any) -> Any:
    """``x * y``."""
    return emit.mul(x, y)


@_emits(_same)
def fma(emit: _Emitter, x: Any, y: Any, z: Any) -> Any:
    """``x * y + z``; unless complex, in one rounding where the machine can.  Vectors or scalars."""
    kind = emit.types[0]
    if not isinstance(kind, types.Complex):
        return emit.fma(x, y, z)
    mul, add = (
        emit.context.get_function(f, kind(kind, kind)) for f in (operator.mul, operator.add)
    )
    return add(emit.builder, (mul(emit.builder, (x, y)), z))


@_emits(lambda mask, x, y: (x,))
def select(emit: _Emitter, mask: Any, x: Any, y: Any) -> Any:
    """Of ``x`` where the mask is true, of ``y`` elsewhere."""
    return emit.builder.select(mask, x, y)


@_emits(_same)
def both(emit: _Emitter, x: Any, y: Any) -> Any:
    """Where two masks are true."""
    return emit.builder.and_(x, y)


@_emits(lambda token: (_of(token).mask,))
def never(emit: _Emitter, token: Any) -> Any:
    """A mask that is false everywhere."""
    n = _of(emit.types[0]).lanes
    return ir.Constant(ir.VectorType(_I1, n), [0] * n)


@_emits(lambda direction, token, n: (_of(token).mask, direction, token, types.int64))
def first_lanes(emit: _Emitter, direction: Any, token: Any, n: Any) -> Any:
    """A mask that is true in the first ``n`` lanes that a scan in this direction meets."""
    count = _of(emit.types[1]).lanes
    order = range(count)
    if _reversed(emit.types[0]):
        order = order[::-1]
    numbers = ir.Constant(ir.VectorType(_I32, count), list(order))
    bound = emit.splat(emit.builder.trunc(n, _I32), count)
    return emit.builder.icmp_signed("<", numbers, bound)


@_emits(_same)
def either(emit: _Emitter, x: Any, y: Any) -> Any:
    """Where one of two masks is true."""
    return emit.builder.or_(x, y)


@_emits(_same)
def invert(emit: _Emitter, x: Any) -> Any:
    """Where a mask is false."""
    return emit.builder.not_(x)


def _bits(emit: _Emitter, mask: Any) -> Any:
    return emit.builder.bitcast(mask, ir.IntType(mask.type.count))


@_emits(lambda mask: (types.boolean,))
def any_of(emit: _Emitter, mask: Any) -> Any:
    """Whether a mask is true anywhere."""
    bits = _bits(emit, mask)
    return emit.builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))


@_emits(lambda mask: (types.boolean,))
def all_of(emit: _Emitter, mask: Any) -> Any:
    """Whether a mask is true everywhere."""
    bits = _bits(emit, mask)
    return emit.builder.icmp_unsigned("==", bits, ir.Constant(bits.type, -1))


@_emits(lambda x: (types.boolean,))
def any_nan(emit: _Emitter, x: Any) -> Any:
    """Whether a vector holds a NaN."""
    bits = _bits(emit, emit.builder.fcmp_unordered("uno", x, x))
    return emit.builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))


# Lanes -------------------------------------------------------------------------------------------


@_emits(lambda token, x: (_of(token).vector, token, x))
def splat(emit: _Emitter, token: Any, x: Any) -> Any:
    """A vector of the working type whose lanes are all ``x``, rounded to that type."""
    element = _of(emit.types[0])
    x = emit.context.cast(emit.builder, x, emit.types[1], element.working)
    return emit.splat(x, element.lanes)


@_emits(lambda token, x: (_of(token).working, token, x))
def rounded(emit: _Emitter, token: Any, x: Any) -> Any:
    """A number in the working type."""
    return emit.context.cast(emit.builder, x, emit.types[1], _of(emit.types[0]).working)


@_emits(lambda token: (_of(token).vector,))
def zeros(emit: _Emitter, token: Any) -> Any:
    """A vector of zeros."""
    vector = emit.context.get_value_type(_of(emit.types[0]).vector)
    return ir.Constant(vector, [0.0] * vector.count)


def _reversed(direction: TokenType) -> bool:
    return direction.token == "reverse"


@_emits(lambda direction: (types.boolean,))
def is_reverse(emit: _Emitter, direction: Any) -> Any:
    """Whether a direction is REVERSE; folds to a constant."""
    return ir.Constant(_I1, int(_reversed(emit.types[0])))


@_emits(lambda direction, token: (types.int64,))
def step(emit: _Emitter, direction: Any, token: Any) -> Any:
    """The bytes from one step's element to the next's, where those of a row lie side by side."""
    size = _of(emit.types[1]).size
    return ir.Constant(_I64, -size if _reversed(emit.types[0]) else size)


@_emits(lambda direction, token: (types.int64,))
def lead(emit: _Emitter, direction: Any, token: Any) -> Any:
    """The bytes from the element that a scan meets first in a vector to the vector's address."""
    element = _of(emit.types[1])
    back = (element.lanes - 1) * element.size
    return ir.Constant(_I64, -back if _reversed(emit.types[0]) else 0)


@_emits(lambda direction, x: (x.dtype,))
def last(emit: _Emitter, direction: Any, x: Any) -> Any:
    """The lane that a scan in this direction meets last."""
    return emit.lane(x, 0 if _reversed(emit.types[0]) else x.type.count - 1)


@_emits(lambda direction, x, before: (x,))
def previous(emit: _Emitter, direction: Any, x: Any, before: Any) -> Any:
    """In each lane the element that a scan in this direction met just before.

    For the first lane that is the last one of ``before``, the vector before ``x``.  In a reverse
    scan these are the values of step t + 1.  Works on masks too.
    """
    n = x.type.count
    if _reversed(emit.types[0]):
        return emit.shuffle(x, range(1, n + 1), before)
    return emit.shuffle(before, range(n - 1, 2 * n - 1), x)


# Scans inside a vector ---------------------------------------------------------------------------
#
# Sklansky's network: after the step of width k, every aligned block of 2k lanes is scanned.  The
# upper half of a block takes the last element of its lower half; in a reverse scan the halves are
# mirrored.  The selections are made on the inputs of the multiplications, where they are nearly
# free.


def _networks(reverse: bool, n: int) -> list[tuple[list[bool], list[int]]]:
    """Per step: which lanes are upper, and from which lane each takes (the others from itself)."""
    steps = []
    k = 1
    while k < n:
        upper = [i // k % 2 == 1 for i in range(n)]
        source = [i // k * k - 1 if upper[i] else i for i in range(n)]
        if reverse:
            upper = upper[::-1]
            source = [n - 1 - i for i in source[::-1]]
        steps.append((upper, source))
        k *= 2
    return steps


@_emits(lambda direction, a, b: (types.UniTuple(b, 2),))
def scan(emit: _Emitter, direction: Any, a: Any, b: Any) -> Any:
    """``(A, x)``: the running products of ``a``, and the scan of ``b`` from a zero state.

    From a state c before the vector the scan is ``x + A * c``.
    """
    zero, one = emit.constant(a, 0.0), emit.constant(a, 1.0)
    for upper, source in _networks(_reversed(emit.types[0]), a.type.count):
        b = emit.fma(emit.select(upper, a, zero), emit.shuffle(b, source), b)
        a = emit.mul(a, emit.select(upper, emit.shuffle(a, source), one))
    return emit.context.make_tuple(emit.builder, emit.returns, [a, b])


def _steps(n: int) -> int:
    """How many steps scan ``n`` lanes."""
    return n.bit_length() - 1


def _table(element: _Element) -> Any:
    return types.UniTuple(element.vector, _steps(element.lanes) + 1)


@_emits(lambda token, direction, w: (_table(_of(token)), token, direction, types.float64))
def powers(emit: _Emitter, token: Any, direction: Any, w: Any) -> Any:
    """The table of a constant multiplier ``w`` for :func:`scan_constant`.

    First the powers that weigh the state before a vector, then those of each step of the network.
    They are rounded once.
    """
    element = _of(emit.types[0])
    reverse = _reversed(emit.types[1])
    n = element.lanes
    vector = emit.context.get_value_type(element.vector)
    networks = _networks(reverse, n)
    w = emit.splat(w, n)
    zero, one = emit.constant(w, 0.0), emit.constant(w, 1.0)
    p: tuple[Any, ...] = (w, zero) if element.working is types.float64 else (w,)
    for upper, source in networks:
        neutral = (one, zero)
        q = tuple(emit.select(upper, emit.shuffle(x, source), neutral[i]) for i, x in enumerate(p))
        p = _product(emit, p, q)
    table = [emit.narrow(p[0], vector)]
    for upper, source in networks:
        distance = [abs(i - source[i]) if upper[i] else 1 for i in range(n)]
        order = [n - d if reverse else d - 1 for d in distance]
        table.append(
            emit.select(upper, emit.shuffle(table[0], order), emit.constant(table[0], 0.0))
        )
    return emit.context.make_tuple(emit.builder, emit.returns, table)


@_emits(lambda direction, b, table: (b,))
def scan_constant(emit: _Emitter, direction: Any, b: Any, table: Any) -> Any:
    """The scan of ``b`` from a zero state, with the multiplier of a table of :func:`powers`.

    From a state c before the vector the scan is ``x + table[0] * c``.
    """
    networks = _networks(_reversed(emit.types[0]), b.type.count)
    for k, (_, source) in enumerate(networks, 1):
        weights = emit.builder.extract_value(table, k)
        b = emit.fma(weights, emit.shuffle(b, source), b)
    return b


# The state between vectors -----------------------------------------------------------------------
#
# It is a float64, and the product of a vector's multipliers that carries it on is kept in more than
# the working precision: as a float64 for float32, and for float64 as an unevaluated sum of two.
# Rounding that product to the working precision would repeat the same error in every vector when
# the multipliers are equal.


def _product(emit: _Emitter, x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, ...]:
    """The product of two numbers, each an unevaluated sum of one or two."""
    p = emit.mul(x[0], y[0])
    if len(x) == 1:
        return (p,)
    return p, emit.add(emit.error(x[0], y[0], p), emit.fma(x[0], y[1], emit.mul(x[1], y[0])))


def _product_type(working: Any) -> Any:
    return types.UniTuple(types.float64, 2 if working is types.float64 else 1)


@_emits(lambda a: (_product_type(a.dtype),))
def product(emit: _Emitter, a: Any) -> Any:
    """The product of the lanes, for :func:`advance`."""
    p: tuple[Any, ...] = (emit.widen(a),)
    if emit.types[0].dtype is types.float64:
        p = (a, emit.constant(a, 0.0))
    while p[0].type.count > 1:
        lower, upper = zip(*map(emit.halves, p), strict=True)
        p = _product(emit, lower, upper)
    return emit.context.make_tuple(emit.builder, emit.returns, [emit.lane(x, 0) for x in p])


@_emits(lambda token, w: (_product_type(_of(token).working), token, types.float64))
def power(emit: _Emitter, token: Any, w: Any) -> Any:
    """``w`` to the number of lanes, for :func:`advance`."""
    element = _of(emit.types[0])
    p = (w, emit.constant(w, 0.0)) if element.working is types.float64 else (w,)
    for _ in range(_steps(element.lanes)):
        p = _product(emit, p, p)
    return emit.context.make_tuple(emit.builder, emit.returns, list(p))


@_emits(lambda p, state, local: (types.float64, p, types.float64, local))
def advance(emit: _Emitter, p: Any, state: Any, local: Any) -> Any:
    """The state after a vector: ``p * state + local``.

    ``p`` is the product of its multipliers, ``local`` the last lane of its scan from a zero state.
    """
    x = emit.widen(local)
    for k in reversed(range(emit.types[0].count)):
        x = emit.fma(emit.builder.extract_value(p, k), state, x)
    return x
