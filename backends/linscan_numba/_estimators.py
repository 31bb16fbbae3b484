"""Return estimators in one pass over memory: the ``fused`` entries of this backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan._problem import EstimatorInputs, EstimatorProblem
from linscan._protocol import Fused, Kernel
from linscan_numba import _simd, _streaming, _threads
from linscan_numba._estimator_kernels import PRESENT, columns, lines, rows, short_rows
from linscan_numba._launch import (
    ADVANTAGES,
    CARRIED,
    COLUMNS,
    CURRENT,
    ENDED,
    FINAL_VALUES,
    GIVEN,
    LAST_VALUES,
    LINES,
    MASK,
    NEXT_VALUES,
    RETURNS,
    REWARDS,
    ROWS,
    STREAMED,
    TRUNCATED,
    VALUES,
    WEIGHTS,
    entries,
)

Array = NDArray[Any]
SHORT = 64
"""The steps up to which rows are short: what :func:`rows` does once per row would not pay."""

WEIGHTS_OF: dict[str, Callable[[Any, Any], tuple[Any, Any, Any]]] = {
    "gae": lambda gamma, lam: (gamma, gamma, gamma * lam),
    "discounted_returns": lambda gamma, _: (0 * gamma, gamma, gamma),
    "td_lambda": lambda gamma, lam: (gamma * (1 - lam), gamma, gamma * lam),
}
"""From γ and λ: the weights of the next value where the trace goes on and where it ends, and of the
next state where the trace goes on."""

FINAL = {"values": "truncation_values", "current_value": "values", None: "next_values"}
"""What follows a truncated step, by ``EstimatorProblem.truncation``."""


def prepare(problem: EstimatorProblem) -> Fused | str:
    """A function that runs the problem, or why there is none."""
    p = problem
    if p.dtype not in ("float32", "float64") or p.out_dtype != p.dtype:
        return f"no compiled estimator from {p.dtype} to {p.out_dtype}"
    if p.lam_returns is not None:
        return "no compiled estimator with a second lambda"
    if not {p.gamma, p.lam} <= {"scalar", "row", None}:
        return "no compiled estimator with gamma or lam that changes from step to step"

    subtracts = p.estimator == "gae"
    flags = p.terminated or p.truncated or p.mask
    has = (subtracts, flags, p.mask)
    axis = ROWS if p.inner == 1 else COLUMNS
    serial, threaded = entries(p.dtype)
    best = compiled(best_of(p), p.dtype, *has).address
    work = p.outer * p.time * p.inner
    weights = Weights(p)
    how = GIVEN * p.next_values + CARRIED * (p.masked == "carry")
    how += CURRENT * (p.truncation == "current_value")
    size = (1 + subtracts) * work * np.dtype(p.dtype).itemsize
    how += STREAMED * (not p.fresh and _streaming.pays(size))
    given = {
        REWARDS: "rewards",
        VALUES: "values" if p.values else None,
        NEXT_VALUES: "next_values" if p.next_values else None,
        LAST_VALUES: "last_values" if p.last_values else None,
        FINAL_VALUES: FINAL[p.truncation] if p.truncated else None,
        ENDED: "terminated" if p.terminated else None,
        TRUNCATED: "truncated" if p.truncated else None,
        MASK: "mask" if p.mask else None,
    }
    fields = [(k, EstimatorInputs._fields.index(name)) for k, name in given.items() if name]
    adjoining = [k for k, _ in fields if k != LAST_VALUES or axis == COLUMNS]
    adjoining += [RETURNS, ADVANTAGES] if subtracts else [RETURNS]
    fits = sum(1 << k for k in adjoining)
    nothing = [absent("bool" if k in (ENDED, TRUNCATED, MASK) else p.dtype) for k in range(WEIGHTS)]

    def run(inputs: EstimatorInputs, out: Sequence[Any]) -> None:
        if not work:
            return
        operands = nothing.copy()
        for k, field in fields:
            operands[k] = inputs[field]
        operands[RETURNS] = out[-1]
        operands[ADVANTAGES] = out[0]
        rest = *operands, weights(inputs.gamma, inputs.lam), how
        if not _threads.run(serial, threaded, work, best, axis, fits, *rest):
            general = compiled(lines, p.dtype, *has).address
            _threads.run(serial, threaded, work, general, LINES, 0, *rest)

    return run


def explain(problem: EstimatorProblem) -> Kernel:
    """What runs a problem in one pass."""
    p = problem
    numbers = 2 + p.values + p.next_values + (p.truncation == "values") + (p.estimator == "gae")
    bools = p.terminated + p.truncated + p.mask
    moved = numbers * np.dtype(p.dtype).itemsize + bools
    names = {rows: "time-last", short_rows: "time-last, short rows", columns: "time-first"}
    return Kernel(f"fused {names[best_of(p)]}", float(moved))


class Weights:
    """The weights of a problem, as an array whose time axis they are; the last ones are kept."""

    def __init__(self, problem: EstimatorProblem) -> None:
        self._of = WEIGHTS_OF[problem.estimator]
        self._constant = problem.gamma == "scalar" and problem.lam in ("scalar", None)
        self._last: tuple[Any, Any, Array] = (None, None, np.empty(0))

    def __call__(self, gamma: Any, lam: Any) -> Array:
        if not self._constant:
            gamma, lam = (np.asarray(x, np.float64) for x in (gamma, 0.0 if lam is None else lam))
            return np.concatenate(np.broadcast_arrays(*self._of(gamma, lam)), axis=1)
        last = self._last
        if last[0] != gamma or last[1] != lam:
            last = gamma, lam, np.array(self._of(gamma, lam), np.float64).reshape(1, 3, 1)
            self._last = last
        return last[2]


def best_of(p: EstimatorProblem) -> Callable[..., Any]:
    """What makes the kernel for a problem whose operands have the strides for it."""
    if p.inner > 1:
        return columns
    return short_rows if p.time <= SHORT and not p.mask else rows


@cache
def compiled(make: Callable[..., Any], dtype: str, *has: bool) -> Any:
    """The kernel for what a problem has: advantages, flags, a mask."""
    return make(_simd.ELEMENTS[dtype], *(PRESENT if x else None for x in has))


def absent(dtype: str) -> Array:
    """What stands for an operand that is not there: all that is loaded around it are zeros."""
    return np.zeros((1, 128, 1), dtype)[:, 64:65]


FUSED: Mapping[str, Callable[[EstimatorProblem], Fused | str]] = dict.fromkeys(WEIGHTS_OF, prepare)
