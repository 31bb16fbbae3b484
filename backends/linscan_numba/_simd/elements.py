"""Tokens, which name types of elements and directions, and the vectors of elements."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import models, register_model, typeof_impl


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


def is_reversed(direction: TokenType) -> bool:
    return direction.token == "reverse"


class VectorType(types.Type):
    """numba's type of a vector."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        super().__init__(f"Vector({dtype} x {lanes})")


I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
LLVM = {types.float32: ir.FloatType(), types.float64: ir.DoubleType(), types.boolean: I1}


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: VectorType) -> None:
        super().__init__(manager, vector, ir.VectorType(LLVM[vector.dtype], vector.lanes))


class Element(NamedTuple):
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


DESCRIPTIONS = {
    "float16": Element(ir.HalfType(), types.float32, 16, 2),
    "bfloat16": Element(I16, types.float32, 16, 2),
    "float32": Element(ir.FloatType(), types.float32, 16, 4),
    "float64": Element(ir.DoubleType(), types.float64, 8, 8),
    "complex64": Element(ir.FloatType(), types.complex64, 8, 8),
    "complex128": Element(ir.DoubleType(), types.complex128, 4, 16),
}


WIDTH = {name: element.lanes for name, element in DESCRIPTIONS.items()}
"""How many elements a vector has, by the name of their type."""


def element_of(token: TokenType) -> Element:
    return DESCRIPTIONS[token.token]
