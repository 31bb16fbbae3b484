"""Return estimators in one pass: the words of an ``Estimate`` in the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from linscan import _arrays
from linscan._problem import ACCUMULATE, ITEMSIZE, EstimatorInputs, EstimatorProblem
from linscan._protocol import Fused, Kernel
from linscan_cupy import _launch
from linscan_cupy._device import Cuda
from linscan_cupy._launch import ELEMENTS, JOB, Launch, Operand, tiling

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
    LOG_RHOS,
    *OUT,
    RULES,
) = range(JOB, JOB + 4 * 13 + 1, 4)
SIZES = {GAMMA: RULES + 4, LAM: RULES + 5}
NUMBERS = GAMMA_NUMBER, LAM_NUMBER, *OWN_NUMBERS = range(RULES + 6, RULES + 13)
WORDS = NUMBERS[-1] + 1

RETURNS = ("gae", "discounted_returns", "td_lambda")
"""In the order of the source."""
RESULTS = {"gae": 2, "discounted_returns": 1, "td_lambda": 1, "vtrace": 3}


def prepare(cuda: Cuda, problem: EstimatorProblem) -> Fused | str:
    """A function that runs the problem, or why there is none."""
    p = problem
    if p.out_dtype != p.dtype:
        return f"no kernel from {p.dtype} to {p.out_dtype}"
    if p.lam_returns is not None:
        return "no kernel with a second lambda"
    if not {p.gamma, p.lam} <= {"scalar", "row", None}:
        return "no kernel with gamma or lam that changes from step to step"
    if set(p.own[1:]) - {"scalar"}:
        return "no kernel with clips or a leak that are arrays"

    size, wide = ITEMSIZE[p.dtype], ACCUMULATE[p.dtype]
    given = {
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
        (word, x[1], word != LAST_VALUES, EstimatorInputs._fields.index(x[0]))
        for word, x in given.items()
        if x is not None
    ]
    level = 2 if p.mask else int(p.terminated or p.truncated)
    rule = "VTrace" if p.estimator == "vtrace" else "Returns"
    work = f"Estimate<{ELEMENTS[p.dtype]}, {level}, {str(OTHER in given).lower()}, {rule}>"
    rules = (
        RETURNS.index(p.estimator) if rule == "Returns" else 0,
        p.next_values,
        p.truncation == "current_value",
        p.masked == "carry",
    )

    def make(operands: list[Operand]) -> Launch:
        words = np.zeros(WORDS, np.int64)
        words[RULES : RULES + 4] = rules
        for x in operands:
            if x.word in SIZES:
                words[SIZES[x.word]] = x.itemsize
        shape = p.outer, p.time, p.inner
        return Launch(cuda, work, p.dtype, shape, p.chunk_size, operands, words)

    def run(inputs: EstimatorInputs, out: Sequence[Any]) -> None:
        if not p.outer * p.time * p.inner:
            return
        arrays = [(word, itemsize, stepped, inputs[i]) for word, itemsize, stepped, i in fields]
        arrays += [(word, size, True, x) for word, x in zip(OUT, out, strict=False)]
        numbers: dict[int, float] = {}
        for word, number, x in ((GAMMA, GAMMA_NUMBER, inputs.gamma), (LAM, LAM_NUMBER, inputs.lam)):
            if x is None or _arrays.is_scalar(x):
                numbers[number] = float(x or 0.0)
            else:
                arrays.append((word, x.dtype.itemsize, False, x))
        if inputs.own:
            log_rhos, *clips = inputs.own
            if not _arrays.is_scalar(log_rhos):
                if log_rhos.dtype.itemsize != ITEMSIZE[wide]:
                    log_rhos = _arrays.native(log_rhos, wide)
                arrays.append((LOG_RHOS, ITEMSIZE[wide], True, log_rhos))
                log_rhos = 0.0
            numbers |= zip(OWN_NUMBERS, (log_rhos, *clips), strict=True)
        _launch.run(cuda, p, arrays, numbers, make, out[0])

    return run


def explain(problem: EstimatorProblem) -> Kernel:
    """What runs a problem in one pass, on contiguous operands."""
    p = problem
    tiles = tiling(p.dtype, p.outer * p.inner, p.time, p.inner > 1, p.chunk_size)
    size = ITEMSIZE[p.dtype]
    moved = size * (1 + p.values + (p.next_values or p.truncation == "values"))
    moved += p.terminated + p.truncated + p.mask
    if p.own and p.own[0] == "full":
        moved += ITEMSIZE[ACCUMULATE[p.dtype]]
    if tiles.chunks > 1:
        moved *= 2
    total = float(moved + size * RESULTS[p.estimator])
    return Kernel(f"fused {tiles.kernel}", total, tiles.length if tiles.chunks > 1 else None)
