"""The canonical form of a call: what every backend receives instead of a user's arguments.

Whatever the rank and the axis, a call becomes three dimensions, ``(outer, time, inner)``: the
axes before time merged, time, the axes after it merged.  Every operand is a three-dimensional
array in the user's own library, and *a dimension of size 1 broadcasts*: a backend gives it stride
zero and never materialises it.  Strides are otherwise arbitrary, inputs may be read-only and may
be misaligned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Kind = Literal["scalar", "row", "step", "full"]

ACCUMULATE = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
}
"""Every dtype a scan works in, and the one its state is kept in (at least)."""

ITEMSIZE = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""In bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class ScanProblem:
    """``x[t] = a[t] * x[t-1] + b[t]``, or ``x[t] = a[t] * x[t+1] + b[t]`` when ``reverse``.

    Problems are made once per call signature and then reused, and they compare and hash by
    identity: a backend may keep what it prepared for one in a dictionary.
    """

    outer: int
    time: int
    inner: int
    dtype: str
    """Of ``b``, of ``a`` unless that is a scalar, of ``initial`` and of the result."""
    a: Kind
    """``scalar``: a Python number, not rounded to ``dtype``; ``row``: one per row, time has size 1;
    ``step``: one per step, outer and inner have size 1; ``full``: anything else."""
    reverse: bool = False
    reset: bool = False
    """A bool array is given; where it is true, ``x[t] = b[t]`` by selection."""
    initial: bool = False
    """The state before the first step is given, shape ``(outer, 1, inner)``; otherwise zero."""
    final: bool = False
    """The state after the last step is wanted."""
    chunk_size: int | None = None

    @property
    def accumulate(self) -> str:
        """The dtype the state is carried in, at least."""
        return ACCUMULATE[self.dtype]

    @property
    def bytes_per_element(self) -> float:
        """What a scan moves at least: the operands that are full, and the result."""
        return ITEMSIZE[self.dtype] * (3 if self.a == "full" else 2) + self.reset


@dataclass(frozen=True, slots=True, eq=False)
class EstimatorProblem:
    """A return estimator: which of the :class:`EstimatorInputs` are there and what they mean.

    The next value of step t is ``n[t]``, and ``k[t]`` says whether the trace goes on to t + 1::

        n[t] = 0                        where terminated
               truncation_values[t]     where truncated, if truncation == "values"
               values[t]                where truncated, if truncation == "current_value"
               next_values[t]           elsewhere, if given
               values[t + 1]            elsewhere
               last_values              at the last step, 0 if not given
        k[t] = not (terminated[t] or truncated[t] or t is the last step)

    Terminated wins over truncated.  A masked step (``mask`` false) is a hole that the recurrence
    steps over: the state passes through unchanged, and "the next value" is that of the next *valid*
    step.  A flag on a masked step acts on the last valid step before it, and the truncation value
    is read where the flag stands ("current_value" is that of the valid step); of several flags in
    a row of holes the first decides, and the state there is 0.  Cuts and holes select: whatever
    stands there, NaN included, is not read into the result.
    """

    estimator: str
    outer: int
    time: int
    inner: int
    dtype: str
    """Of rewards, values, next_values, last_values and truncation_values."""
    out_dtype: str
    gamma: Kind
    lam: Kind | None
    """None for ``discounted_returns``."""
    lam_returns: Kind | None = None
    """GAE only: a second λ for the returns."""
    values: bool = True
    next_values: bool = False
    last_values: bool = False
    terminated: bool = False
    truncated: bool = False
    truncation: Literal["values", "current_value"] | None = None
    """What n is where truncated; None: ``next_values`` (given) or no ``truncated`` at all."""
    mask: bool = False
    masked: Literal["zero", "carry"] = "zero"
    """What the outputs are at masked steps: 0, or the state passing by (plus the value, for GAE's
    returns)."""
    fresh: bool = True
    """Whether the outputs are memory that nobody has used yet, rather than the caller's arrays."""
    chunk_size: int | None = None
    own: tuple[Kind | str | int | None, ...] = ()
    """The kind of each operand that this estimator alone has; an option is there itself."""


class EstimatorInputs(NamedTuple):
    """The operands of an estimator: three-dimensional, or None where the problem says so.

    ``values`` has ``time`` steps here: a longer one has been split into ``values`` and
    ``last_values``, whose time has size 1.  Flags and ``mask`` are bool.  ``gamma``, ``lam`` and
    ``lam_returns`` are Python floats, or float32 or float64 arrays.
    """

    rewards: Any
    values: Any
    next_values: Any
    last_values: Any
    terminated: Any
    truncated: Any
    truncation_values: Any
    mask: Any
    gamma: Any
    lam: Any
    lam_returns: Any
    own: Any = ()
    """A tuple of what this estimator alone has: flags, weights (like ``gamma``), ids, options."""
