"""Sequences packed one after another along the time axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from linscan import _arrays
from linscan._arrays import dtype_name, is_scalar, is_torch, namespace
from linscan._call import ScanCall
from linscan._check import (
    binary,
    check_axis,
    check_broadcast,
    check_memory,
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


def segments(cu_seqlens: Any, time: int, name: str, model: Any, check: bool) -> Segments:
    """The segments ``[cu_seqlens[i], cu_seqlens[i + 1])`` of a time axis that long.

    ``model``, named ``name``, is the array that is packed.
    """
    offsets = _arrays.as_array("cu_seqlens", cu_seqlens)
    if not is_torch(offsets) and is_torch(model):
        offsets = namespace(model).asarray(offsets, device=model.device)
    check_same_place(**{name: model}, cu_seqlens=offsets)
    if offsets.ndim != 1 or offsets.shape[0] < 1:
        raise ValueError(
            f"cu_seqlens must be one-dimensional and hold n + 1 offsets, but has shape "
            f"{tuple(offsets.shape)}"
        )
    if not dtype_name(offsets).removeprefix("u").startswith("int"):
        raise TypeError(f"cu_seqlens must be integers, not {dtype_name(offsets)}")
    if check:
        _check_offsets(np.asarray(offsets.tolist(), np.int64), time)
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


class Packed(NamedTuple):
    """How the result of a plain scan is read as that of packed sequences."""

    parts: Segments
    ends: Any
    """The last step of each segment, in the order of the scan."""
    axis: int
    dtype: str
    state: Any
    """The initial state of each; None is zero."""

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


def pack(call: ScanCall, cu_seqlens: Any) -> tuple[ScanCall, Packed]:
    """The plain scan that a packed one amounts to, and how to read its result."""
    a, b, initial, reset, out = call.a, call.b, call.initial, call.reset, call.out
    shape = _arrays.broadcast_shape(a, b)
    axis = check_axis(call.axis, len(shape), "the result")
    dtype = _arrays.promote(a=a, b=b, initial=initial)
    parts = segments(cu_seqlens, shape[axis], "b", b, looks_at_data(call.check, b))
    begins, ends = (parts.last, parts.first) if call.reverse else (parts.first, parts.last)
    cuts = along(axis, begins, shape, b)
    if reset is not None:
        check_broadcast("reset", reset, shape, "the result")
        reset = binary("reset", reset, looks_at_data(call.check, reset))
        cuts = cuts | reset
    if initial is None:
        packed = Packed(parts, ends, axis, dtype, None)
        return call._replace(reset=cuts, return_final=False), packed

    states = (parts.total, *shape[:axis], *shape[axis + 1 :])
    check_broadcast("initial", initial, states, "the segments, then the other axes")
    if out is not None:
        check_out("out", out, shape, dtype)
        check_memory("out", out, call.inputs)
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
    plain = call._replace(
        a=a,
        b=folded,
        initial=None,
        reset=cuts,
        return_final=False,
        out=out if work == dtype else None,
    )
    return plain, Packed(parts, ends, axis, dtype, state)
