"""Any multipliers: time is cut into short chunks, and the loop walks through all of them at once.

A tile of operands is copied so that the same step of all its chunks is one vector.  A first walk
composes each chunk into ``x -> product * x + total``; doubling over the chunks gives every
chunk's carry; a second walk repeats the loop from those carries, and so rounds as the loop does.

Chunks of equal multipliers, or of periodic operands, are all rounded the same way, and over a long
memory that would add up: single precision is composed in double and only the carries are rounded.
Double precision has nothing wider that is fast.  But what a chunk ends on and what the next one
started from differ by just that error (and by the rounding of one walk), which obeys the same
recurrence: it is scanned too, and added where it is not negligible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan_numpy._exact import exact
from linscan_numpy._precision import SINGLE, wider
from linscan_numpy._row_loop import lanes

WHOLE = 64
"""A sequence of up to so many steps is one chunk, which needs no first walk."""
LONG = 1 << 16
"""From so many steps on a sequence is cut into longer chunks: fewer carries, for more calls."""
STEPS, LONG_STEPS = 16, 40
"""Of a chunk."""
TILE, LONG_TILE = 1 << 20, 1 << 22
"""Bytes of one operand in a tile, in the type it is composed in: enough to outweigh the calls."""
LOADED = 1 << 16
"""Bytes of one lane transposed at a time."""
PAD = 16
"""Elements between the rows of a buffer, so that their distance is not a power of two."""
RUN = 16
"""Neighbouring elements worth copying together: a cache line."""
FORGOTTEN = 0.25
"""Chunk products below this damp their own rounding errors within a chunk or two."""


def transposed_replay(
    a: NDArray[Any],
    b: NDArray[Any],
    reset: NDArray[np.bool_] | None,
    state: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """Scan ``b`` into ``out``, forwards; ``state``, (outer, inner), goes from initial to final."""
    outer, time, inner = out.shape
    steps = time if time <= WHOLE else STEPS if time < LONG else LONG_STEPS
    vector = (TILE if time < LONG else LONG_TILE) // (steps * _composed(state.dtype).itemsize)
    if abs(b.strides[2]) < abs(b.strides[1]) and inner > 1:
        columns = min(inner, vector)
        chunks = min(-(-time // steps), vector // columns)
        rows = min(outer, vector // (chunks * columns))
    else:
        rows = min(outer, RUN) if abs(b.strides[0]) < abs(b.strides[1]) else 1
        chunks = min(-(-time // steps), vector // rows)
        rows = min(outer, vector // chunks)
        columns = min(inner, vector // (chunks * rows))
    buffers = np.empty((2, steps, chunks * rows * columns + PAD), state.dtype)
    span = chunks * steps
    for o in range(0, outer, rows):
        for i in range(0, inner, columns):
            block = slice(o, o + rows), slice(i, i + columns)
            for t in range(0, time, span):
                now = slice(t, t + span)
                _tile(
                    _during(lanes(a, *block), now),
                    _during(lanes(b, *block), now),
                    None if reset is None else _during(lanes(reset, *block), now),
                    state[block],
                    out[block[0], now, block[1]],
                    buffers,
                )


def _tile(
    a: NDArray[Any],
    b: NDArray[Any],
    reset: NDArray[np.bool_] | None,
    state: NDArray[Any],
    out: NDArray[Any],
    buffers: NDArray[Any],
) -> None:
    rows, time, columns = out.shape
    steps = buffers.shape[1]
    shape = steps, -(-time // steps), rows, columns
    width = rows * columns
    vector = shape[1] * width
    a_tile, b_tile = buffers[..., :vector]
    _load(a, a_tile.reshape(shape), time, 1)
    _load(b, b_tile.reshape(shape), time, 0)
    if reset is not None:
        cut = np.empty(shape, np.bool_)
        _load(reset, cut, time, False)
        np.copyto(a_tile.reshape(shape), 0, where=cut)
    a_steps, b_steps = list(a_tile), list(b_tile)
    kind = _composed(state.dtype)
    states = np.empty(width + vector, kind)
    states[:width] = state.ravel()
    carries, ends = states[:-width], states[width:]
    products: list[NDArray[Any]] = []
    if shape[1] > 1:
        product = _compose(a_steps, b_steps, ends)
        products = _doublings(product, width, np.finfo(state.dtype).tiny)
        _scan(states, products)
    _replay(a_steps, b_steps, carries.astype(state.dtype, copy=False))
    if products and kind == state.dtype:
        _correct(a_steps, b_steps, states, products)
    last = b_steps[-1]
    finite = np.isfinite(last).reshape(shape[1:]).all(axis=0)
    if not finite.all():
        bad = ~finite
        redone = exact(bad, a, b, reset, state, time)
        _store(b_tile.reshape(shape), out)
        out.swapaxes(1, 2)[bad] = redone
        np.copyto(state, last.reshape(shape[1:])[-1], where=finite)
        return
    _store(b_tile.reshape(shape), out)
    np.copyto(state, last.reshape(shape[1:])[-1])


def _composed(kind: np.dtype[Any]) -> np.dtype[Any]:
    return wider(kind) if kind in SINGLE else kind


def _compose(
    a_steps: list[NDArray[Any]], b_steps: list[NDArray[Any]], total: NDArray[Any]
) -> NDArray[Any]:
    """Each chunk's total, written, and its product, returned."""
    product = a_steps[0].astype(total.dtype)
    widened = None if a_steps[0].dtype == total.dtype else np.empty_like(total)
    np.copyto(total, b_steps[0])
    for a_t, b_t in zip(a_steps[1:], b_steps[1:], strict=True):
        multiplier = a_t
        if widened is not None:
            np.copyto(widened, a_t)
            multiplier = widened
        np.multiply(total, multiplier, total)
        np.add(total, b_t, total)
        np.multiply(product, multiplier, product)
    return product


