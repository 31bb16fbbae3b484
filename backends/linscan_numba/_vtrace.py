"""V-trace in one pass over memory, after NumPy's exponential: the loop, columns abreast."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from linscan._problem import EstimatorInputs, EstimatorProblem
from linscan._protocol import Fused, Kernel
from linscan_numba import _simd as simd
from linscan_numba import _threads
from linscan_numba._estimator_kernels import CARRIED, CURRENT, GIVEN
from linscan_numba._jit import jit
from linscan_numba._launch import (
    FIRST,
    HOW,
    absent,
    kernel,
    line,
    locate,
    peek,
    place,
    plan_of,
    share,
)
from linscan_numba._operands import sizes

RHOS, REWARDS, VALUES, NEXT_VALUES, LAST_VALUES, FINAL_VALUES = range(FIRST, FIRST + 6)
TERMINATED, TRUNCATED, MASK = range(FIRST + 6, FIRST + 9)
NUMBERS = FIRST + 9
"""Side by side, as float64: gamma, lam, and those that V-trace alone has."""
VS, ADVANTAGES, ERRORS = range(FIRST + 10, FIRST + 13)

ALWAYS = np.ones((1, 1, 1), bool)
"""The mask where none is given."""

SIDE = 64
"""How many columns are taken abreast."""

X, FOLLOWING, AFTER, ENDED, CUT, STOPPED = range(6)
"""What a step of a column hands on to the one before it, as float64."""
SIZE = 6 * 8
"""Its bytes."""


def prepare(problem: EstimatorProblem) -> Fused | str:
    """A function that runs the problem, or why there is none."""
    p = problem
    if p.dtype not in ("float32", "float64") or p.out_dtype != p.dtype:
        return f"no compiled V-trace from {p.dtype} to {p.out_dtype}"
    if {p.gamma, p.lam, *p.own[1:]} != {"scalar"}:
        return "no compiled V-trace with arrays but of log_rhos"
    address = build(p.dtype).address
    how = GIVEN * p.next_values + CARRIED * (p.masked == "carry")
    how += CURRENT * (p.truncation == "current_value")
    plan = plan_of((p.outer, p.time, p.inner), how)
    place(plan, dict.fromkeys((NEXT_VALUES, LAST_VALUES, FINAL_VALUES), absent(p.dtype)))
    place(plan, {TERMINATED: absent("bool"), TRUNCATED: absent("bool"), MASK: ALWAYS})

    def run(i: EstimatorInputs, out: Sequence[Any]) -> None:
        if not out[0].size:
            return
        log_rhos, *numbers = i.own
        with np.errstate(all="ignore"):
            rhos = np.asarray(np.exp(log_rhos), p.dtype)
        arrays = {
            RHOS: rhos.reshape(rhos.shape or (1, 1, 1)),
            REWARDS: i.rewards,
            VALUES: i.values,
            NEXT_VALUES: i.next_values,
            LAST_VALUES: i.last_values,
            FINAL_VALUES: i.truncation_values if p.truncation == "values" else i.next_values,
            TERMINATED: i.terminated,
            TRUNCATED: i.truncated,
            MASK: i.mask,
            NUMBERS: np.array([[[i.gamma, i.lam, *numbers]]], np.float64),
            **dict(zip((VS, ADVANTAGES, ERRORS), out, strict=True)),
        }
        call = plan.copy()
        place(call, {k: x for k, x in arrays.items() if x is not None})
        _threads.run(address, call, _threads.parts_of(out[0].size))

    return run


def explain(problem: EstimatorProblem) -> Kernel:
    """What runs a problem in one pass."""
    p = problem
    numbers = 5 + (p.own[0] == "full") + p.next_values + (p.truncation == "values")
    bools = p.terminated + p.truncated + p.mask
    return Kernel("fused loop", float(numbers * np.dtype(p.dtype).itemsize + bools))


@jit(inline=True)
def _number(numbers: Any, k: int) -> Any:
    return simd.load1(simd.FLOAT64, line(numbers, 0, 0, k)[0])


@jit(inline=True)
def _kept(here: int, k: int) -> Any:
    return simd.load1(simd.FLOAT64, here + 8 * k)


@jit(inline=True)
def _put(here: int, k: int, x: float) -> None:
    simd.store1(simd.FLOAT64, here + 8 * k, x)


@jit(inline=True)
def _least(rho: float, limit: float) -> float:
    return limit if rho > limit else rho


@jit(inline=True)
def _leaky(rho: float, limit: float, leak: float) -> float:
    least: float = _least(rho, limit)
    return least if leak == 0 else leak * rho + (1 - leak) * least


@jit()
def _part(E: Any, plan: int, part: int, parts: int) -> None:
    """One of ``parts`` parts of the columns."""
    outer, time, inner = sizes(plan)
    how = peek(plan, HOW)
    rho_, r_, v_, n_ = (
        locate(plan, RHOS),
        locate(plan, REWARDS),
        locate(plan, VALUES),
        locate(plan, NEXT_VALUES),
    )
    z_, f_ = locate(plan, LAST_VALUES), locate(plan, FINAL_VALUES)
    ends_, cuts_, mask_ = locate(plan, TERMINATED), locate(plan, TRUNCATED), locate(plan, MASK)
    vs_, advantages_, errors_ = locate(plan, VS), locate(plan, ADVANTAGES), locate(plan, ERRORS)
    numbers = locate(plan, NUMBERS)
    gamma, lam = _number(numbers, 0), _number(numbers, 1)
    rho_clip, c_clip = _number(numbers, 2), _number(numbers, 3)
    pg_rho_clip, leak = _number(numbers, 4), _number(numbers, 5)
    scratch = simd.scratch()
    groups = (inner + SIDE - 1) // SIDE
    begin, end = share(outer * groups, part, parts)
    for k in range(begin, end):
        row, left = k // groups, k % groups * SIDE
        width = min(SIDE, inner - left)
        for i in range(width):
            here = scratch + i * SIZE
            _put(here, X, 0.0)
            _put(here, FOLLOWING, np.float64(simd.load1(E, line(z_, row, 0, left + i)[0])))
            _put(here, ENDED, 0.0)
            _put(here, CUT, 0.0)
            _put(here, STOPPED, 1.0)
        for t in range(time - 1, -1, -1):
            for i in range(width):
                j, here = left + i, scratch + i * SIZE
                x, following = _kept(here, X), _kept(here, FOLLOWING)
                ended, cut = _kept(here, ENDED) != 0, _kept(here, CUT) != 0
                stopped = _kept(here, STOPPED) != 0
                ends_here = simd.load_flag(line(ends_, row, t, j)[0])
                cuts_here = simd.load_flag(line(cuts_, row, t, j)[0])
                if ends_here or cuts_here:
                    ended, cut, stopped = ends_here, cuts_here, True
                    x = following = 0.0
                    if not ends_here:
                        following = np.float64(simd.load1(E, line(f_, row, t, j)[0]))
                value = np.float64(simd.load1(E, line(v_, row, t, j)[0]))
                advantage = 0.0
                valid = simd.load_flag(line(mask_, row, t, j)[0])
                if valid:
                    reward = np.float64(simd.load1(E, line(r_, row, t, j)[0]))
                    rho = np.float64(simd.load1(E, line(rho_, row, t, j)[0]))
                    n = following
                    if ended:
                        n = 0.0
                    elif how & GIVEN:
                        n = np.float64(simd.load1(E, line(n_, row, t, j)[0]))
                    elif cut and how & CURRENT:
                        n = value
                    mixture, passed = n, 0.0
                    if not stopped:
                        mixture = _kept(here, AFTER) + lam * x
                        passed = gamma * lam * _leaky(rho, c_clip, leak) * x
                    x = passed + _leaky(rho, rho_clip, leak) * (reward + gamma * n - value)
                    advantage = _least(rho, pg_rho_clip) * (reward + gamma * mixture - value)
                    following = value
                    _put(here, AFTER, value)
                    ended = cut = stopped = False
                error = target = 0.0
                if valid or how & CARRIED:
                    error, target = x, x + value
                simd.store1(E, line(vs_, row, t, j)[0], simd.rounded(E, target))
                simd.store1(E, line(advantages_, row, t, j)[0], simd.rounded(E, advantage))
                simd.store1(E, line(errors_, row, t, j)[0], simd.rounded(E, error))
                _put(here, X, x)
                _put(here, FOLLOWING, following)
                _put(here, ENDED, 1.0 if ended else 0.0)
                _put(here, CUT, 1.0 if cut else 0.0)
                _put(here, STOPPED, 1.0 if stopped else 0.0)


@cache
def build(dtype: str) -> Any:
    """The kernel."""
    E = simd.ELEMENTS[dtype]

    def run(plan, part, parts):  # type: ignore[no-untyped-def]
        _part(E, plan, part, parts)

    return kernel(run)
