"""Calls of the Triton backend on tensors of the CPU, past the dispatcher, which would refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from linscan._problem import ACCUMULATE, EstimatorInputs, EstimatorProblem, Kind, ScanProblem
from linscan_triton import BACKEND

Work = Literal["scan", "backward", "gae", "discounted_returns", "td_lambda", "vtrace"]
Make = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]

SCAN_EXTRAS = ("reset", "initial", "final")
FLAGS = ("terminated", "truncated")
RESULTS = {"gae": 2, "discounted_returns": 1, "td_lambda": 1, "vtrace": 3}


@dataclass(frozen=True)
class Case:
    """A call, ``(outer, time, inner)``; ``extras`` are the options it uses, by their names."""

    work: Work
    dtype: str
    shape: tuple[int, int, int]
    a: Kind = "full"
    reverse: bool = True
    extras: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.work in ("scan", "backward"):
            words = (self.work, self.a, "reverse" if self.reverse else "forward", *self.extras)
        else:
            words = (self.work.replace("_", " "), *self.extras)
        return ", ".join(words)

    def run(self, make: Make) -> None:
        """Make the operands and call the backend."""
        if self.work in ("scan", "backward"):
            self._scan(make)
        else:
            self._estimator(make)

    def _scan(self, make: Make) -> None:
        outer, time, inner = self.shape
        dtype = getattr(torch, self.dtype)
        shapes = {"row": (outer, 1, inner), "step": (1, time, 1), "full": self.shape}
        a: Any = 0.9405 if self.a == "scalar" else make(shapes[self.a], dtype)
        b = make(self.shape, dtype)
        problem = ScanProblem(
            *self.shape, self.dtype, self.a, self.reverse, **dict.fromkeys(self.extras, True)
        )
        initial = make((outer, 1, inner), dtype) if problem.initial else None
        reset = make(self.shape, torch.bool) if problem.reset else None
        if self.work == "scan":
            BACKEND.scan(problem, a, b, initial, reset, None)
        elif BACKEND.backward(problem, a, b, initial, make(self.shape, dtype), reset) is None:
            raise NotImplementedError(f"{self}: declined")

    def _estimator(self, make: Make) -> None:
        problem = EstimatorProblem(
            self.work,  # type: ignore[arg-type]
            *self.shape,
            self.dtype,
            self.dtype,
            gamma="scalar",
            lam=None if self.work == "discounted_returns" else "scalar",
            values=self.work != "discounted_returns",
            truncation="values" if "truncated" in self.extras else None,
            terminated="terminated" in self.extras,
            truncated="truncated" in self.extras,
            mask="mask" in self.extras,
            own=("full", *["scalar"] * 4) if self.work == "vtrace" else (),
        )
        run = BACKEND.fused[self.work](problem)
        if isinstance(run, str):
            raise NotImplementedError(f"{self}: {run}")
        dtype = getattr(torch, self.dtype)
        weight = getattr(torch, ACCUMULATE[self.dtype])
        inputs: dict[str, Any] = dict.fromkeys(EstimatorInputs._fields)
        inputs["rewards"] = make(self.shape, dtype)
        if problem.values:
            inputs["values"] = make(self.shape, dtype)
        if problem.truncation == "values":
            inputs["truncation_values"] = make(self.shape, dtype)
        inputs |= {flag: make(self.shape, torch.bool) for flag in self.extras}
        inputs |= {"gamma": 0.99, "lam": None if problem.lam is None else 0.95}
        if self.work == "vtrace":
            inputs["own"] = (make(self.shape, weight), 1.0, 1.0, 1.0, 0.0)
        run(EstimatorInputs(**inputs), [make(self.shape, dtype) for _ in range(RESULTS[self.work])])


def estimators() -> tuple[Work, ...]:
    """Those that the backend has in one pass."""
    return tuple(work for work in get_args(Work) if work in BACKEND.fused)
