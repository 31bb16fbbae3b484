"""One multiplier for everything: a chunk of C steps is a product with a C x C matrix of powers.

The chunk totals obey the same recurrence with ``w**C``, so they are scanned the same way; each
chunk's carry joins its first element, and one product gives the result.  Only for ``|w| <= 1``,
whose powers do not overflow.

The totals of periodic operands are all rounded the same way, and over a long memory that would add
up: they are summed in the next wider type.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linscan_numpy._exact import exact
from linscan_numpy._precision import wider
from linscan_numpy._row_loop import lanes

C = 16
INNER_C = 64
"""The chunk of the totals' own scan: there are few of them, so fewer levels win."""
TILE = 1 << 19
"""Bytes scanned at a time: they stay in the second-level cache."""
GEMM, GEMV = 1 << 18, 1 << 11
"""Multiplications per BLAS call.  Larger products are split over threads, which costs more than
it gains whenever another core is busy."""
FORGOTTEN = 0.5
"""A chunk that leaves less of the state than this damps the rounding of totals by itself."""


class Powers(NamedTuple):
    """Of one multiplier, each rounded once; subnormal ones, which are slow, are taken as zero."""

    matrix: NDArray[Any]
    """``chunk @ matrix`` is the scan of the chunk."""
    total: NDArray[Any]
    """``chunk @ total`` is its last state; wider than ``matrix`` where the memory is long."""
    w: NDArray[Any]
    per_chunk: Any
    """``w**C``, in extended precision."""


@lru_cache(maxsize=256)
def _powers(w: Any, chunk: int, dtype: np.dtype[Any], reverse: bool) -> Powers:
    power = np.asarray(w) ** np.arange(chunk + 1)
    power[abs(power) < np.finfo(dtype).tiny] = 0
    distance = np.arange(chunk) - np.arange(chunk)[:, None]
    matrix = np.where(distance >= 0, power[abs(distance)], 0).astype(dtype)
    if reverse:
        matrix = matrix.T.copy()
    total = power[:chunk] if reverse else power[chunk - 1 :: -1]
    total = total.astype(wider(dtype) if abs(power[chunk]) > FORGOTTEN else dtype)
    return Powers(matrix, total, power[1].astype(dtype), power[chunk])


def power_matrix(
    w: Any, b: NDArray[Any], state: NDArray[Any], out: NDArray[Any], reverse: bool
) -> None:
    """Scan ``b`` into ``out``; ``state``, (outer, inner), goes from initial to final."""
    kind = state.dtype
    outer, time, inner = out.shape
    tile = TILE // kind.itemsize
    steps = min(tile, _whole(time, C))
    columns = min(inner, tile // steps)
    rows = min(outer, tile // (steps * columns))
    scratch = np.empty((2, rows * columns * steps), kind)
    direct = out.dtype == kind and out.flags.aligned and not np.may_share_memory(b, out)
    starts = range(0, time, steps)
    if reverse:
        starts = range(time - steps, -steps, -steps)
    wide = np.result_type(kind, np.longdouble).type(kind.type(w))
    for o in range(0, outer, rows):
        for i in range(0, inner, columns):
            block = slice(o, o + rows), slice(i, i + columns)
            for start in starts:
                span = slice(max(start, 0), min(start + steps, time))
                _tile(
                    wide,
                    lanes(b, *block)[:, span if b.shape[1] > 1 else slice(None)],
                    state[block],
                    out[block[0], span, block[1]],
                    reverse,
                    scratch,
                    direct,
                )


def _tile(
    w: Any,
    b: NDArray[Any],
    state: NDArray[Any],
    out: NDArray[Any],
    reverse: bool,
    scratch: NDArray[Any],
    direct: bool,
) -> None:
    rows, time, columns = out.shape
    width = _whole(time, C)
    first, last = (-1, 0) if reverse else (0, -1)
    inside = slice(width - time, width) if reverse else slice(time)
    target = out.swapaxes(1, 2)
    size = rows * columns * width
    x, y = (s[:size].reshape(rows, columns, width) for s in scratch)
    direct = direct and width == time and target.flags.c_contiguous
    if direct:
        y = target
    if width > time:
        x[...] = 0
    np.copyto(x[..., inside], b.swapaxes(1, 2))
    x[..., first] += state.dtype.type(w) * state
    _scan(x.reshape(-1, width), w, C, reverse, y.reshape(-1, width))
    y = y[..., inside]
    finite = np.isfinite(y).all(axis=-1)
    if finite.all():
        if not direct:
            np.copyto(target, y, "same_kind")
        state[...] = y[..., last]
        return
    forward = slice(None, None, -1 if reverse else 1)
    a = np.full((1, 1, 1), w, state.dtype)
    bad = np.logical_not(finite)
    redone = exact(bad, a, b[:, forward], None, state, time)
    if not direct:
        np.copyto(target, y, "same_kind")
    np.copyto(state, y[..., last], where=finite)
    target[bad] = redone[:, forward]


def _scan(x: NDArray[Any], w: Any, chunk: int, reverse: bool, out: NDArray[Any]) -> None:
    """Scan the rows of ``x``, a whole number of chunks each, into ``out``.  Overwrites ``x``."""
    powers = _powers(w, chunk, x.dtype, reverse)
    rows, chunks = len(x), x.shape[1] // chunk
    flat = x.reshape(-1, chunk)
    if chunks > 1:
        kind = powers.total.dtype
        terms = flat.astype(kind, copy=False)
        totals = _matmul(terms, powers.total, np.empty(len(flat), kind), GEMV // chunk)
        totals = totals.reshape(rows, chunks)
        inner = min(INNER_C, _whole(chunks, C))
        carries = np.zeros((rows, _whole(chunks, inner)), x.dtype)
        if reverse:
            carries[:, -chunks:-1] = totals[:, 1:]
        else:
            carries[:, 1:chunks] = totals[:, :-1]
        scanned = np.empty_like(carries)
        _scan(carries, powers.per_chunk, inner, reverse, scanned)
        first = x.reshape(rows, chunks, chunk)[..., -1 if reverse else 0]
        first += powers.w * (scanned[:, -chunks:] if reverse else scanned[:, :chunks])
    _matmul(flat, powers.matrix, out.reshape(-1, chunk), GEMM // chunk**2)


def _matmul(x: NDArray[Any], y: NDArray[Any], out: NDArray[Any], rows: int) -> NDArray[Any]:
    many = len(x) // rows * rows
    if many:
        shape = -1, rows
        np.matmul(
            x[:many].reshape(*shape, x.shape[1]), y, out[:many].reshape(*shape, *out.shape[1:])
        )
    if many < len(x):
        np.matmul(x[many:], y, out[many:])
    return out


def _whole(n: int, chunk: int) -> int:
    return -(-n // chunk) * chunk
