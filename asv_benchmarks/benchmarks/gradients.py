"""Training through a scan: torch tensors on every backend."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import linscan

from .common import ROWS, TARGETS, AgainstCopy, Work, normal, sized, uniform

CASES = ["backward", "backward, a per row", "forward and backward"]


class Gradients(AgainstCopy):
    """The backward pass reads a, x and g and writes two gradients: 20 bytes per element.

    With one multiplier per row they are 12; the forward pass is 12 more.
    """

    param_names = ("target", "case")
    params: ClassVar = [TARGETS, CASES]
    tensors = True

    def prepare(self, backend: str, arrays: Any, case: str) -> Work:
        """The gradients of ``a`` and ``b``, for a standard normal gradient of the result."""
        grad = arrays.torch.autograd.grad
        shape = sized(ROWS)
        per_row = case.endswith("a per row")
        a = arrays.array(0.9 + uniform(1, (shape[0], 1) if per_row else shape) / 10)
        b, g = (arrays.array(normal(seed, shape)) for seed in (0, 1))
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        forward = partial(linscan.scan, a, b, backend=backend)
        if case == "forward and backward":

            def call() -> Any:
                return grad(forward(), (a, b), g)

            return Work(call, call, 32 * b.numel())
        call = partial(grad, forward(), (a, b), g, retain_graph=True)
        return Work(call, call, (12 if per_row else 20) * b.numel())
