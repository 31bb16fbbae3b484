"""Scans inside a vector, and what carries the state from one to the next.

Sklansky's network: after the step of width k, every aligned block of 2k lanes is scanned.  The
upper half of a block takes the last element of its lower half; in a reverse scan the halves are
mirrored.  The selections are made on the inputs of the multiplications, where they are nearly free.

The state between vectors is a float64, and the product of a vector's multipliers that carries it on
is kept in more than the working precision: as a float64 for float32, and for float64 as an
unevaluated sum of two.  Rounding that product to the working precision would repeat the same error
in every vector when the multipliers are equal.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from typing import Any

from numba import types

from linscan_numba._simd.elements import Element, element_of, is_reversed
from linscan_numba._simd.emitter import Emitter, emits


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


@emits(lambda direction, a, b: (types.UniTuple(b, 2),))
def scan(emit: Emitter, direction: Any, a: Any, b: Any) -> Any:
    """``(A, x)``: the running products of ``a``, and the scan of ``b`` from a zero state.

    From a state c before the vector the scan is ``x + A * c``.
    """
    zero, one = emit.constant(a, 0.0), emit.constant(a, 1.0)
    for upper, source in _networks(is_reversed(emit.types[0]), a.type.count):
        b = emit.fma(emit.select(upper, a, zero), emit.shuffle(b, source), b)
        a = emit.mul(a, emit.select(upper, emit.shuffle(a, source), one))
    return emit.context.make_tuple(emit.builder, emit.returns, [a, b])


def _steps(n: int) -> int:
    """How many steps scan ``n`` lanes."""
    return n.bit_length() - 1


def _table(element: Element) -> Any:
    return types.UniTuple(element.vector, _steps(element.lanes) + 1)


@emits(lambda token, direction, w: (_table(element_of(token)), token, direction, types.float64))
def powers(emit: Emitter, token: Any, direction: Any, w: Any) -> Any:
    """The table of a constant multiplier ``w`` for :func:`scan_constant`.

    First the powers that weigh the state before a vector, then those of each step of the network.
    They are rounded once.
    """
    element = element_of(emit.types[0])
    reverse = is_reversed(emit.types[1])
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


@emits(lambda direction, b, table: (b,))
def scan_constant(emit: Emitter, direction: Any, b: Any, table: Any) -> Any:
    """The scan of ``b`` from a zero state, with the multiplier of a table of :func:`powers`.

    From a state c before the vector the scan is ``x + table[0] * c``.
    """
    networks = _networks(is_reversed(emit.types[0]), b.type.count)
    for k, (_, source) in enumerate(networks, 1):
        weights = emit.builder.extract_value(table, k)
        b = emit.fma(weights, emit.shuffle(b, source), b)
    return b


def _product(emit: Emitter, x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, ...]:
    """The product of two numbers, each an unevaluated sum of one or two."""
    p = emit.mul(x[0], y[0])
    if len(x) == 1:
        return (p,)
    return p, emit.add(emit.error(x[0], y[0], p), emit.fma(x[0], y[1], emit.mul(x[1], y[0])))


def _product_type(working: Any) -> Any:
    return types.UniTuple(types.float64, 2 if working is types.float64 else 1)


@emits(lambda a: (_product_type(a.dtype),))
def product(emit: Emitter, a: Any) -> Any:
    """The product of the lanes, for :func:`advance`."""
    p: tuple[Any, ...] = (emit.widen(a),)
    if emit.types[0].dtype is types.float64:
        p = (a, emit.constant(a, 0.0))
    while p[0].type.count > 1:
        lower, upper = zip(*map(emit.halves, p), strict=True)
        p = _product(emit, lower, upper)
    return emit.context.make_tuple(emit.builder, emit.returns, [emit.lane(x, 0) for x in p])


@emits(lambda token, w: (_product_type(element_of(token).working), token, types.float64))
def power(emit: Emitter, token: Any, w: Any) -> Any:
    """``w`` to the number of lanes, for :func:`advance`."""
    element = element_of(emit.types[0])
    p = (w, emit.constant(w, 0.0)) if element.working is types.float64 else (w,)
    for _ in range(_steps(element.lanes)):
        p = _product(emit, p, p)
    return emit.context.make_tuple(emit.builder, emit.returns, list(p))


@emits(lambda p, state, local: (types.float64, p, types.float64, local))
def advance(emit: Emitter, p: Any, state: Any, local: Any) -> Any:
    """The state after a vector: ``p * state + local``.

    ``p`` is the product of its multipliers, ``local`` the last lane of its scan from a zero state.
    """
    x = emit.widen(local)
    for k in reversed(range(emit.types[0].count)):
        x = emit.fma(emit.builder.extract_value(p, k), state, x)
    return x
