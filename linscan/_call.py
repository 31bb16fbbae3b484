"""What a caller can say to ``scan``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from linscan import _arrays
from linscan._arrays import is_scalar
from linscan._check import Check, boolean, check_options, refuse_nan


class ScanCall(NamedTuple):
    """The arguments of a scan; packed sequences are said in these terms before it is planned."""

    a: Any
    b: Any
    initial: Any
    axis: int
    reverse: bool
    reset: Any
    return_final: bool
    out: Any
    backend: str
    chunk_size: int | None
    check: Check

    def checked(self) -> ScanCall:
        """The same with everything an array but None and a number for ``a``; else it raises."""
        a, b, initial, axis, reverse, reset, return_final, out, backend, chunk_size, check = self
        axis, chunk_size = check_options(axis, chunk_size, check)
        if isinstance(a, np.generic) and _arrays.is_torch(b):
            a = a.item()
        if not is_scalar(a):
            a = _arrays.as_array("a", a)
        elif type(a) is int:
            a = _arrays.real("a", a)
        if not is_scalar(b):
            b = _arrays.as_array("b", b)
        elif is_scalar(a):
            raise ValueError("a and b are both numbers: a scan needs an axis of time")
        else:
            b = _arrays.filled((), b, a, _arrays.promote(a=a, b=b))
        if initial is not None:
            initial = _arrays.array_like("initial", initial, b)
        if reset is not None:
            reset = _arrays.array_like("reset", reset, b)
        if out is not None:
            target = _arrays.target("out", out)
            out = b if out is self.b else target
        return ScanCall(
            a,
            b,
            initial,
            axis,
            boolean("reverse", reverse),
            reset,
            boolean("return_final", return_final),
            out,
            backend,
            chunk_size,
            check,
        )

    def refuse_nan(self, shape: tuple[int, ...], axis: int, reset: Any) -> None:
        """ValueError for the first NaN that is read.

        The multiplier is not, at a reset and at the first step of a zero state.
        """
        skipped = [] if self.initial is not None else [shape[axis] - 1 if self.reverse else 0]
        unread = _arrays.along(axis, skipped, shape, self.b)
        refuse_nan("a", self.a, ~unread if reset is None else ~(unread | reset))
        refuse_nan("b", self.b)
        refuse_nan("initial", self.initial)

    @property
    def inputs(self) -> dict[str, Any]:
        """What ``out`` may share no memory with."""
        b = None if self.out is self.b else self.b
        return {"a": self.a, "b": b, "initial": self.initial, "reset": self.reset}
