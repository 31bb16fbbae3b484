"""The operands of a scan, as its kernels find them in a plan."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any

from linscan_numba._jit import jit
from linscan_numba._launch import FIRST, INNER, OUTER, TIME, locate, peek, walk

A, B, INITIAL, RESET, X = range(FIRST, FIRST + 5)
"""The operands.  A multiplier that is a number is an operand of one element."""

NOWHERE = 0
"""The address of an operand that is not given."""

IN_PLACE, STREAMED = 1, 2
"""What a call has, added up: ``out`` that is ``b``, streamed results."""


@jit(inline=True)
def sizes(plan: int) -> Any:
    """``(outer, time, inner)`` of the result."""
    return peek(plan, OUTER), peek(plan, TIME), peek(plan, INNER)


@jit(inline=True)
def operands(direction: Any, plan: int) -> Any:
    """Where ``a``, ``b``, ``initial``, ``reset`` and the result are, in the order of the scan."""
    return (
        walk(direction, plan, A),
        walk(direction, plan, B),
        locate(plan, INITIAL),
        walk(direction, plan, RESET),
        walk(direction, plan, X),
    )