def _doublings(product: NDArray[Any], width: int, tiny: Any) -> list[NDArray[Any]]:
    """Products over 1, 2, 4 ... chunks, until there are no more chunks or nothing is left.

    Products whose squares sum to less than ``tiny`` leave nothing: no error measured against the
    largest state can see it, and where it is subnormal many processors take a hundred cycles.
    """
    products = [product]
    while len(product) > width and not np.vdot(product, product).real < tiny:
        product = product[width:] * product[:-width]
        products.append(product)
        width *= 2
    return products


def _scan(states: NDArray[Any], products: list[NDArray[Any]]) -> None:
    """Let every state reach all later ones, by doubling."""
    scratch = np.empty_like(products[0])
    for product in products:
        shift = len(states) - len(product)
        scaled = np.multiply(product, states[:-shift], scratch[: len(product)])
        np.add(states[shift:], scaled, states[shift:])


def _replay(
    a_steps: list[NDArray[Any]], b_steps: list[NDArray[Any]], carries: NDArray[Any]
) -> None:
    scaled = np.empty_like(carries)
    previous = carries
    for a_t, b_t in zip(a_steps, b_steps, strict=True):
        np.multiply(previous, a_t, scaled)
        previous = np.add(scaled, b_t, b_t)


def _correct(
    a_steps: list[NDArray[Any]],
    b_steps: list[NDArray[Any]],
    states: NDArray[Any],
    products: list[NDArray[Any]],
) -> None:
    """Add to the replayed steps what was wrong in the composed ``states``.

    A product that is an integer, as those of 1 and -1 are, is exact.  The difference there is the
    rounding of the walk, which such multipliers make once, not again in every chunk.
    """
    product = products[0]
    if abs(product).max() <= FORGOTTEN:
        return
    width = len(states) - len(product)
    error = np.zeros_like(states)
    np.subtract(b_steps[-1], states[width:], error[width:], where=product != np.rint(product))
    _scan(error, products)
    error = error[:-width]
    size = abs(states[:-width]).reshape(-1, width).max(axis=0)
    if (abs(error).reshape(-1, width) > np.finfo(states.dtype).eps * size).any():
        for a_t, b_t in zip(a_steps, b_steps, strict=True):
            np.multiply(error, a_t, error)
            np.add(b_t, error, b_t)


def _during(x: NDArray[Any], span: slice) -> NDArray[Any]:
    return x[:, span] if x.shape[1] > 1 else x


def _load(x: NDArray[Any], tile: NDArray[Any], time: int, filler: Any) -> None:
    """Copy (rows, time, columns) to (steps, chunks, rows, columns), filling up the last chunk."""
    steps, _, rows, columns = tile.shape
    whole, rest = divmod(time, steps)
    if x.shape[1] < time:
        tile[...] = x[:, 0]
    else:
        x = np.broadcast_to(x, (rows, time, columns))
        split = x[:, : whole * steps].reshape(rows, whole, steps, columns)
        near = whole if rows * columns >= RUN else LOADED // (steps * tile.itemsize)
        for r, c in _together(rows, columns):
            for first in range(0, whole, max(near, 1)):
                k = slice(first, min(first + near, whole))
                tile[:, k, r, c] = split[r, k, :, c].transpose(2, 1, 0, 3)
        tile[:rest, whole:] = x[:, whole * steps :].swapaxes(0, 1)[:, None]
    if rest:
        tile[rest:, whole] = filler


def _store(tile: NDArray[Any], out: NDArray[Any]) -> None:
    steps, _, rows, columns = tile.shape
    whole, rest = divmod(out.shape[1], steps)
    split = out[:, : whole * steps].reshape(rows, whole, steps, columns)
    for r, c in _together(rows, columns):
        np.copyto(split[r, ..., c], tile[:, :whole, r, c].transpose(2, 1, 0, 3), "same_kind")
    if rest:
        np.copyto(out[:, whole * steps :], tile[:rest, whole].swapaxes(0, 1), "same_kind")


def _together(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Lanes to copy at once: NumPy's inner loop runs over them, and is too short over a few."""
    if rows * columns >= RUN:
        yield slice(None), slice(None)
        return
    for r in range(rows):
        for c in range(columns):
            yield slice(r, r + 1), slice(c, c + 1)
