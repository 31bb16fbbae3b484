"""The composed path: an estimator's elementwise maps, around a scan."""

from __future__ import annotations

from typing import Any

from linscan import _arrays
from linscan._call import ScanCall
from linscan._problem import ACCUMULATE, EstimatorInputs, EstimatorProblem
from linscan._scan import solve
from linscan.rl._call import Estimator
from linscan.rl._trace import Trace


def compose(
    estimator: Estimator, problem: EstimatorProblem, backend: str, inputs: EstimatorInputs
) -> tuple[Any, ...]:
    """The results, ``(outer, time, inner)``, by the scan of that backend."""
    xp = _arrays.namespace(inputs.rewards)
    block = problem.outer, problem.time, problem.inner
    if 0 in block:
        empty = _arrays.empty(block, inputs.rewards, problem.out_dtype)
        return (empty,) * len(estimator.outputs)
    work = ACCUMULATE[problem.dtype]
    for x in (inputs.gamma, inputs.lam, inputs.lam_returns, *inputs.own):
        if not _arrays.is_scalar(x) and hasattr(x, "dtype") and _arrays.dtype_name(x) == "float64":
            work = "float64"

    def working(x: Any) -> Any:
        array = not _arrays.is_scalar(x) and hasattr(x, "dtype")
        real = array and "float" in _arrays.dtype_name(x)
        return _arrays.native(x, work) if real else x

    def scan(
        a: Any, b: Any, initial: Any = None, reset: Any = None, *, reverse: bool = True
    ) -> Any:
        b = xp.broadcast_to(b, block)
        state = None if initial is None else initial[:, 0]
        chunks = problem.chunk_size
        call = ScanCall(a, b, state, 1, reverse, reset, False, None, backend, chunks, "off")
        return solve(call)[0]

    with _arrays.quiet(inputs.rewards):
        own = tuple([working(x) for x in inputs.own])
        inputs = EstimatorInputs._make([*[working(x) for x in inputs[:-1]], own])
        if inputs.mask is not None and not _arrays.is_scalar(inputs.gamma):
            inputs = inputs._replace(gamma=xp.where(inputs.mask, inputs.gamma, 1.0))
        results = estimator.compose(inputs, Trace(problem, inputs, scan))
        return tuple([_arrays.native(x, problem.out_dtype) for x in results])
