"""Triton kernels for torch tensors on CUDA, ROCm and XPU; needs triton (``linscan[triton]``).

With ``TRITON_INTERPRET=1`` in the environment they also run on CPU tensors, slowly, for tests.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from linscan._problem import EstimatorProblem, ScanProblem
from linscan._protocol import Fused, Kernel

NEEDED = (3, 6)
"""The first version that compiles kernels whose tuples hold None."""
DEVICES = ("cuda", "xpu")
"""ROCm calls its devices cuda, too."""


def interpreting() -> bool:
    """Whether Triton's interpreter is asked for."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


@functools.cache
def _missing() -> str | None:
    """Why kernels cannot be compiled or interpreted here."""
    if find_spec("torch") is None:
        return "torch is not installed (try: pip install 'linscan[triton]')"
    if find_spec("triton") is None:
        return "triton is not installed (try: pip install 'linscan[triton]')"
    try:
        installed = version("triton")
    except PackageNotFoundError:  # another distribution that installs the same module
        return None
    if tuple(int(part) for part in installed.split(".")[:2]) < NEEDED:
        oldest = ".".join(map(str, NEEDED))
        return f"triton {installed} is older than {oldest} (try: pip install -U torch triton)"
    return None


@functools.cache
def _no_device() -> str | None:
    import torch

    if any(getattr(torch, name).is_available() for name in DEVICES if hasattr(torch, name)):
        return None
    return (
        "torch sees no CUDA, ROCm or XPU device (run on a machine with one and a torch build for "
        "it; or set TRITON_INTERPRET=1 before Python starts, to test the kernels on the CPU)"
    )


def _prepare(problem: EstimatorProblem) -> Fused | str:
    from linscan_triton import _estimators

    return _estimators.prepare(problem)


class TritonBackend:
    """Scans at the speed of memory on GPUs.  triton is imported by the first call of ``scan``."""

    name = "triton"
    fused: Mapping[str, Callable[[EstimatorProblem], Fused | str]] = MappingProxyType(
        dict.fromkeys(("gae", "discounted_returns", "td_lambda", "vtrace"), _prepare)
    )

    @property
    def rank(self) -> int:
        """Before torch; the interpreter comes last."""
        return 90 if interpreting() else 15

    def why_not(self) -> str | None:
        """None where Triton and a device are there, or its interpreter was asked for."""
        return _missing() or (None if interpreting() else _no_device())

    def owns(self, x: Any) -> bool:
        """Torch tensors on CUDA, ROCm and XPU devices; with the interpreter, on the CPU too."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(x, torch.Tensor):
            return False
        return x.device.type in DEVICES or (x.device.type == "cpu" and interpreting())

    def supports(self, problem: ScanProblem) -> str | None:
        """None: every problem can be done."""
        return None

    def explain(self, problem: ScanProblem | EstimatorProblem) -> Kernel:
        """The kernel for operands laid out as the problem's dimensions suggest."""
        if isinstance(problem, EstimatorProblem):
            from linscan_triton import _estimators

            return _estimators.explain(problem)
        from linscan_triton import _regimes

        return _regimes.explain(problem)

    def scan(
        self, problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
    ) -> tuple[Any, Any]:
        """See :class:`linscan._protocol.Backend`."""
        from linscan_triton._scan import scan

        return scan(problem, a, b, initial, reset, out)

    def backward(
        self, problem: ScanProblem, a: Any, x: Any, initial: Any, g: Any, reset: Any
    ) -> tuple[Any, Any] | None:
        """See :data:`linscan._protocol.Backward`."""
        from linscan_triton._backward import backward

        return backward(problem, a, x, initial, g, reset)

    def differentiable(self) -> Callable[..., Any]:
        """See :data:`linscan._protocol.Differentiable`."""
        from linscan_torch import _autograd

        return _autograd.register(self.name, self.scan, self.backward)


BACKEND = TritonBackend()
