"""The NumPy backend: always there, one thread, no compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from linscan._host import is_cpu_array
from linscan._problem import EstimatorProblem, ScanProblem
from linscan._protocol import Fused, Kernel
from linscan_numpy._scan import kernel, scan


class NumpyBackend:
    """Scans NumPy arrays and, without copying them, torch tensors in CPU memory."""

    name = "numpy"
    rank = 10
    fused: Mapping[str, Callable[[EstimatorProblem], Fused | str]] = MappingProxyType({})

    def why_not(self) -> str | None:
        """None: NumPy is a dependency of linscan itself."""
        return None

    def owns(self, x: Any) -> bool:
        """Whether ``x`` is a NumPy array or a torch tensor in CPU memory."""
        return is_cpu_array(x)

    def supports(self, problem: ScanProblem) -> str | None:
        """None, except for the one dtype NumPy does not have."""
        return "NumPy has no bfloat16" if problem.dtype == "bfloat16" else None

    def explain(self, problem: ScanProblem | EstimatorProblem) -> Kernel:
        """The algorithm for contiguous operands, and the memory it has to move."""
        if isinstance(problem, EstimatorProblem):
            raise TypeError("the numpy backend runs no estimator in one pass: it scans")
        return kernel(problem)

    def scan(
        self, problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
    ) -> tuple[Any, Any]:
        """See :meth:`linscan._protocol.Backend.scan`."""
        return scan(problem, a, b, initial, reset, out)

    def differentiable(self) -> Callable[..., Any]:
        """See :data:`linscan._protocol.Differentiable`."""
        from linscan_torch import _autograd

        return _autograd.register(self.name, self.scan)


BACKEND = NumpyBackend()
