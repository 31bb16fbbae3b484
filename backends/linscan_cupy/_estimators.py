"""Return estimators in one pass: the words of an ``Estimate`` in the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from linscan import _arrays
from linscan._problem import ITEMSIZE, EstimatorInputs, EstimatorProblem
from linscan._protocol import Fused, Kernel
from linscan_cupy._device import Cuda
from linscan_cupy._launch import (
    ELEMENTS,
    JOB,
    Launch,
    Launches,
    Operand,
    float_bits,
    tiling,
)

(
    REWARDS,
    VALUES,
    OTHER,
    LAST_VALUES,
    TERMINATED,
    TRUNCATED,
    MASK,
    GAMMA,
    LAM,
    ADVANTAGES,
    RETURNS,
    RULES,
) = range(JOB, JOB + 4 * 11 + 1, 4)
GAMMA_SIZE, LAM_SIZE, GAMMA_NUMBER, LAM_NUMBER = range(RULES + 4, RULES + 8)
WORDS = LAM_NUMBER + 1

ESTIMATORS = ("gae", "discounted_returns", "td_lambda")
"""In the order of the source."""

_launches = Launches()


def prepare(cuda: Cuda, problem: EstimatorProblem) -> Fused | str:
    """A function that runs the problem, or why there is none."""
    p = problem
    if p.out_dtype != p.dtype:
        return f"no kernel from {p.dtype} to {p.out_dtype}"
    if p.lam_returns is not None:
        return "no kernel with a second lambda"
    if not {p.gamma, p.lam} <= {"scalar", "row", None}:
        return "no kernel with gamma or lam that changes from step to step"

    size = ITEMSIZE[p.dtype]
    given: dict[int, tuple[str, int] | None] = {
        REWARDS: ("rewards", size),
        VALUES: ("values", size) if p.values else None,
        LAST_VALUES: ("last_values", size) if p.last_values else None,
        TERMINATED: ("terminated", 1) if p.terminated else None,
        TRUNCATED: ("truncated", 1) if p.truncated else None,
        MASK: ("mask", 1) if p.mask else None,
    }
    if p.next_values:
        given[OTHER] = ("next_values", size)
    elif p.truncation == "values":
        given[OTHER] = ("truncation_values", size)
    fields = [
        (word, itemsize, word != LAST_VALUES, name)
        for word, (name, itemsize) in ((word, x) for word, x in given.items() if x is not None)
    ]
    level = 2 if p.mask else int(p.terminated or p.truncated)
    work = f"Estimate<{ELEMENTS[p.dtype]}, {level}, {str(OTHER in given).lower()}>"
    rules = (
        ESTIMATORS.index(p.estimator),
        p.next_values,
        p.truncation == "current_value",
        p.masked == "carry",
    )

    def make(operands: list[Operand]) -> Launch:
        words = np.zeros(WORDS, np.int64)
        words[RULES : RULES + 4] = rules
        for x in operands:
            if x.word in (GAMMA, LAM):
                words[GAMMA_SIZE if x.word == GAMMA else LAM_SIZE] = x.itemsize
        shape = p.outer, p.time, p.inner
        return Launch(cuda, work, p.dtype, shape, p.chunk_size, operands, words)

    def run(inputs: EstimatorInputs, out: Sequence[Any]) -> None:
        if not p.outer * p.time * p.inner:
            return
        arrays = [
            (word, itemsize, stepped, getattr(inputs, name))
            for word, itemsize, stepped, name in fields
        ]
        arrays.append((RETURNS, size, True, out[-1]))
        if p.estimator == "gae":
            arrays.append((ADVANTAGES, size, True, out[0]))
        numbers = {}
        for word, number, x in ((GAMMA, GAMMA_NUMBER, inputs.gamma), (LAM, LAM_NUMBER, inputs.lam)):
            if x is None or _arrays.is_scalar(x):
                numbers[number] = float_bits(x or 0.0)
            else:
                wide = _arrays.dtype_name(x) == "float64"
                arrays.append((word, 8 if wide else 4, False, x))
        _launches.run(cuda, p, arrays, numbers, make, out[0])

    return run


def explain(problem: EstimatorProblem) -> Kernel:
    """What runs a problem in one pass, on contiguous operands."""
    p = problem
    tiles = tiling(p.dtype, p.outer * p.inner, p.time, p.inner > 1, p.chunk_size)
    written = 1 + (p.estimator == "gae")
    numbers = 1 + p.values + (p.next_values or p.truncation == "values")
    moved = ITEMSIZE[p.dtype] * numbers + p.terminated + p.truncated + p.mask
    if tiles.chunks > 1:
        moved *= 2
    total = float(moved + ITEMSIZE[p.dtype] * written)
    return Kernel(f"fused {tiles.kernel}", total, tiles.length if tiles.chunks > 1 else None)
