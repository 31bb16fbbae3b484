"""The recurrence itself: the words of a ``Scan`` in the source."""

from __future__ import annotations

from typing import Any

import numpy as np

from linscan import _arrays
from linscan._problem import ITEMSIZE, ScanProblem
from linscan._protocol import Kernel
from linscan_cupy._device import Cuda
from linscan_cupy._launch import ELEMENTS, JOB, Launch, Operand, run, tiling

A, B, INITIAL, RESET, X, FINAL, NUMBER = range(JOB, JOB + 4 * 6 + 1, 4)
WORDS = NUMBER + 2


def scan(
    cuda: Cuda, problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
) -> tuple[Any, Any]:
    """See :class:`linscan._protocol.Backend`."""
    p = problem
    x = _arrays.empty((p.outer, p.time, p.inner), b, p.dtype) if out is None else out
    final = _arrays.empty((p.outer, 1, p.inner), b, p.dtype) if p.final else None
    if not p.outer * p.time * p.inner:
        if final is not None:
            final[...] = 0 if initial is None else initial
        return x, final
    size = ITEMSIZE[p.dtype]
    arrays = [(B, size, True, b), (X, size, True, x)]
    if p.a != "scalar":
        arrays.append((A, size, p.a != "row", a))
    if initial is not None:
        arrays.append((INITIAL, size, False, initial))
    if reset is not None:
        arrays.append((RESET, 1, True, reset))
    if final is not None:
        arrays.append((FINAL, size, False, final))

    def make(operands: list[Operand]) -> Launch:
        constant = p.a in ("scalar", "row")
        work = f"Scan<{ELEMENTS[p.dtype]}, {str(constant).lower()}, {str(p.reverse).lower()}>"
        words = np.zeros(WORDS, np.int64)
        shape = p.outer, p.time, p.inner
        return Launch(cuda, work, p.dtype, shape, p.chunk_size, operands, words)

    number = complex(a) if p.a == "scalar" else 0j
    run(cuda, p, arrays, {NUMBER: number.real, NUMBER + 1: number.imag}, make, x)
    return x, final


def explain(problem: ScanProblem) -> Kernel:
    """What would run on contiguous operands."""
    p = problem
    tiles = tiling(p.dtype, p.outer * p.inner, p.time, p.inner > 1, p.chunk_size)
    moved = p.bytes_per_element
    if tiles.chunks == 1:
        return Kernel(tiles.kernel, moved)
    return Kernel(tiles.kernel, 2 * moved - ITEMSIZE[p.dtype], tiles.length)
