"""Launches of Triton kernels, caught before they reach a device, and compiled for any target.

A backend is called as a user would call it; what it launches is what is examined.  So nothing here
repeats which kernel, tile, number of warps or specialisation the backend chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel with the arguments it would have run on."""

    kernel: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def name(self) -> str:
        """The kernel's."""
        return str(self.kernel.__name__).strip("_")

    @property
    def elements(self) -> int:
        """How many the largest of its operands has."""
        return max((x.numel() for x in _tensors((self.args, *self.keywords.values()))), default=0)

    def compile(self, target: str) -> Any:
        """What the launch would have run on ``target``: specialised as Triton's launcher does."""
        backend = make_backend(TARGETS[target])
        bind = create_function_from_signature(self.kernel.signature, self.kernel.params, backend)
        keywords = {"debug": False, **self.keywords}
        bound, specialization, given = bind(*self.args, **keywords)
        options, signature, constants, attributes = self.kernel._pack_args(
            backend, keywords, bound, specialization, given
        )
        source = ASTSource(self.kernel, signature, constants, attributes)
        return triton.compile(source, target=TARGETS[target], options=options.__dict__)


def _tensors(x: Any) -> Iterator[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, tuple):
        for part in x:
            yield from _tensors(part)


@contextmanager
def launches(target: str) -> Iterator[list[Launch]]:
    """Inside, no kernel runs: its launch is appended to the list.  torch is as for ``target``."""
    caught: list[Launch] = []
    hip = "6.4" if TARGETS[target].backend == "hip" else None

    def catch(kernel: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        caught.append(Launch(kernel, args, keywords))

    with patch.object(JITFunction, "run", catch), patch.object(torch.version, "hip", hip):
        yield caught
