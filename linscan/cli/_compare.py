"""The estimators on a rollout, in every way possible here: how exact, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import linscan
from linscan import reference
from linscan._dispatch import registry
from linscan.cli import _loops
from linscan.cli._error import largest_error
from linscan.cli._rollout import Rollout

ESTIMATORS = ["gae", "discounted_returns", "td_lambda"]
GAMMA, LAM = 0.99, 0.95
LOOP = "loop"
"""The way that is no backend: one NumPy operation after another, step after step."""
SECONDS = 0.2
"""How long a call is repeated for the median of its time."""


class Way(NamedTuple):
    """One way of computing an estimator."""

    backend: str
    library: str

    def compute(self, estimator: str, rollout: Rollout) -> Any:
        """The estimator of a rollout that is in the arrays of ``library`` already."""
        if self.backend == LOOP:
            return call(getattr(_loops, estimator), rollout)
        return call(getattr(linscan, estimator), rollout, axis=0, backend=self.backend)


class Result(NamedTuple):
    """How a way fared."""

    estimator: str
    way: Way
    seconds: float
    error: float
    """Against float64: the largest, in proportion to the largest magnitude in its column."""


def ways() -> Iterator[Way]:
    """The loop first, then every backend that can run here on every kind of array it owns."""
    yield Way(LOOP, "NumPy")
    for library, convert in libraries().items():
        array = convert(np.zeros(1, np.float32))
        for name, backend in registry().items():
            if not isinstance(backend, str) and not backend.why_not() and backend.owns(array):
                yield Way(name, library)


def libraries() -> dict[str, Callable[[NDArray[Any]], Any]]:
    """The array libraries installed here, and how each takes a NumPy array."""
    found: dict[str, Callable[[NDArray[Any]], Any]] = {"NumPy": np.asarray}
    if find_spec("torch"):
        import torch

        found["torch"] = torch.from_numpy
    return found


def call(estimator: Callable[..., Any], rollout: Rollout, **keywords: Any) -> Any:
    """The estimator with a rollout's arrays for its arguments."""
    arguments = rollout._asdict() | {"gamma": GAMMA, "lam": LAM} | keywords
    if estimator.__name__ == "discounted_returns":
        del arguments["values"], arguments["lam"]
    return estimator(**arguments)


def exact(estimator: str, rollout: Rollout) -> tuple[NDArray[np.float64], ...]:
    """What the reference says, in float64."""
    return outputs(call(getattr(reference, estimator), rollout, axis=0))


def measure(way: Way, estimator: str, rollout: Rollout, exact: tuple[Any, ...]) -> Result:
    """Compute the estimator in this way, again and again."""
    arrays = Rollout._make(map(libraries()[way.library], rollout))
    found = outputs(way.compute(estimator, arrays))
    errors = [
        largest_error(np.asarray(x, np.float64), y, axis=0)
        for x, y in zip(found, exact, strict=True)
    ]
    seconds = time(lambda: way.compute(estimator, arrays))
    return Result(estimator, way, seconds, float(np.max(errors)))


def outputs(result: Any) -> tuple[Any, ...]:
    """The arrays that an estimator returned, be it one or several."""
    return result if isinstance(result, tuple) else (result,)


def time(function: Callable[[], Any]) -> float:
    """The median time of a call in seconds."""
    times: list[float] = []
    while sum(times) < SECONDS or len(times) < 3:
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return median(times)
