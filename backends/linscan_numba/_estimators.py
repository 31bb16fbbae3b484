"""Return estimators in one pass over memory: the ``fused`` entries of this backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan import _host
from linscan._problem import EstimatorInputs, EstimatorProblem
from linscan._protocol import Fused
from linscan_numba import _simd, _threads
from linscan_numba._estimator_kernels import PRESENT, columns, lines, rows
from linscan_numba._launch import (
    ADVANTAGES,
    COLUMNS,
    ENDED,
    FINAL_VALUES,
    LAST_VALUES,
    LINES,
    MASK,
    NEXT_VALUES,
    RETURNS,
    REWARDS,
    ROWS,
    TRUNCATED,
    VALUES,
    entries,
)

Array = NDArray[Any]
Weights = Callable[[Any, Any], tuple[Any, Any, Any]]
"""From γ and λ: the weights of the next value where the trace goes on and where it ends, and of the
next state where the trace goes on."""

WEIGHTS: dict[str, Weights] = {
    "gae": lambda gamma, lam: (gamma, gamma, gamma * lam),
    "discounted_returns": lambda gamma, _: (0 * gamma, gamma, gamma),
    "td_lambda": lambda gamma, lam: (gamma * (1 - lam), gamma, gamma * lam),
}


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
    best = compiled(axis, p.dtype, *has)
    shape = (p.outer, p.time, p.inner)
    work = p.outer * p.time * p.inner
    weights_of = WEIGHTS[p.estimator]
    nothing, never = absent(p.dtype), absent("bool")
    rule = (int(p.next_values), int(p.masked == "carry"))
    fits = sum(
        1 << k
        for k, present in {
            REWARDS: True,
            VALUES: p.values,
            NEXT_VALUES: p.next_values,
            LAST_VALUES: p.last_values and axis == COLUMNS,
            FINAL_VALUES: p.truncated,
            RETURNS: True,
            ADVANTAGES: subtracts,
            ENDED: p.terminated,
            TRUNCATED: p.truncated,
            MASK: p.mask,
        }.items()
        if present
    )
    remembered: tuple[Any, Any, Array] = (None, None, np.empty(0))

    def weights(gamma: Any, lam: Any) -> Array:
        nonlocal remembered
        if isinstance(gamma, float) and isinstance(lam, float | None):
            if remembered[0] != gamma or remembered[1] != lam:
                numbers = np.array(weights_of(gamma, lam))
                remembered = (gamma, lam, numbers.reshape(1, 3, 1))
            return remembered[2]
        gamma, lam = (
            np.asarray(0.0 if x is None else _host.view(x), np.float64) for x in (gamma, lam)
        )
        return np.concatenate(np.broadcast_arrays(*weights_of(gamma, lam)), axis=1)

    def run(inputs: EstimatorInputs, out: tuple[Any, ...] | None) -> tuple[Any, ...]:
        view = _host.view
        x = EstimatorInputs(*(view(x) for x in inputs))
        results = _host.empty(shape, p.dtype, 1 + subtracts) if out is None else [*map(view, out)]
        if work:
            final = nothing
            if p.truncated:
                final = {"values": x.truncation_values, "current_value": x.values}.get(
                    p.truncation, x.next_values
                )
            values = (
                x.rewards,
                nothing if x.values is None else x.values,
                nothing if x.next_values is None else x.next_values,
                nothing if x.last_values is None else x.last_values,
                final,
                results[-1],
                results[0],
            )
            marks = (
                never if x.terminated is None else x.terminated,
                never if x.truncated is None else x.truncated,
                never if x.mask is None else x.mask,
            )
            rest = (fits, values, marks, weights(x.gamma, x.lam), rule)
            if not _threads.run(serial, threaded, work, best.address, axis, *rest):
                generic = compiled(LINES, p.dtype, *has)
                _threads.run(serial, threaded, work, generic.address, LINES, 0, *rest[1:])
        if out is not None:
            return out
        return tuple(_host.like(y, inputs.rewards, p.dtype) for y in results)

    return run


@cache
def compiled(axis: int, dtype: str, *has: bool) -> Any:
    """The kernel for what a problem has: advantages, flags, a mask."""
    make = {LINES: lines, ROWS: rows, COLUMNS: columns}[axis]
    return make(_simd.ELEMENTS[dtype], *(PRESENT if x else None for x in has))


def absent(dtype: str) -> Array:
    """What stands for an operand that is not there: it reads as zeros, however many are loaded."""
    return np.zeros((1, 64, 1), dtype)[:, :1]


FUSED: Mapping[str, Callable[[EstimatorProblem], Fused | str]] = dict.fromkeys(WEIGHTS, prepare)
