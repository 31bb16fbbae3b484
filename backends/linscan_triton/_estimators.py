"""Return estimators in one pass over memory: the ``fused`` entries of this backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from linscan import _host
from linscan._problem import ITEMSIZE, EstimatorInputs, EstimatorProblem, ScanProblem
from linscan._protocol import Fused, Kernel
from linscan_triton import _regimes
from linscan_triton._estimator_kernels import (
    finish_advantages,
    finish_advantages_or_zero,
    finish_returns,
    finish_returns_or_zero,
    load_estimate,
    prepare_estimate,
    start_estimate,
)
from linscan_triton._scan import KERNELS, Code, run

OPERANDS = (
    *("values", "rewards", "last_values", "gamma", "lam"),
    *("next_values", "truncation_values", "terminated", "truncated", "mask"),
)
FLAGS = ("terminated", "truncated", "mask")
FINISH = {
    ("gae", "zero"): finish_advantages_or_zero,
    ("gae", "carry"): finish_advantages,
    ("discounted_returns", "zero"): finish_returns_or_zero,
    ("discounted_returns", "carry"): finish_returns,
    ("td_lambda", "zero"): finish_returns_or_zero,
    ("td_lambda", "carry"): finish_returns,
}
CPU = torch.empty(0)


def prepare(problem: EstimatorProblem) -> Fused | str:
    """A function that runs the problem, or why there is none."""
    p = problem
    if p.lam_returns is not None:
        return "no kernel with a second lambda"
    if not {p.gamma, p.lam} <= {"scalar", "row", None}:
        return "no kernel with gamma or lam that changes from step to step"
    scanned = over(p)
    if p.mask and chunked(scanned):
        return "no kernel with holes for few long rows"

    masked = p.masked if p.mask else "carry"
    code = Code(
        operands=len(OPERANDS),
        flags=(),
        start=start_estimate,
        load=dict.fromkeys(KERNELS, load_estimate),
        prepare=prepare_estimate,
        finish=FINISH[p.estimator, masked],
        kind=p.estimator,
        chunks=not p.mask,
        heavy=True,
    )
    absent = {"gamma", "lam"}
    absent -= {name for name in absent if getattr(p, name) == "row"}
    if p.truncation != "values":
        absent.add("truncation_values")
    places = [None if name in absent else EstimatorInputs._fields.index(name) for name in OPERANDS]
    own = {"gamma": "float64", "lam": "float64"} | dict.fromkeys(FLAGS, "bool")
    dtypes = [own.get(name, p.dtype) for name in OPERANDS]

    def fused(inputs: EstimatorInputs, out: Sequence[Any]) -> None:
        gamma = inputs.gamma if p.gamma == "scalar" else 0.0
        lam = inputs.lam if p.lam == "scalar" else 0.0
        operands = [
            None if place is None else tensor(inputs[place], dtype)
            for place, dtype in zip(places, dtypes, strict=True)
        ]
        results = [tensor(x, p.out_dtype) for x in out]
        if results[0].numel():
            run(scanned, (*operands, *results, None, None), complex(gamma, lam), code)

    return fused


def tensor(x: Any, dtype: str) -> Any:
    """A NumPy view of a tensor in CPU memory as a tensor; others, and None, are what they are."""
    return _host.like(x, CPU, dtype) if isinstance(x, np.ndarray) else x


def over(problem: EstimatorProblem) -> ScanProblem:
    """The scan that an estimator is."""
    p = problem
    return ScanProblem(
        p.outer,
        p.time,
        p.inner,
        p.dtype,
        "full",
        reverse=True,
        reset=p.terminated or p.truncated,
        chunk_size=p.chunk_size,
    )


def chunked(scanned: ScanProblem) -> bool:
    """Whether time is cut."""
    _, time, inner = shape = scanned.outer, scanned.time, scanned.inner
    layout = _regimes.strides(shape, (time * inner, inner, 1))
    return bool(_regimes.regime(scanned, layout, heavy=True).chunk)


def explain(problem: EstimatorProblem) -> Kernel:
    """What runs a problem in one pass."""
    p = problem
    size = ITEMSIZE[p.dtype]
    read = 1 + p.values + p.next_values + (p.truncation == "values")
    read = read * size + p.terminated + p.truncated + p.mask
    written = ITEMSIZE[p.out_dtype] * (2 if p.estimator == "gae" else 1)
    scan = _regimes.explain(over(p), heavy=True)
    moved = read * (1 if scan.chunk_size is None else 2) + written
    return Kernel(f"fused, {scan.name}", float(moved), scan.chunk_size)
