"""The torch backend: the chunk scan in plain torch operations, on any device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from linscan._problem import EstimatorProblem, ScanProblem
from linscan._protocol import Fused, Kernel

CHUNK_SIZE = 32
"""Steps per chunk unless the caller says otherwise: longer ones are fewer and leave less to join,
shorter ones keep a tile in the cache."""


class TorchBackend:
    """Serves every torch tensor: any device, any dtype a scan works in."""

    name = "torch"
    rank = 20
    fused: Mapping[str, Callable[[EstimatorProblem], Fused | str]] = MappingProxyType({})

    def why_not(self) -> str | None:
        """None where torch is installed."""
        if find_spec("torch") is None:
            return "torch is not installed (try: pip install 'linscan[torch]')"
        return None

    def owns(self, x: Any) -> bool:
        """Whether ``x`` is a torch tensor."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(x, torch.Tensor)

    def supports(self, problem: ScanProblem) -> str | None:
        """None: every problem can be done."""
        return None

    def explain(self, problem: ScanProblem | EstimatorProblem) -> Kernel:
        """The chunk scan, with its chunk size."""
        if isinstance(problem, EstimatorProblem):
            raise TypeError("the torch backend runs no estimator in one pass: it scans")
        return Kernel(
            "chunk scan in torch operations",
            bytes_per_element=problem.bytes_per_element,
            chunk_size=problem.chunk_size or CHUNK_SIZE,
        )

    def scan(
        self, problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
    ) -> tuple[Any, Any]:
        """Run the chunk scan."""
        from linscan_torch._scan import scan

        return scan(problem, a, b, initial, reset, out)

    def differentiable(self) -> Callable[..., Any]:
        """See :data:`linscan._protocol.Differentiable`."""
        from linscan_torch import _autograd

        return _autograd.register(self.name, self.scan)


BACKEND = TorchBackend()
