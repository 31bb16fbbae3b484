"""The bytes that the Triton kernels load and store, counted while Triton's interpreter runs them.

    TRITON_INTERPRET=1 python tests/kernels/traffic.py --save docs/kernels

A lane that is masked off moves nothing.  Loading an address again counts again, though a device
would find it in a cache: so a figure that equals the minimum says that each input is read once.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from cases import Case, estimators
from triton import knobs
from triton.runtime.interpreter import InterpreterBuilder

from linscan._problem import ACCUMULATE, ITEMSIZE
from linscan.testing._interpreter import quicken

SHAPES = {
    "rows": (2, 2049, 1),
    "tiny rows": (67, 30, 1),
    "time first": (1, 33, 200),
}
"""The regimes that need one pass.  Lengths and widths are odd: the last tiles are not whole."""


@dataclass
class Traffic:
    """Bytes."""

    loaded: int = 0
    stored: int = 0


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Counts what the kernels that run inside load and store."""
    counted = Traffic()
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def size(pointers: Any, mask: Any) -> int:
        bits = pointers.get_element_ty().primitive_bitwidth
        return int(np.count_nonzero(mask.data)) * max(1, bits // 8)

    def counted_load(self: Any, pointers: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        counted.loaded += size(pointers, mask)
        return load(self, pointers, mask, *rest, **more)

    def counted_store(
        self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **more: Any
    ) -> Any:
        counted.stored += size(pointers, mask)
        return store(self, pointers, value, mask, *rest, **more)

    with (
        patch.object(InterpreterBuilder, "create_masked_load", counted_load),
        patch.object(InterpreterBuilder, "create_masked_store", counted_store),
    ):
        yield counted


def cases() -> Iterator[tuple[str, Case]]:
    """What is counted, in every regime."""
    for regime, shape in SHAPES.items():
        half = shape[0], -(-shape[1] // 2), shape[2]  # of complex numbers, whose tiles are shorter
        for dtype, a in (("float32", "full"), ("float32", "scalar"), ("bfloat16", "full")):
            for reverse in (False, True):
                yield regime, Case("scan", dtype, shape, a, reverse)  # type: ignore[arg-type]
        yield regime, Case("scan", "float32", shape, extras=("reset",))
        yield regime, Case("scan", "complex64", half)
        for reverse in (False, True):
            yield regime, Case("backward", "float32", shape, reverse=reverse)
        yield regime, Case("backward", "float32", shape, extras=("reset",))
        yield regime, Case("backward", "complex64", half)
        for work in estimators():
            yield regime, Case(work, "float32", shape)
            yield regime, Case(work, "float32", shape, extras=("terminated",))
            yield regime, Case(work, "float32", shape, extras=("mask",))
            yield regime, Case(work, "bfloat16", shape, extras=("terminated", "mask"))


def minimum(case: Case) -> int:
    """Bytes per element that have to move: what is read and what is written, each once."""
    arrays = {
        "gae": 4,
        "td_lambda": 3,
        "discounted_returns": 2,
        "backward": 5,
        "scan": 3,
        "vtrace": 5,
    }
    count = arrays[case.work] - (case.a == "scalar")
    ratios = ITEMSIZE[ACCUMULATE[case.dtype]] * (case.work == "vtrace")
    return count * ITEMSIZE[case.dtype] + ratios + len(case.extras)


@dataclass(frozen=True)
class Count:
    """Bytes per element of one call."""

    regime: str
    dtype: str
    call: str
    loaded: float
    stored: float
    minimum: int


def count(regime: str, case: Case) -> Count:
    """Run the call and count."""
    generator = torch.Generator().manual_seed(0)

    def make(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.rand(shape, generator=generator) < 0.1
        return torch.rand(shape, generator=generator).to(dtype)

    with traffic() as moved:
        case.run(make)
    elements = prod(case.shape)
    loaded, stored = moved.loaded / elements, moved.stored / elements
    return Count(regime, case.dtype, str(case), loaded, stored, minimum(case))


def table(counts: list[Count]) -> str:
    """In Markdown."""
    lines = [
        "# What the Triton kernels load and store",
        "",
        "Bytes per element, counted while Triton's interpreter runs the kernels, by"
        " `TRITON_INTERPRET=1 python tests/kernels/traffic.py --save docs/kernels`.",
        "",
        "| regime | dtype | call | loaded | stored | sum | least |",
        "|---|---|---|---:|---:|---:|---:|",
        *(
            f"| {one.regime} | {one.dtype} | {one.call} | {one.loaded:.4g} | {one.stored:.4g} | "
            f"{one.loaded + one.stored:.4g} | {one.minimum} |"
            for one in counts
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Count, tell, and fail where more moves than must."""
    parser = argparse.ArgumentParser(description="The bytes that the Triton kernels move.")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write traffic.md there")
    given = parser.parse_args()
    if not knobs.runtime.interpret:
        parser.error("set TRITON_INTERPRET=1: kernels are interpreted or compiled once defined")
    warnings.simplefilter("error")
    quicken()
    counts = [count(regime, case) for regime, case in cases()]
    markdown = table(counts)
    print(markdown)
    if given.save:
        given.save.mkdir(parents=True, exist_ok=True)
        (given.save / "traffic.md").write_text(markdown)
    over = [one for one in counts if one.loaded + one.stored != one.minimum]
    for one in over:
        print(f"{one.regime}, {one.dtype} {one.call}: not the minimum, {one.minimum}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
