"""The gradients of a scan, as what the kernels ask for: a scan the other way, of the gradients.

With s the step after t in the order of *this* scan, which is the one before it in the forward
scan's::

    lam[s] = g[s] + conj(a[t]) * lam[t]
    grad_a[t] = lam[t] * conj(x[s])

So multipliers come from the step before, which a tile hands on; and the states x from the step
after, which is in the tile that is loaded already.  Where every step is a tile, in the columns, it
is loaded from there.
"""

# mypy: ignore-errors
# pyright: basic

from __future__ import annotations

import triton
import triton.language as tl

from linscan_triton._tile import (
    choose,
    in_order,
    load,
    ordered,
    pick,
    select,
    shifted,
    times,
    write,
    zeros,
)


@triton.jit
def start_gradients(
    operands,
    numbers,
    at,
    before,
    LANES: tl.constexpr,
    KIND: tl.constexpr,
    COMPLEX: tl.constexpr,
    ACC: tl.constexpr,
):
    """``(multiplier, whether it was cut, initial state or ())``."""
    initial = operands[4]
    multiplier = zeros(LANES, COMPLEX, ACC)
    cut = tl.zeros([LANES, 1], tl.int8)
    if initial is None:
        return multiplier, cut, ()
    else:
        return multiplier, cut, ordered(load(initial, at, LANES, 1, 1, COMPLEX), False, ACC)


@triton.jit
def _load(
    operands, place, at, LANES: tl.constexpr, V: tl.constexpr, W: tl.constexpr,
    COMPLEX: tl.constexpr,
):  # fmt: skip
    """``(a, x, reset, g)``, x from ``at``."""
    a, x, reset, g, _initial = operands
    if reset is None:
        cut = ()
    else:
        cut = load(reset, place, LANES, V, W, False)
    return (
        load(a, place, LANES, V, W, COMPLEX),
        load(x, at, LANES, V, W, COMPLEX),
        cut,
        load(g, place, LANES, V, W, COMPLEX),
    )


@triton.jit
def load_rows(
    operands,
    place,
    LANES: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    KIND: tl.constexpr,
    COMPLEX: tl.constexpr,
):
    """All of the same steps."""
    return _load(operands, place, place, LANES, V, W, COMPLEX)


@triton.jit
def load_columns(
    operands,
    place,
    LANES: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    KIND: tl.constexpr,
    COMPLEX: tl.constexpr,
):
    """The states of the step after."""
    plane, lane, lanes, step, time = place
    after = step + 1
    if KIND == "reverse":
        after = step - 1
    at = plane, lane, tl.where(after >= 0, lanes, 0), after, time
    return _load(operands, place, at, LANES, V, W, COMPLEX)


@triton.jit
def _conjugate(x):
    if len(x) == 2:
        return x[0], -x[1]
    else:
        return x


@triton.jit
def _delayed(x, before):
    """Of every step, the one before in the order of the scan."""
    if len(x) == 2:
        return shifted(x[0], before[0]), shifted(x[1], before[1])
    else:
        return (shifted(x[0], before[0]),)


@triton.jit
def _after(x, last):
    N: tl.constexpr = x.shape[0] * x.shape[1]
    index = tl.minimum(tl.arange(0, N) + 1, N - 1)
    y = tl.reshape(tl.gather(tl.reshape(x, [N]), index, 0), x.shape)
    return tl.where(tl.arange(0, x.shape[1])[None, :] == x.shape[1] - 1, last, y)


@triton.jit
def _advanced(x, later):
    """Of every step, the one after in the order of the scan, or in a column the number itself."""
    if x[0].shape[1] == 1:
        return x
    else:
        last = pick(later, 0)
        if len(x) == 2:
            return _after(x[0], last[0]), _after(x[1], last[1])
        else:
            return (_after(x[0], last[0]),)


@triton.jit
def prepare_gradients(
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
    """``(a, b, cut, (conj(x[s]), where to use it), handed)``."""
    multipliers, states, cuts, gradients = raw
    before, was_cut, initial = handed
    b = ordered(gradients, REVERSE, ACC)
    final: tl.constexpr = b[0].shape[1] - 1
    exists = (step >= 0) & (step < time)
    end = step == time - 1
    if REVERSE:
        end = step == 0

    x = _advanced(ordered(states, REVERSE, ACC), ordered(later[1], REVERSE, ACC))
    used = tl.broadcast_to(end == 0, b[0].shape)
    if len(initial) > 0:
        x = choose(end, initial, x)
        used = tl.broadcast_to(exists, b[0].shape)
    own = _conjugate(ordered(multipliers, REVERSE, ACC))
    a = select(exists, select(step != first, _delayed(own, before), 0.0), 1.0)
    before = pick(own, final)
    if len(cuts) == 0:
        return a, b, (), (_conjugate(x), used), (before, was_cut, initial)
    else:
        cutting = in_order(cuts[0], REVERSE).to(tl.int8)
        cut = (shifted(cutting, was_cut) != 0) & exists
        was_cut = pick((cutting,), final)[0].to(tl.int8)
        used = used & (cutting == 0)
        a = select(cut == 0, a, 0.0)
        return a, b, (cut,), (_conjugate(x), used), (before, was_cut, initial)


@triton.jit
def finish_gradients(
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
    """Write the gradients of b and of a."""
    states, used = kept
    write(results[0], place, x, LANES, V, W, REVERSE)
    write(results[1], place, select(used, times(x, states), 0.0), LANES, V, W, REVERSE)
