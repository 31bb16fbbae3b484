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
    """Where each segment begins and ends (inclusive); both are T for an empty one.

    Empty ones stay among the others, so that sizes do not depend on data: a device is not waited
    for, and a graph can be recorded.
    """

    first: Any
    last: Any
    there: Any
    """Whether it has any steps."""
    total: int


def as_offsets(cu_seqlens: Any) -> Any:
    """An array of offsets; else it raises."""
    offsets = _arrays.as_array("cu_seqlens", cu_seqlens)
    if offsets.ndim != 1 or offsets.shape[0] < 1:
        raise ValueError(
            f"cu_seqlens must be one-dimensional and hold n + 1 offsets, but has shape "
            f"{tuple(offsets.shape)}"
        )
    if not dtype_name(offsets).removeprefix("u").startswith("int"):
        raise TypeError(f"cu_seqlens must be integers, not {dtype_name(offsets)}")
    return offsets


def segments(cu_seqlens: Any, time: int, name: str, model: Any, check: bool) -> Segments:
    """The segments ``[cu_seqlens[i], cu_seqlens[i + 1])`` of a time axis that long.

    ``model``, named ``name``, is the array that is packed.
    """
    offsets = as_offsets(cu_seqlens)
    if not is_torch(offsets) and is_torch(model):
        offsets = namespace(model).asarray(offsets, device=model.device)
    check_same_place(**{name: model}, cu_seqlens=offsets)
    if check:
        _check_offsets(np.asarray(offsets.tolist(), np.int64), time)
    xp = namespace(offsets)
    offsets = xp.astype(offsets, xp.int64)
    start, stop = offsets[:-1], offsets[1:]
    there = stop > start
    first, last = xp.where(there, start, time), xp.where(there, stop - 1, time)
    return Segments(first, last, there, offsets.shape[0] - 1)


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
        xp, axis, time = namespace(x), self.axis, x.shape[self.axis]
        states = (self.parts.total, *x.shape[:axis], *x.shape[axis + 1 :])
        final = xp.zeros(states, dtype=x.dtype, device=x.device)
        if self.state is not None:
            final = final + self.state
        if time:
            last = _arrays.moveaxis(x, axis, 0)[xp.where(self.parts.there, self.ends, time - 1)]
            there = xp.reshape(self.parts.there, (-1, *(1,) * (x.ndim - 1)))
            final = xp.where(there, last, final)
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
    cuts = _arrays.along(axis, begins, shape, b)
    if reset is not None:
        check_broadcast("reset", reset, shape, "the result")
        reset = binary("reset", reset, looks_at_data(call.check, reset))
        cuts = cuts | reset
    plain = call._replace(initial=None, reset=cuts, return_final=False)
    if initial is None:
        return plain, Packed(parts, ends, axis, dtype, None)

    states = (parts.total, *shape[:axis], *shape[axis + 1 :])
    check_broadcast("initial", initial, states, "the segments, then the other axes")
    if out is not None:
        check_out("out", out, shape, dtype)
        check_memory("out", out, call.inputs)
    xp, work = namespace(b), ACCUMULATE[dtype]
    state = xp.broadcast_to(_arrays.native(initial, work), states)
    packed = Packed(parts, ends, axis, dtype, state)
    if not shape[axis]:
        return plain, packed

    def at_begins(x: Any) -> Any:
        steps = _arrays.moveaxis(xp.broadcast_to(x, shape), axis, 0)
        return steps[xp.where(parts.there, begins, 0)]

    read = xp.broadcast_to(xp.reshape(parts.there, (-1, *(1,) * (len(shape) - 1))), states)
    if reset is not None:
        read = read & ~at_begins(reset)
    multiplier = a
    if not is_scalar(a):
        a = _arrays.native(a, work)
        multiplier = xp.where(read, at_begins(a), 0)
    b = _arrays.native(b, work)
    first = at_begins(b)
    with _arrays.quiet(b):
        joined = xp.where(read, multiplier * xp.where(read, state, 0) + first, first)
    one_more = (*shape[:axis], 1, *shape[axis + 1 :])
    room = xp.zeros(one_more, dtype=b.dtype, device=b.device)
    longer = xp.concat([xp.broadcast_to(b, shape), room], axis=axis)
    folded = _arrays.put(_arrays.moveaxis(longer, axis, 0), begins, joined)[:-1]
    out = out if work == dtype else None
    return plain._replace(a=a, b=_arrays.moveaxis(folded, 0, axis), out=out), packed
