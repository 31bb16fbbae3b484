"""Return estimators in one pass over memory: the ``fused`` entries of this backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from linscan import _host
from linscan._problem import ACCUMULATE, ITEMSIZE, EstimatorInputs, EstimatorProblem, ScanProblem
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
from linscan_triton._vtrace_kernels import (
    finish_vtrace,
    finish_vtrace_or_zero,
    load_vtrace,
    prepare_vtrace,
    start_vtrace,
)

OPERANDS = (
    *("values", "rewards", "last_values", "gamma", "lam"),
    *("next_values", "truncation_values", "terminated", "truncated", "mask"),
)
OWN = {"gamma": "float64", "lam": "float64"} | dict.fromkeys(
    ("terminated", "truncated", "mask"), "bool"
)
"""The dtypes, at most, of what is not of the problem's."""
FINISH = {
    "gae": (finish_advantages, finish_advantages_or_zero),
    "discounted_returns": (finish_returns, finish_returns_or_zero),
    "td_lambda": (finish_returns, finish_returns_or_zero),
    "vtrace": (finish_vtrace, finish_vtrace_or_zero),
}
"""What writes the results; and what does where there are holes, and 0 is wanted there."""
RESULTS = {"gae": 2, "discounted_returns": 1, "td_lambda": 1, "vtrace": 3}
CPU = torch.empty(0)


def prepare(problem: EstimatorProblem) -> Fused | str:
    """A function that runs the problem, or why there is none."""
    p = problem
    scanned = over(p)
    declined = _declined(p, scanned)
    if declined:
        return declined
    is_vtrace = p.estimator == "vtrace"
    code = Code(
        operands=len(OPERANDS) + is_vtrace,
        flags=(),
        start=start_vtrace if is_vtrace else start_estimate,
        load=dict.fromkeys(KERNELS, load_vtrace if is_vtrace else load_estimate),
        prepare=prepare_vtrace if is_vtrace else prepare_estimate,
        finish=FINISH[p.estimator][p.mask and p.masked == "zero"],
        kind=p.estimator,
        chunks=not p.mask,
        heavy=True,
    )
    absent = {name for name in ("gamma", "lam") if getattr(p, name) != "row"}
    if p.truncation != "values":
        absent.add("truncation_values")
    places = [None if name in absent else EstimatorInputs._fields.index(name) for name in OPERANDS]
    is_empty = not p.outer * p.time * p.inner
    dtypes = [OWN.get(name, p.dtype) for name in OPERANDS]

    def fused(inputs: EstimatorInputs, out: Sequence[Any]) -> None:
        if is_empty:
            return
        gamma = inputs.gamma if p.gamma == "scalar" else 0.0
        lam = inputs.lam if p.lam == "scalar" else 0.0
        operands = [
            None if place is None else tensor(inputs[place], dtype)
            for place, dtype in zip(places, dtypes, strict=True)
        ]
        numbers = [gamma, lam]
        if is_vtrace:
            log_rhos, *limits = inputs.own
            operands.append(tensor(log_rhos, "float64"))
            numbers += limits
        results = [tensor(x, p.out_dtype) for x in out]
        run(scanned, (*operands, *results, None, None), numbers, code)

    return fused


def _declined(p: EstimatorProblem, scanned: ScanProblem) -> str | None:
    """Why a problem is not done in one pass."""
    if p.lam_returns is not None:
        return "no kernel with a second lambda"
    if p.estimator == "vtrace":
        if {p.gamma, p.lam, *p.own[1:]} != {"scalar"} or p.own[0] == "scalar":
            return "no V-trace kernel unless log_rhos, and nothing else, is an array"
    elif not {p.gamma, p.lam} <= {"scalar", "row", None}:
        return "no kernel with gamma or lam that changes from step to step"
    if p.mask and chunked(scanned):
        return "no kernel with holes for few long rows"
    return None


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
    if p.own and p.own[0] == "full":  # log_rhos
        read += ITEMSIZE[ACCUMULATE[p.dtype]]
    written = ITEMSIZE[p.out_dtype] * RESULTS[p.estimator]
    scan = _regimes.explain(over(p), heavy=True)
    moved = read * (1 if scan.chunk_size is None else 2) + written
    return Kernel(f"fused, {scan.name}", float(moved), scan.chunk_size)
