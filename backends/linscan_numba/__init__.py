"""Compiled kernels for NumPy arrays and torch CPU tensors; needs numba (``linscan[numba]``)."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from linscan import _host
from linscan._problem import EstimatorProblem, ScanProblem
from linscan._protocol import Fused, Kernel, Strides


def _fused(name: str) -> Callable[[EstimatorProblem], Fused | str]:
    def prepare(problem: EstimatorProblem) -> Fused | str:
        from linscan_numba import _estimators, _vtrace

        return {**_estimators.FUSED, "vtrace": _vtrace.prepare}[name](problem)

    return prepare


@functools.cache
def _missing() -> str | None:
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed: pip install 'linscan[numba]'"
    return None


class NumbaBackend:
    """Scans at the speed of memory on CPUs.  numba is imported by the first call of ``scan``."""

    name = "numba"
    rank = 0
    fused: Mapping[str, Callable[[EstimatorProblem], Fused | str]] = {
        name: _fused(name) for name in ("gae", "discounted_returns", "td_lambda", "vtrace")
    }

    def why_not(self) -> str | None:
        """None if numba is installed."""
        return _missing()

    def owns(self, x: Any) -> bool:
        """NumPy arrays and torch tensors in CPU memory."""
        return _host.is_cpu_array(x)

    def supports(self, problem: ScanProblem) -> str | None:
        """Everything."""
        return None

    def explain(self, problem: ScanProblem | EstimatorProblem) -> Kernel:
        """The kernel for operands laid out as the problem's dimensions suggest."""
        if isinstance(problem, EstimatorProblem):
            from linscan_numba import _estimators, _vtrace

            if problem.estimator == "vtrace":
                return _vtrace.explain(problem)
            return _estimators.explain(problem)
        from linscan_numba import _scan

        return Kernel(_scan.method(problem, problem.inner > 1), problem.bytes_per_element)

    def scan(
        self, problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
    ) -> tuple[Any, Any]:
        """See :class:`linscan._protocol.Backend`."""
        from linscan_numba import _scan

        return _scan.scan(problem, a, b, initial, reset, out)

    def bind(
        self, problem: ScanProblem, strides: tuple[Strides, ...], fresh: bool
    ) -> Callable[..., None]:
        """See :data:`linscan._protocol.Bind`."""
        from linscan_numba import _scan

        return _scan.bind(problem, strides, fresh)

    def backward(
        self, problem: ScanProblem, a: Any, x: Any, initial: Any, g: Any, reset: Any
    ) -> tuple[Any, Any] | None:
        """See :data:`linscan._protocol.Backward`."""
        from linscan_numba import _backward

        return _backward.backward(problem, a, x, initial, g, reset)

    def differentiable(self) -> Callable[..., Any]:
        """See :data:`linscan._protocol.Differentiable`."""
        from linscan_torch import _autograd

        return _autograd.register(self.name, self.scan, self.backward)


BACKEND = NumbaBackend()
