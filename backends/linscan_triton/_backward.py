"""The gradients of a scan in one pass, where every step has a multiplier of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from linscan._problem import ScanProblem
from linscan_triton import _regimes
from linscan_triton._gradients import (
    finish_gradients,
    load_columns,
    load_rows,
    prepare_gradients,
    start_gradients,
)
from linscan_triton._scan import Code, layout, run

CODE = Code(
    operands=5,
    flags=(2,),
    start=start_gradients,
    load={"rows": load_rows, "columns": load_columns},
    prepare=prepare_gradients,
    finish=finish_gradients,
    chunks=False,
    heavy=True,
)
"""Operands a, x, reset, g and initial; of them, x decides."""


@lru_cache(maxsize=1024)
def _turned(problem: ScanProblem) -> tuple[ScanProblem, Code]:
    """The scan of the gradients, for a scan; and what it runs."""
    turned = replace(problem, reverse=not problem.reverse, initial=False)
    return turned, CODE._replace(kind="reverse" if turned.reverse else "forward")


def backward(
    problem: ScanProblem, a: Tensor, x: Tensor, initial: Tensor | None, g: Tensor, reset: Tensor
) -> tuple[Tensor, Tensor] | None:
    """The gradients of ``b`` and of ``a``; or None, where two passes are made instead.

    They are where sums over rows or steps are wanted, or few long rows are cut into chunks.
    """
    if a.shape != x.shape:
        return None
    turned, code = _turned(problem)
    if _regimes.regime(turned, layout(x).strides, heavy=True).chunk:
        return None
    lam = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grad = torch.empty_like(lam)
    run(turned, (a, x, reset, g, initial, lam, grad, None, None), code=code)
    return lam, grad
