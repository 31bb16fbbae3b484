"""Sequences packed one after another along the time axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from linscan import _arrays, _host
from linscan._arrays import dtype_name, is_scalar, is_torch, namespace
from linscan._check import (
    Check,
    binary,
    check_axis,
    check_broadcast,
    check_out,
    check_same_place,
    looks_at_data,
)
from linscan._problem import ACCUMULATE


class Segments(NamedTuple):
    """Where the non-empty segments begin and end (inclusive), and which ones those are."""

    first: Any
    last: Any
    number: Any
    total: int
    """With the empty ones."""


def segments(cu_seqlens: Any, time: int, model: Any, check: bool) -> Segments:
    """The segments ``[cu_seqlens[i], cu_seqlens[i + 1])`` of a time axis that long."""
    offsets = _arrays.as_array("cu_seqlens", cu_seqlens)
    if not is_torch(offsets) and is_torch(model):
        offsets = namespace(model).asarray(offsets, device=model.device)
    check_same_place(cu_seqlens=offsets, data=model)
    if offsets.ndim != 1 or offsets.shape[0] < 1:
        raise ValueError(
            f"cu_seqlens must be one-dimensional and hold n + 1 offsets, but has shape "
            f"{tuple(offsets.shape)}"
        )
    if not dtype_name(offsets).removeprefix("u").startswith("int"):
        raise TypeError(f"cu_seqlens must be integers, not {dtype_name(offsets)}")
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
            f"cu_seqlens must run from 0 to {time}, the length of the time axis, but runs from "
            f"{offsets[0]} to {offsets[-1]}"
        )
    falling = np.flatnonzero(np.diff(offsets) < 0)
    if len(falling):
        i = int(falling[0])
        raise ValueError(
            f"cu_seqlens must not decrease, but cu_seqlens[{i}] is {offsets[i]} and "
            f"cu_seqlens[{i + 1}] is {offsets[i + 1]}"
        )


def along(axis: int, steps: Any, shape: tuple[int, ...], model: Any) -> Any:
    """A bool array that is true at those steps: full along the axis, of size 1 elsewhere."""
    marks = _arrays.filled((shape[axis],), False, model, "bool")
    marks[steps] = True
    return marks.reshape(tuple(n if i == axis else 1 for i, n in enumerate(shape)))


class PackedScan(NamedTuple):
    """A packed scan as a plain one: segments are cut by resets, and initial states are folded in.

    ``out`` is None where the plain scan cannot write into it, since it works in another dtype.
    """

    a: Any
    b: Any
    reset: Any
    out: Any
    parts: Segments
    ends: Any
    axis: int
    dtype: str
    state: Any

    def results(self, x: Any, out: Any) -> tuple[Any, Any]:
        """``(x, final)`` as the caller wants them."""
        rest = (*x.shape[: self.axis], *x.shape[self.axis + 1 :])
        shape = (self.parts.total, *rest)
        final = _arrays.filled(shape, 0 if self.state is None else self.state, x, dtype_name(x))
        final[self.parts.number] = namespace(x).moveaxis(x, self.axis, 0)[self.ends]
        x, final = _arrays.native(x, self.dtype), _arrays.native(final, self.dtype)
        if out is not None and x is not out:
            out[...] = x
            x = out
        return x, final


def pack(
    a: Any,
    b: Any,
    initial: Any,
    axis: int,
    reverse: bool,
    reset: Any,
    cu_seqlens: Any,
    out: Any,
    check: Check,
) -> PackedScan:
    """The plain scan that a packed one amounts to."""
    shape = _arrays.broadcast_shape(a, b)
    axis = check_axis(axis, len(shape), "the result")
    dtype = _arrays.promote(a=a, b=b, initial=initial)
    parts = segments(cu_seqlens, shape[axis], b, looks_at_data(check, b))
    begins, ends = (parts.last, parts.first) if reverse else (parts.first, parts.last)
    cuts = along(axis, begins, shape, b)
    if reset is not None:
        check_broadcast("reset", reset, shape, "the result")
        reset = binary("reset", reset, looks_at_data(check, reset))
        cuts = cuts | reset
    if initial is None:
        return PackedScan(a, b, cuts, out, parts, ends, axis, dtype, None)

    states = (parts.total, *shape[:axis], *shape[axis + 1 :])
    check_broadcast("initial", initial, states, "the segments, then the other axes")
    if out is not None:
        inputs = {"a": a, "b": None if out is b else b, "initial": initial, "reset": reset}
        check_out("out", out, shape, dtype, inputs)
    xp, work = namespace(b), ACCUMULATE[dtype]
    state = xp.broadcast_to(_arrays.native(initial, work), states)

    def at_begins(x: Any) -> Any:
        return xp.moveaxis(xp.broadcast_to(x, shape), axis, 0)[begins]

    folded = _arrays.filled(shape, b, b, work)
    first = at_begins(folded)
    multiplier = a if is_scalar(a) else at_begins(_arrays.native(a, work))
    with np.errstate(all="ignore"):
        joined = multiplier * state[parts.number] + first
    if reset is not None:
        joined = xp.where(at_begins(reset), first, joined)
    xp.moveaxis(folded, axis, 0)[begins] = joined
    if not is_scalar(a):
        a = _arrays.native(a, work)
    target = out if work == dtype else None
    return PackedScan(a, folded, cuts, target, parts, ends, axis, dtype, state)
