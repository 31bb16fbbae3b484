"""The operands of a scan, as its kernels find them in a plan."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any

from linscan_numba import _simd as simd
from linscan_numba._jit import jit
from linscan_numba._launch import FIRST, INNER, OUTER, TIME, locate, peek

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
def walk(direction: Any, plan: int, operand: Any) -> Any:
    """What :func:`locate` found, from the first step of a scan on, its stride of time signed."""
    address, outer, time, inner = operand
    if simd.is_reverse(direction):
        return address + (peek(plan, TIME) - 1) * time, outer, -time, inner
    return address, outer, time, inner


@jit(inline=True)
def line(x: Any, row: Any, step: int) -> Any:
    """``(address, stride)`` of the steps of a row ``(outer, inner)``, from a step on."""
    address, outer, time, inner = x
    return address + row[0] * outer + step * time + row[1] * inner, time


@jit(inline=True)
def located(direction: Any, plan: int) -> Any:
    """Where ``a``, ``b``, ``initial``, ``reset`` and the result are, in the order of the scan."""
    return (
        walk(direction, plan, locate(plan, A)),
        walk(direction, plan, locate(plan, B)),
        locate(plan, INITIAL),
        walk(direction, plan, locate(plan, RESET)),
        walk(direction, plan, locate(plan, X)),
    )
