"""Device functions that every kernel shares: where a tile lies in memory, and how it is scanned.

A program works on some *lanes* (rows side by side) of one *plane*, and goes through time a tile at
a time.  Its operands are tuples ``(pointer, by_plane, by_lane, by_step)``, strides in elements (of
complex numbers: in parts).  Where neighbours in one direction are neighbours in memory, in aligned
vectors, they are ``(pointer, by_plane, by_lane)`` for steps, and ``(pointer, (by_plane, by_step))``
for lanes.  An operand that is not given is None.  (A tuple that holds None cannot be compared with
None in Triton 3.6.)

A number is a tuple of its parts: ``(x,)`` or ``(real, imaginary)``.  In memory order the tiles of
parts are ``[LANES, STEPS / V, V]``; in the order of the scan they are ``[LANES, STEPS]``.
Backwards the vectors of V steps descend, and the steps in each are flipped, which only renames
registers: so both directions have wide accesses, cost the same, and scan forward.
"""

# mypy: ignore-errors
# pyright: basic

from __future__ import annotations

import triton
import triton.language as tl

# ------------------------------------------------------------------------------------------ memory


@triton.jit
def tile_place(
    plane, lane, lanes, tile, time, STEPS: tl.constexpr, V: tl.constexpr, REVERSE: tl.constexpr
):
    """Where a tile lies: ``(plane, first lane, lanes, first steps of its vectors, time)``."""
    vector = tl.arange(0, STEPS // V)
    if REVERSE:
        vector = STEPS // V - 1 - vector
    return plane, lane, lanes, tl.cast(tile, tl.int64) * STEPS + vector[None, :, None] * V, time


@triton.jit
def state_place(plane, lane, lanes):
    """Where a state lies, or what is the same at every step: at the only step there is."""
    return plane, lane, lanes, tl.zeros([1, 1, 1], tl.int64), 1


@triton.jit
def steps_in_order(tile, STEPS: tl.constexpr, REVERSE: tl.constexpr):
    """The steps of a tile in the order of the scan, ``[1, STEPS]``."""
    i = tl.arange(0, STEPS)[None, :]
    if REVERSE:
        i = STEPS - 1 - i
    return tl.cast(tile, tl.int64) * STEPS + i


@triton.jit
def _multiple(x, of: tl.constexpr):
    """An integer that is a multiple of another, for the compiler to see.

    (A hint would be lost: it stays with the argument of a function that is inlined.)
    """
    return tl.cast(x, tl.int64) // of * of


@triton.jit
def _addresses(
    x, place, LANES: tl.constexpr, V: tl.constexpr, W: tl.constexpr, PARTS: tl.constexpr
):
    """The addresses of a tile and which of them are inside.

    ``PARTS`` numbers lie where one would, along the direction of the vectors.
    """
    pointer = x[0]
    plane, lane, lanes, first, time = place
    if len(x) == 3:
        by_plane, by_lane = x[1], x[2]
        row = lane + tl.arange(0, LANES)[:, None, None]
        step = first * PARTS + tl.arange(0, V * PARTS)[None, None, :]
        by_plane = _multiple(by_plane, V * PARTS)
        by_lane = _multiple(by_lane, V * PARTS)
        time = _multiple(time, V)
        where = pointer + (plane * by_plane + row * by_lane) + step
        inside = (row < lanes) & (step < time * PARTS)
    else:
        step = first + tl.arange(0, V)[None, None, :]
        if len(x) == 2:
            by_plane, by_step = x[1]
            row = lane * PARTS + tl.arange(0, LANES * PARTS)[:, None, None]
            by_plane = _multiple(by_plane, W * PARTS)
            by_step = _multiple(by_step, W * PARTS)
            lanes = _multiple(lanes, W)
            where = pointer + (plane * by_plane + step * by_step) + row
            inside = (row < lanes * PARTS) & (step < time)
        else:
            by_plane, by_lane, by_step = x[1], x[2], x[3]
            row = lane + tl.arange(0, LANES)[:, None, None]
            where = pointer + (plane * by_plane + row * by_lane + step * by_step)
            inside = (row < lanes) & (step < time)
    return where, inside


@triton.jit
def load(x, place, LANES: tl.constexpr, V: tl.constexpr, W: tl.constexpr, COMPLEX: tl.constexpr):
    """The parts of a tile in memory order, as they are stored; outside they are 0."""
    if not COMPLEX:
        where, inside = _addresses(x, place, LANES, V, W, 1)
        return (tl.load(where, mask=inside, other=0),)
    elif len(x) < 4:
        where, inside = _addresses(x, place, LANES, V, W, 2)
        both = tl.load(where, mask=inside, other=0)
        if len(x) == 3:
            both = tl.reshape(both, [LANES, both.shape[1], V, 2])
        else:
            both = tl.reshape(both, [LANES, 2, both.shape[1], V])
            both = tl.permute(both, (0, 2, 3, 1))
        return tl.split(both)
    else:
        where, inside = _addresses(x, place, LANES, V, W, 1)
        return (
            tl.load(where, mask=inside, other=0),
            tl.load(where + 1, mask=inside, other=0),
        )


@triton.jit
def store(x, place, parts, LANES: tl.constexpr, V: tl.constexpr, W: tl.constexpr):
    """Write a tile in memory order, rounded to the operand's dtype."""
    if len(parts) == 1:
        where, inside = _addresses(x, place, LANES, V, W, 1)
        tl.store(where, parts[0], mask=inside)
    elif len(x) < 4:
        where, inside = _addresses(x, place, LANES, V, W, 2)
        both = tl.join(parts[0], parts[1])
        if len(x) == 3:
            both = tl.reshape(both, [LANES, parts[0].shape[1], 2 * V])
        else:
            both = tl.permute(both, (0, 3, 1, 2))
            both = tl.reshape(both, [LANES * 2, parts[0].shape[1], V])
        tl.store(where, both, mask=inside)
    else:
        where, inside = _addresses(x, place, LANES, V, W, 1)
        tl.store(where, parts[0], mask=inside)
        tl.store(where + 1, parts[1], mask=inside)


@triton.jit
def in_order(x, REVERSE: tl.constexpr):
    """A tile from memory order to the order of the scan."""
    if REVERSE and x.shape[2] > 1:
        x = tl.flip(x, 2)
    return tl.reshape(x, [x.shape[0], x.shape[1] * x.shape[2]])


@triton.jit
def in_memory(x, V: tl.constexpr, REVERSE: tl.constexpr):
    """A tile from the order of the scan to memory order."""
    x = tl.reshape(x, [x.shape[0], x.shape[1] // V, V])
    if REVERSE and V > 1:
        x = tl.flip(x, 2)
    return x


@triton.jit
def ordered(parts, REVERSE: tl.constexpr, ACC: tl.constexpr):
    """A number as it was loaded, in the order of the scan and in the type of the state."""
    if len(parts) == 2:
        return (
            in_order(parts[0], REVERSE).to(ACC),
            in_order(parts[1], REVERSE).to(ACC),
        )
    else:
        return (in_order(parts[0], REVERSE).to(ACC),)


@triton.jit
def write(
    x, place, parts, LANES: tl.constexpr, V: tl.constexpr, W: tl.constexpr, REVERSE: tl.constexpr
):
    """:func:`store` a number that is in the order of the scan."""
    if len(parts) == 2:
        stored = (in_memory(parts[0], V, REVERSE), in_memory(parts[1], V, REVERSE))
    else:
        stored = (in_memory(parts[0], V, REVERSE),)
    store(x, place, stored, LANES, V, W)


# -------------------------------------------------------------------------------------- arithmetic


@triton.jit
def number(real, imaginary, COMPLEX: tl.constexpr, ACC: tl.constexpr):
    """A number given as floats, ``[1, 1]``."""
    if COMPLEX:
        return tl.full([1, 1], real, ACC), tl.full([1, 1], imaginary, ACC)
    else:
        return (tl.full([1, 1], real, ACC),)


@triton.jit
def zeros(LANES: tl.constexpr, COMPLEX: tl.constexpr, ACC: tl.constexpr):
    """A zero state, ``[LANES, 1]`` each part."""
    if COMPLEX:
        return tl.zeros([LANES, 1], ACC), tl.zeros([LANES, 1], ACC)
    else:
        return (tl.zeros([LANES, 1], ACC),)


@triton.jit
def one(LANES: tl.constexpr, COMPLEX: tl.constexpr, ACC: tl.constexpr):
    """The product of no multipliers, ``[LANES, 1]`` each part."""
    if COMPLEX:
        return tl.full([LANES, 1], 1.0, ACC), tl.zeros([LANES, 1], ACC)
    else:
        return (tl.full([LANES, 1], 1.0, ACC),)


@triton.jit
def spread(parts, model):
    """A number, broadcast to the shape of another."""
    L: tl.constexpr = model[0].shape[0]
    S: tl.constexpr = model[0].shape[1]
    if len(parts) == 2:
        return tl.broadcast_to(parts[0], [L, S]), tl.broadcast_to(parts[1], [L, S])
    else:
        return (tl.broadcast_to(parts[0], [L, S]),)


@triton.jit
def select(condition, parts, other):
    """``parts`` where the condition holds; elsewhere the float ``other``."""
    if len(parts) == 2:
        return tl.where(condition, parts[0], other), tl.where(condition, parts[1], 0.0)
    else:
        return (tl.where(condition, parts[0], other),)


@triton.jit
def choose(condition, x, y):
    """``x`` where the condition holds, else ``y``: numbers."""
    if len(x) == 2:
        return tl.where(condition, x[0], y[0]), tl.where(condition, x[1], y[1])
    else:
        return (tl.where(condition, x[0], y[0]),)


@triton.jit
def advance(a, x, b):
    """``a * x + b``."""
    if len(b) == 2:
        return a[0] * x[0] - a[1] * x[1] + b[0], a[0] * x[1] + a[1] * x[0] + b[1]
    else:
        return (a[0] * x[0] + b[0],)


@triton.jit
def times(x, y):
    """``x * y``: a zero keeps its sign."""
    if len(x) == 2:
        return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]
    else:
        return (x[0] * y[0],)


@triton.jit
def flaw(x):
    """NaN where a multiplier is not finite, 1 where it is 0, else 0."""
    if len(x) == 2:
        return tl.where((x[0] == 0) & (x[1] == 0), 1.0, x[0] * 0.0 + x[1] * 0.0)
    else:
        return tl.where(x[0] == 0, 1.0, x[0] * 0.0)


@triton.jit
def _times(ah, al, ch, cl):
    """The product of sums ``h + low`` of two numbers, h the larger: twice the precision."""
    h = ah * ch
    return h, tl.fma(al, ch, tl.fma(ah, cl, tl.fma(ah, ch, -h)))


@triton.jit
def _plus(ah, al, ch, cl):
    """Their sum."""
    h = ah + ch
    c = h - ah
    return h, ((ah - (h - c)) + (ch - c)) + (al + cl)


@triton.jit
def compose(ah, al, b, ch, cl, d):
    """``x -> c * (a * x + b) + d``.

    Multipliers are sums of two numbers: the product of many equal ones would else be as inexact as
    the rounding error of one is large, times their number.
    """
    h, low = _times(ah, al, ch, cl)
    return h, low, tl.fma(ch + cl, b, d)


@triton.jit
def compose_complex(arh, arl, aih, ail, br, bi, crh, crl, cih, cil, dr, di):
    """:func:`compose` for complex numbers."""
    rrh, rrl = _times(arh, arl, crh, crl)
    iih, iil = _times(aih, ail, cih, cil)
    rih, ril = _times(arh, arl, cih, cil)
    irh, irl = _times(aih, ail, crh, crl)
    rh, rl = _plus(rrh, rrl, -iih, -iil)
    ih, il = _plus(rih, ril, irh, irl)
    cr, ci = crh + crl, cih + cil
    return rh, rl, ih, il, cr * br - ci * bi + dr, cr * bi + ci * br + di


# -------------------------------------------------------------------------------------------- scan


@triton.jit
def _add(a, b, c, d):
    return a + c, b + d


@triton.jit
def _add3(a, b, c, d, e, f):
    return a + d, b + e, c + f


@triton.jit
def _at(x, here):
    """The one step of a tile that is ``here``, ``[LANES, 1]``."""
    i = tl.arange(0, x.shape[1])[None, :]
    return tl.sum(tl.where(i == here, x, tl.zeros_like(x)), 1, keep_dims=True)


@triton.jit
def pick(parts, here):
    """The one step of a number that is ``here`` in the order of the scan."""
    if len(parts) == 2:
        return _at(parts[0], here), _at(parts[1], here)
    else:
        return (_at(parts[0], here),)


@triton.jit
def shifted(x, before):
    """Every step's predecessor in the order of the scan: at the first, ``before``."""
    if x.shape[1] == 1:
        return before
    else:
        N: tl.constexpr = x.shape[0] * x.shape[1]  # in one dimension it is cheap
        index = tl.maximum(tl.arange(0, N) - 1, 0)
        y = tl.reshape(tl.gather(tl.reshape(x, [N]), index, 0), x.shape)
        return tl.where(tl.arange(0, x.shape[1])[None, :] == 0, before, y)


@triton.jit
def _last(x):
    """The last step of a number, and 0 if it is finite at every step, else NaN."""
    end: tl.constexpr = x[0].shape[1] - 1
    last = tl.arange(0, end + 1)[None, :] == end
    if len(x) == 2:
        re, im, poison = tl.reduce(
            (tl.where(last, x[0], 0.0), tl.where(last, x[1], 0.0), x[0] * 0.0 + x[1] * 0.0),
            1,
            _add3,
            keep_dims=True,
        )
        return (re, im), poison
    else:
        re, poison = tl.reduce((tl.where(last, x[0], 0.0), x[0] * 0.0), 1, _add, keep_dims=True)
        return (re,), poison


@triton.jit
def _from_zero(a, b):
    """``(h, low, x)`` at every step: the product ``h + low`` so far, and x from a zero state."""
    zero = tl.zeros_like(b[0])
    if len(b) == 2:
        rh, rl, ih, il, re, im = tl.associative_scan(
            (a[0], zero, a[1], zero, b[0], b[1]), 1, compose_complex
        )
        return (rh, ih), (rl, il), (re, im)
    else:
        h, low, x = tl.associative_scan((a[0], zero, b[0]), 1, compose)
        return (h,), (low,), (x,)


@triton.jit
def _plain_sum(x, y):
    if len(x) == 2:
        return x[0] + y[0], x[1] + y[1]
    else:
        return (x[0] + y[0],)


@triton.jit
def _rounded(h, low):
    return tl.where((h != 0) & (low == low), h + low, h)


@triton.jit
def _product(h, low):
    """``h + low``; but h where that is infinite, and low NaN, or zero of either sign."""
    if len(h) == 2:
        return _rounded(h[0], low[0]), _rounded(h[1], low[1])
    else:
        return (_rounded(h[0], low[0]),)


@triton.jit
def scan_tile(a, b, state, CUTS: tl.constexpr):
    """``(x, state after, product, doubtful)`` of a tile in the order of the scan.

    Args:
        a: Multipliers, ``[LANES, STEPS]`` each part; 0 where the past is cut off; 1 at steps that
            do not exist.
        b: Inputs; 0 at steps that do not exist.
        state: The state before, ``[LANES, 1]`` each part.
        CUTS: Whether there are steps where the past is cut off.

    ``product`` is that of the multipliers so far, at every step.  Products may overflow, and a cut
    multiplies by zero: both can make a NaN that the loop would not.  So the lanes in which a state
    is not finite are ``doubtful``, unless the loop could only say the same: NaN, from the state
    before.
    """
    h, low, x = _from_zero(a, b)
    x = advance(_plain_sum(h, low), state, x)
    after, poison = _last(x)
    doubtful = poison != poison
    if not CUTS:
        if len(state) == 2:
            doubtful = doubtful & ((state[0] == state[0]) | (state[1] == state[1]))
        else:
            doubtful = doubtful & (state[0] == state[0])
    return x, after, _product(h, low), doubtful


@triton.jit
def any_lane(mask):
    """Whether a mask ``[LANES, 1]`` holds anywhere."""
    return tl.max(tl.max(mask.to(tl.int32), 1), 0) != 0


@triton.jit
def one_by_one(a, b, cut, exists, state):
    """``(x, state after)`` of a tile by the recurrence as it is defined.

    ``cut`` is ``()``, or a tuple of one mask: where true the past is selected away.  ``exists``,
    ``[1, STEPS]``, says which steps there are.
    """
    i = tl.arange(0, b[0].shape[1])[None, :]
    x = b
    for k in range(b[0].shape[1]):
        here = pick(b, k)
        after = advance(pick(a, k), state, here)
        if len(cut) == 1:
            after = choose(_at(cut[0].to(tl.int32), k) != 0, here, after)
        state = choose(_at(exists.to(tl.int32), k) != 0, after, state)
        x = choose(i == k, state, x)
    return x, state


# ---------------------------------------------------------------------------------------- totals


@triton.jit
def _bounded(x, flaws):
    HUGE: tl.constexpr = 1.7976931348623157e308 if x.dtype == tl.float64 else 3.4028234663852886e38
    finite = tl.where(x == x, tl.minimum(tl.maximum(x, -HUGE), HUGE), 0.0)
    return tl.where(flaws == flaws, finite, x)


@triton.jit
def bounded(x, flaws):
    """A product of multipliers that is infinite, NaN or zero only if one of them is.

    So one that overflows is zero times a zero state, and one that vanishes is infinite times an
    infinite state.  (An infinite complex state soon is NaN by itself.)  ``flaws`` is a sum of
    :func:`flaw`.
    """
    if len(x) == 2:
        return _bounded(x[0], flaws), _bounded(x[1], flaws)
    else:
        TINY: tl.constexpr = 2.0**-1022 if x[0].dtype == tl.float64 else 2.0**-126
        signed = tl.where(1.0 / x[0] < 0, -TINY, TINY)
        return (tl.where((x[0] == 0) & (flaws == 0), signed, _bounded(x[0], flaws)),)


@triton.jit
def total(product, flaws, a, tile_product):
    """``(product, flaws)`` of a chunk after one more tile."""
    last, _ = _last(tile_product)
    flaws = flaws + tl.sum(flaw(a), 1, keep_dims=True)
    return bounded(times(last, product), flaws), flaws


@triton.jit
def any_step(mask):
    """Whether a mask ``[LANES, STEPS]`` holds at any step, ``[LANES, 1]``."""
    return tl.max(mask.to(tl.int32), 1, keep_dims=True) != 0
