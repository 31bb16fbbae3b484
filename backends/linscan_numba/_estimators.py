"""Return estimators in one pass over memory: the ``fused`` entries of this backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan import _host
from linscan._problem import EstimatorInputs, EstimatorProblem
from linscan._protocol import Fused, Kernel, Strides
from linscan_numba import _simd, _streaming, _threads
from linscan_numba._estimator_columns import columns, few_columns
from linscan_numba._estimator_kernels import (
    ADVANTAGES,
    CARRIED,
    CURRENT,
    ENDED,
    FINAL_VALUES,
    FLAGS,
    GIVEN,
    LAST_VALUES,
    MASK,
    NEXT_VALUES,
    PRESENT,
    RESULTS,
    RETURNS,
    REWARDS,
    STREAMED,
    TRUNCATED,
    VALUES,
    WEIGHTS,
    lines,
)
from linscan_numba._estimator_rows import rows, short_rows
from linscan_numba._launch import FEW, FIRST, HOW, INNER, TIME, Numbers, absent, plan_of

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
    """What runs the problem, or why there is nothing."""
    p = problem
    if p.dtype not in ("float32", "float64") or p.out_dtype != p.dtype:
        return f"no compiled estimator from {p.dtype} to {p.out_dtype}"
    if p.lam_returns is not None:
        return "no compiled estimator with a second lambda"
    if not {p.gamma, p.lam} <= {"scalar", "row", None}:
        return "no compiled estimator with gamma or lam that changes from step to step"
    return Pass(p)


class Pass:
    """One pass over the operands of a problem; see :data:`linscan._protocol.Fused`."""

    def __init__(self, problem: EstimatorProblem) -> None:
        p = self._problem = problem
        subtracts = p.estimator == "gae"
        self._has = subtracts, p.terminated or p.truncated or p.mask, p.mask
        self._weights = weights_of(p)
        there = {
            "rewards": True,
            "values": p.values,
            "next_values": p.next_values,
            "last_values": p.last_values,
            "terminated": p.terminated,
            "truncated": p.truncated,
            "truncation_values": p.truncation == "values",
            "mask": p.mask,
        }
        self._inputs = [name for name, is_there in there.items() if is_there]
        names = [*self._inputs, *(["advantages", "returns"] if subtracts else ["returns"])]
        operands = {
            REWARDS: "rewards",
            VALUES: "values",
            NEXT_VALUES: "next_values",
            LAST_VALUES: "last_values",
            FINAL_VALUES: FINAL[p.truncation] if p.truncated else None,
            ENDED: "terminated",
            TRUNCATED: "truncated",
            MASK: "mask",
            ADVANTAGES: "advantages",
            RETURNS: "returns",
        }
        self._operands = {k: names.index(name) for k, name in operands.items() if name in names}
        self.bind = lru_cache(8)(self._bind)

    def __call__(self, inputs: EstimatorInputs, out: Sequence[Array]) -> None:
        arrays = [*(getattr(inputs, name) for name in self._inputs), *out]
        if out[0].size:
            run = self.bind(tuple(map(_host.strides, arrays)))
            run(list(map(_host.address, arrays)), inputs.gamma, inputs.lam)

    def _bind(self, strides: Sequence[Strides]) -> Callable[[Sequence[int], Any, Any], None]:
        """As :data:`linscan._protocol.Bind` says."""
        p, weights, operands = self._problem, self._weights, self._operands
        varies = p.gamma == "row" or p.lam == "row"
        size, work = np.dtype(p.dtype).itemsize, p.outer * p.time * p.inner
        steps = {k: strides[i] for k, i in operands.items()}
        results = [k for k in operands if k in RESULTS]

        axis = TIME if p.inner == 1 else INNER
        adjoining = [k for k in operands if k != LAST_VALUES or axis == INNER]
        fits = (p.outer, p.time, p.inner)[axis] == 1 or all(
            steps[k][axis] == (1 if k in FLAGS else size) for k in adjoining
        )
        address = compiled(best_of(p) if fits else lines, p.dtype, *self._has).address

        how = GIVEN * p.next_values + CARRIED * (p.masked == "carry")
        how += CURRENT * (p.truncation == "current_value")
        streams = (
            not p.fresh
            and _streaming.pays(len(results) * work * size)
            # whole vectors are streamed, to where they are aligned
            and (axis == TIME or p.inner % _simd.WIDTH[p.dtype] == 0)
            and all(step % 64 == 0 for k in results for step in steps[k][:axis])
        )
        plan = plan_of((p.outer, p.time, p.inner), how, {**steps, WEIGHTS: (0, 8, 0)})
        for k in range(FIRST, WEIGHTS):
            if k not in operands:
                plan[4 * k] = _host.address(absent("bool" if k in FLAGS else p.dtype))
        places = [(4 * k, i) for k, i in operands.items()]

        def run(addresses: Sequence[int], gamma: Any, lam: Any) -> None:
            call = plan.copy()
            for k, i in places:
                call[k] = addresses[i]
            own, call[4 * WEIGHTS] = weights(gamma, lam)
            if varies:
                call[4 * WEIGHTS + 1 : 4 * WEIGHTS + 4] = _host.strides(own)
            if streams and not any(call[4 * k] % 64 for k in results):
                call[HOW] += STREAMED
            _threads.run(address, call, _threads.parts_of(work))

        return run


def explain(problem: EstimatorProblem) -> Kernel:
    """What runs a problem in one pass."""
    p = problem
    numbers = 2 + p.values + p.next_values + (p.truncation == "values") + (p.estimator == "gae")
    bools = p.terminated + p.truncated + p.mask
    moved = numbers * np.dtype(p.dtype).itemsize + bools
    names = {rows: "time-last", short_rows: "time-last, short rows"}
    return Kernel(f"fused {names.get(best_of(p), 'time-first')}", float(moved))


def weights_of(problem: EstimatorProblem) -> Callable[[Any, Any], tuple[Array, int]]:
    """From γ and λ: the weights, as an array whose time axis they are, and its address."""
    make = partial(weights, WEIGHTS_OF[problem.estimator])
    if problem.gamma == "scalar" and problem.lam in ("scalar", None):
        return Numbers(make)
    return lambda gamma, lam: (array := make(gamma, lam), _host.address(array))


@np.errstate(all="ignore")
def weights(of: Callable[[Any, Any], tuple[Any, Any, Any]], gamma: Any, lam: Any) -> Array:
    """The weights that ``of`` makes of numbers, or of arrays without time."""
    numbers = (np.asarray(x, np.float64) for x in (gamma, 0.0 if lam is None else lam))
    parts = of(*(x.reshape(x.shape or (1, 1, 1)) for x in numbers))
    return np.concatenate(np.broadcast_arrays(*parts), axis=1)


def best_of(p: EstimatorProblem) -> Callable[..., Any]:
    """What makes the kernel for a problem whose operands have the strides for it."""
    if p.inner > 1:
        return few_columns if p.inner <= FEW * _simd.WIDTH[p.dtype] else columns
    return short_rows if p.time <= SHORT and not p.mask else rows


@cache
def compiled(make: Callable[..., Any], dtype: str, *has: bool) -> Any:
    """The kernel for what a problem has: advantages, flags, a mask."""
    return make(_simd.ELEMENTS[dtype], *(PRESENT if x else None for x in has))


FUSED: Mapping[str, Callable[[EstimatorProblem], Fused | str]] = dict.fromkeys(WEIGHTS_OF, prepare)
