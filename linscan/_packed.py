"""Sequences packed one after another along the time axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from linscan import _host
from linscan._arrays import as_array, check_same_place, dtype_name, is_torch, namespace


class Segments(NamedTuple):
    """Where the non-empty segments begin and end, and which ones those are.

    Index arrays of the data's library; ``first`` and ``last`` are inclusive.
    """

    first: Any
    last: Any
    number: Any
    count: int


def segments(cu_seqlens: Any, time: int, model: Any, check: bool) -> Segments:
    """The segments ``[cu_seqlens[i], cu_seqlens[i + 1])`` of a time axis that long."""
    offsets = as_array("cu_seqlens", cu_seqlens)
    if not is_torch(offsets) and is_torch(model):
        offsets = namespace(model).asarray(offsets, device=model.device)
    check_same_place(cu_seqlens=offsets, b=model)
    name = dtype_name(offsets)
    if offsets.ndim != 1 or offsets.shape[0] < 1:
        raise ValueError(
            f"cu_seqlens must be one-dimensional with n + 1 offsets, not of shape {tuple(offsets.shape)}"
        )
    if not name.removeprefix("u").startswith("int"):
        raise TypeError(f"cu_seqlens must be integers, not {name}")
    if check:
        _check_offsets(np.asarray(_host.view(offsets)).astype(np.int64), time)
    xp = namespace(offsets)
    offsets = xp.astype(offsets, xp.int64)
    start, stop = offsets[:-1], offsets[1:]
    (number,) = xp.nonzero(stop > start)
    return Segments(start[number], stop[number] - 1, number, offsets.shape[0] - 1)


def _check_offsets(offsets: np.ndarray[Any, np.dtype[np.int64]], time: int) -> None:
    if offsets[0] != 0 or offsets[-1] != time:
        raise ValueError(
            f"cu_seqlens must run from 0 to the length of the time axis, {time}, "
            f"but runs from {offsets[0]} to {offsets[-1]}"
        )
    falling = np.flatnonzero(np.diff(offsets) < 0)
    if len(falling):
        i = int(falling[0])
        raise ValueError(
            f"cu_seqlens must not decrease, but cu_seqlens[{i}] = {offsets[i]} and "
            f"cu_seqlens[{i + 1}] = {offsets[i + 1]}"
        )


def along(axis: int, steps: Any, model: Any) -> Any:
    """A bool array that is true at those steps, of rank ``model.ndim`` and size 1 off the axis."""
    xp = namespace(model)
    shape = [1] * model.ndim
    shape[axis] = model.shape[axis]
    marks = xp.zeros(model.shape[axis], dtype=xp.bool, device=getattr(model, "device", None))
    marks[steps] = True
    return xp.reshape(marks, tuple(shape))
