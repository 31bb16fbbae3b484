"""The scan itself, as what the kernels ask for: multipliers and inputs are given as they are."""

# mypy: ignore-errors
# pyright: basic

from __future__ import annotations

import triton
import triton.language as tl

from linscan_triton._tile import in_order, load, number, ordered, select, spread, state_place, write


@triton.jit
def load_scan(
    operands,
    place,
    LANES: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    KIND: tl.constexpr,
    COMPLEX: tl.constexpr,
):
    """``(a, b, reset)``; a is ``()`` if it is a number, and so is reset if there is none."""
    a, b, reset = operands
    if KIND == "scalar":
        multiplier = ()
    elif KIND == "row":
        plane, lane, lanes, _first, _time = place
        multiplier = load(a, state_place(plane, lane, lanes), LANES, 1, W, COMPLEX)
    else:
        multiplier = load(a, place, LANES, V, W, COMPLEX)
    if reset is None:
        cut = ()
    else:
        cut = load(reset, place, LANES, V, W, False)
    return multiplier, load(b, place, LANES, V, W, COMPLEX), cut


@triton.jit
def start_scan(
    operands,
    numbers,
    at,
    before,
    LANES: tl.constexpr,
    KIND: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
):
    """The multiplier if it is a number."""
    if KIND == "scalar":
        return number(numbers[0], numbers[1], COMPLEX, ACC)
    else:
        return ()


@triton.jit
def prepare_scan(
    raw,
    later,
    handed,
    step,
    first,
    time,
    KIND: tl.constexpr,
    REVERSE: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
):
    """``(a, b, cut, (), handed)``.

    They are 1 and 0 at steps that do not exist; multipliers that are never read are 0.
    """
    multiplier, inputs, cuts = raw
    b = ordered(inputs, REVERSE, ACC)
    if KIND == "scalar":
        a = handed
    else:
        a = ordered(multiplier, REVERSE, ACC)
    a = select(step != first, spread(a, b), 0.0)
    a = select((step >= 0) & (step < time), a, 1.0)
    if len(cuts) == 1:
        cut = in_order(cuts[0], REVERSE).to(tl.int1)
        return select(cut == 0, a, 0.0), b, (cut,), (), handed
    else:
        return a, b, (), (), handed


@triton.jit
def finish_scan(
    results,
    place,
    x,
    before,
    kept,
    LANES: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    REVERSE: tl.constexpr,
):
    """Write x."""
    write(results[0], place, x, LANES, V, W, REVERSE)
