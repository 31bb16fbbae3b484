"""From a Python function that emits LLVM instructions to a numba function."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from linscan_numba._simd.elements import I1, I16, I32, TokenType


class Emitter:
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
        suffix = f"v{of.count}{of.element.intrinsic_name}" if is_wide(of) else of.intrinsic_name
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
        zero, align = ir.Constant(vector, [0] * vector.count), ir.Constant(I32, 1)
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
        return ir.Constant(like.type, [value] * like.type.count if is_wide(like.type) else value)

    def select(self, flags: Sequence[bool], x: Any, y: Any) -> Any:
        """Of ``x`` where the constant flag is true, of ``y`` elsewhere."""
        mask = ir.Constant(ir.VectorType(I1, len(flags)), [int(f) for f in flags])
        return self.builder.select(mask, x, y)

    def shuffle(self, x: Any, lanes: Sequence[int], y: Any = None) -> Any:
        """Lanes of ``x``, and of ``y`` counted on from there, in the constant order."""
        order = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
        undefined = ir.Constant(x.type, ir.Undefined)
        return self.builder.shuffle_vector(x, undefined if y is None else y, order)

    def halves(self, x: Any) -> tuple[Any, Any]:
        n = x.type.count
        return self.shuffle(x, range(n // 2)), self.shuffle(x, range(n // 2, n))

    def lane(self, x: Any, i: int) -> Any:
        return self.builder.extract_element(x, ir.Constant(I32, i))

    def splat(self, x: Any, n: int) -> Any:
        vector = ir.Constant(ir.VectorType(x.type, n), ir.Undefined)
        first = self.builder.insert_element(vector, x, ir.Constant(I32, 0))
        return self.shuffle(first, [0] * n)

    def widen(self, x: Any) -> Any:
        """To float64, exactly."""
        double = ir.DoubleType()
        to = ir.VectorType(double, x.type.count) if is_wide(x.type) else double
        return x if x.type == to else self.builder.fpext(x, to)

    def narrow(self, x: Any, to: Any) -> Any:
        """From float64, rounded."""
        return x if x.type == to else self.builder.fptrunc(x, to)

    def decode(self, token: TokenType, x: Any) -> Any:
        """What was loaded, in the working type."""
        if token.token == "bfloat16":
            bits = self.builder.zext(x, shaped(I32, x))
            bits = self.builder.shl(bits, self.constant(bits, 16))
            return self.builder.bitcast(bits, shaped(ir.FloatType(), x))
        if token.token == "float16":
            return self.builder.fpext(x, shaped(ir.FloatType(), x))
        return x

    def encode(self, token: TokenType, x: Any) -> Any:
        """What is to be stored: ``x`` rounded to nearest, ties to even."""
        b = self.builder
        if token.token == "float16":
            return b.fptrunc(x, shaped(ir.HalfType(), x))
        if token.token != "bfloat16":
            return x
        bits = b.bitcast(x, shaped(I32, x))
        low = self.constant(bits, 16)
        odd = b.and_(b.lshr(bits, low), self.constant(bits, 1))
        rounded = b.add(bits, b.add(odd, self.constant(bits, 0x7FFF)))
        quiet = b.or_(bits, self.constant(bits, 0x400000))
        bits = b.select(b.fcmp_unordered("uno", x, x), quiet, rounded)
        return b.trunc(b.lshr(bits, low), shaped(I16, x))


def is_wide(kind: Any) -> bool:
    return isinstance(kind, ir.VectorType)


def shaped(element: Any, like: Any) -> Any:
    return ir.VectorType(element, like.type.count) if is_wide(like.type) else element


def emits(result: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """The decorated generator as a numba function.

    ``result`` maps the types of its arguments to its signature, given as the return type followed
    by those argument types that the arguments are to be converted to.
    """

    def define(generate: Callable[..., Any]) -> Any:
        def definition(typing_context: Any, *arguments: Any) -> Any:
            returns, *converted = result(*arguments)
            signature = returns(*(converted or arguments))

            def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                return generate(Emitter(context, builder, signature), *values)

            return signature, codegen

        definition.__name__ = generate.__name__
        definition.__doc__ = generate.__doc__
        definition.__signature__ = inspect.signature(generate)  # type: ignore[attr-defined]
        return intrinsic(definition)

    return define


def as_first(x: Any, *rest: Any) -> tuple[Any]:
    return (x,)


@emits(lambda: (types.none,))
def outline(emit: Emitter) -> Any:
    """Keep the calling function out of its own callers, which spares the compiler copies of it."""
    emit.builder.function.attributes.add("noinline")
    return emit.context.get_dummy_value()
