"""The fused estimators of the compiled CPU backend against a serial loop in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from linscan._problem import EstimatorInputs, EstimatorProblem, Kind

pytest.importorskip("numba")

from linscan_numba._estimators import FUSED

Array = NDArray[Any]
Source = Literal["zero", "last", "next"]
Flags = Literal["none", "terminated", "values", "current_value", "next", "both"]

LENGTHS = (0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 1023, 1024, 1025, 2049)
GAMMA, LAM, LAM_RETURNS = 0.99, 0.95, 0.9


def serial(problem: EstimatorProblem, inputs: EstimatorInputs, dtype: str) -> tuple[Array, ...]:
    """What ``EstimatorProblem`` says, one step after the other from the end, in ``dtype``."""
    p = problem
    shape = (p.outer, p.time, p.inner)
    kind = np.dtype(dtype).type

    def steps(x: Any) -> Array | None:
        return None if x is None else np.broadcast_to(np.asarray(x), shape).swapaxes(0, 1)

    def number(x: Any) -> Array:
        return np.broadcast_to(np.asarray(x, np.float64), (p.outer, 1, p.inner))[:, 0]

    rewards, values, next_values, _, terminated, truncated, final_values, mask = map(
        steps, inputs[:8]
    )
    gamma = number(inputs.gamma)
    lam = number(1.0 if p.lam is None else inputs.lam)
    lams = [lam] if p.lam_returns is None else [lam, number(inputs.lam_returns)]
    weights = [(gamma * lam).astype(dtype) for lam in lams]
    through = (gamma * (1 - lam)).astype(dtype)
    gamma = gamma.astype(dtype)

    columns = (p.outer, p.inner)
    zero = np.zeros(columns, dtype)
    never = np.zeros(columns, bool)
    states = [zero] * len(weights)
    following = zero
    if inputs.last_values is not None:
        following = np.broadcast_to(inputs.last_values, (p.outer, 1, p.inner))[:, 0].astype(dtype)
    followed, ended, cut = never, never, never
    outputs = [np.empty((p.time, *columns), dtype) for _ in range(1 + (p.estimator == "gae"))]
    for t in reversed(range(p.time)):
        valid = ~never if mask is None else mask[t]
        ended = ended if terminated is None else ended | terminated[t]
        cut = cut if truncated is None else cut | truncated[t]
        n = following if next_values is None else next_values[t].astype(dtype)
        if p.truncation == "values":
            assert final_values is not None
            n = np.where(cut, final_values[t].astype(dtype), n)
        if p.truncation == "current_value":
            assert values is not None
            n = np.where(cut, values[t].astype(dtype), n)
        n = np.where(ended, kind(0), n)
        goes_on = followed & ~ended & ~cut
        value = zero if values is None else values[t].astype(dtype)
        r = rewards[t].astype(dtype)  # type: ignore[index]
        past = [np.where(goes_on, w * x, kind(0)) for w, x in zip(weights, states, strict=True)]
        if p.estimator == "gae":
            new = [r + gamma * n - value + x for x in past]
        elif p.estimator == "td_lambda":
            new = [r + np.where(goes_on, through, gamma) * n + past[0]]
        else:
            new = [r + np.where(goes_on, kind(0), gamma * n) + past[0]]
        states = [np.where(valid, x, old) for x, old in zip(new, states, strict=True)]
        shown = [x if p.masked == "carry" else np.where(valid, x, kind(0)) for x in states]
        outputs[0][t] = shown[0]
        if p.estimator == "gae":
            carried = shown[-1] + value
            outputs[1][t] = carried if p.masked == "carry" else np.where(valid, carried, kind(0))
        following = np.where(valid, value, following)
        followed = followed | valid
        ended, cut = ended & ~valid, cut & ~valid
    return tuple(x.swapaxes(0, 1) for x in outputs)


@dataclass(frozen=True)
class Case:
    """One problem with operands drawn for it, poisoned wherever they must not be read."""

    estimator: Literal["gae", "discounted_returns", "td_lambda"]
    shape: tuple[int, int, int]
    dtype: str = "float32"
    source: Source = "zero"
    flags: Flags = "none"
    masked: Literal["none", "zero", "carry"] = "none"
    coefficients: Kind = "scalar"
    lam_returns: bool = False
    rate: float = 0.1
    holes: float = 0.3
    seed: int = 0

    def build(self) -> tuple[EstimatorProblem, EstimatorInputs]:
        rng = np.random.default_rng(self.seed)
        outer, time, inner = self.shape
        reads_values = self.estimator != "discounted_returns"
        uses_next = self.source == "next"
        truncates = self.flags in ("values", "current_value", "next", "both")
        truncation: Literal["values", "current_value"] | None = None
        if truncates and not uses_next:
            truncation = "current_value" if self.flags == "current_value" else "values"
        if truncation == "current_value" and not reads_values:
            truncation = "values"

        def draw(*shape: int) -> Array:
            return rng.standard_normal(shape or self.shape).astype(self.dtype)

        def flag() -> Array:
            return rng.random(self.shape) < self.rate

        rewards = draw()
        values = draw() if reads_values else None
        next_values = draw() if uses_next else None
        last_values = draw(outer, 1, inner) if self.source == "last" else None
        terminated = flag() if self.flags not in ("none", "values", "next") else None
        truncated = flag() if truncates else None
        final_values = draw() if truncation == "values" else None
        mask = rng.random(self.shape) >= self.holes if self.masked != "none" else None
        if mask is not None and time > 40:
            mask[0, 20:40] = False
            mask[-1, 3:19] = True

        ended, cut = effective(terminated, mask), effective(truncated, mask)
        if final_values is not None:
            final_values[~cut | ended] = np.nan
        if next_values is not None:
            next_values[ended] = np.nan
        if mask is not None:
            for x in (rewards, values, next_values, final_values):
                if x is not None and not (x is values and self.masked == "carry"):
                    x[~mask] = np.nan

        def coefficient(x: float) -> Any:
            if self.coefficients == "scalar":
                return x
            return rng.uniform(x - 0.05, x, (outer, 1, inner))

        has_lam = self.estimator != "discounted_returns"
        problem = EstimatorProblem(
            self.estimator,
            outer,
            time,
            inner,
            self.dtype,
            self.dtype,
            gamma=self.coefficients,
            lam=self.coefficients if has_lam else None,
            lam_returns=self.coefficients if self.lam_returns else None,
            values=reads_values,
            next_values=uses_next,
            last_values=last_values is not None,
            terminated=terminated is not None,
            truncated=truncated is not None,
            truncation=truncation,
            mask=mask is not None,
            masked="carry" if self.masked == "carry" else "zero",
        )
        inputs = EstimatorInputs(
            rewards,
            values,
            next_values,
            last_values,
            terminated,
            truncated,
            final_values,
            mask,
            coefficient(GAMMA),
            coefficient(LAM) if has_lam else None,
            coefficient(LAM_RETURNS) if self.lam_returns else None,
        )
        return problem, inputs


def effective(flags: Array | None, mask: Array | None) -> Any:
    """Where flags act: a flag in a hole, on the last valid step before it."""
    if flags is None or mask is None:
        return np.False_ if flags is None else flags
    moved = np.zeros_like(flags)
    pending = np.zeros_like(flags[:, 0])
    for t in reversed(range(flags.shape[1])):
        pending = pending | flags[:, t]
        moved[:, t] = pending & mask[:, t]
        pending = pending & ~mask[:, t]
    return moved


def run(
    problem: EstimatorProblem, inputs: EstimatorInputs, out: tuple[Array, ...] | None = None
) -> tuple[Array, ...]:
    fused = FUSED[problem.estimator](problem)
    assert not isinstance(fused, str), fused
    return fused(inputs, out)


def worst(x: Array, exact: Array) -> float:
    """The largest error, in units of the largest magnitude in its row."""
    largest = abs(exact).max(axis=1, keepdims=True)
    return float(np.max(abs(x - exact) / np.where(largest, largest, 1)))


def check(problem: EstimatorProblem, inputs: EstimatorInputs) -> None:
    """The error is at most twice the serial loop's, plus one ulp of the row's largest result."""
    exact = serial(problem, inputs, "float64" if problem.dtype == "float32" else "longdouble")
    loop = serial(problem, inputs, problem.dtype)
    for result, x, y in zip(run(problem, inputs), exact, loop, strict=True):
        assert result.dtype == problem.out_dtype
        assert result.shape == x.shape
        if result.size:
            assert np.isfinite(x).all(), "the case itself reads poison"
            assert worst(result, x) <= 2 * worst(y, x) + np.finfo(problem.dtype).eps
