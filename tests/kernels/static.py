"""What the Triton kernels compile to, for four targets, on a machine that has none of them.

    python tests/kernels/static.py --save docs/kernels

compiles every kernel with every dtype and specialisation (ten minutes, once: Triton keeps what it
has compiled), writes the table and fails if there are spills, or narrow accesses to aligned tiles.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch
import triton
from capture import TARGETS, launches
from cases import ESTIMATOR_EXTRAS, SCAN_EXTRAS, Case, estimators
from resources import Resources, resources

from linscan._problem import ITEMSIZE

SHAPES = {
    "many rows": (4096, 8192, 1),
    "few rows": (128, 131072, 1),
    "tiny rows": (65536, 64, 1),
    "time first": (1, 256, 65536),
    "few long rows": (4, 1 << 20, 1),
}
HEADER = "| kernel | dtype | shape | call | " + " | ".join(TARGETS) + " |"


def cases() -> Iterator[Case]:
    """Every kernel, dtype and specialisation."""
    for shape, dtype in product(SHAPES.values(), ITEMSIZE):
        for reverse in (False, True):
            yield Case("scan", dtype, shape, "full", reverse)
            yield Case("scan", dtype, shape, "scalar", reverse)
            yield Case("scan", dtype, shape, "full", reverse, SCAN_EXTRAS)
            yield Case("backward", dtype, shape, "full", reverse)
        if dtype == "float32":
            yield Case("scan", dtype, shape, "row")
            yield Case("scan", dtype, shape, "step")
        if not dtype.startswith("complex"):
            for work in estimators():
                yield Case(work, dtype, shape)
                yield Case(work, dtype, shape, extras=("terminated",))
                yield Case(work, dtype, shape, extras=ESTIMATOR_EXTRAS)


def quick(case: Case) -> bool:
    """A part that shows most regressions in a minute."""
    rows = case.shape == SHAPES["many rows"]
    if case.dtype != "float32":
        return case.reverse and rows and case.work == "scan" and not case.extras
    return case.reverse and (rows or case.a == "full")


@dataclass(frozen=True)
class Compiled:
    """One kernel that a call launches, on every target asked for."""

    kernel: str
    dtype: str
    shape: str
    call: str
    targets: dict[str, Resources]

    def faults(self) -> list[str]:
        """What must not be, and where."""
        return [
            f"{self.kernel}, {self.dtype}, {self.shape}, {self.call} on {target}: {fault}"
            for target, found in self.targets.items()
            for fault in found.faults()
        ]


def examine(case: Case, targets: tuple[str, ...]) -> list[Compiled]:
    """Compile what the call launches."""
    warnings.simplefilter("ignore")
    with launches() as caught:
        case.run(lambda shape, dtype: torch.empty(shape, dtype=dtype))
    if not caught:
        raise RuntimeError(f"{case}: nothing was launched")
    return [
        Compiled(
            launch.name,
            case.dtype,
            next(name for name, shape in SHAPES.items() if shape == case.shape),
            str(case),
            {target: resources(launch.compile(target)) for target in targets},
        )
        for launch in caught
    ]


def table(found: list[Compiled]) -> str:
    """In Markdown."""
    lines = [
        "# What the Triton kernels compile to",
        "",
        f"Compiled by Triton {triton.__version__} without a GPU, for aligned contiguous operands,"
        " by `python tests/kernels/static.py --save docs/kernels`.",
        "Each cell: registers · spills · bytes of shared memory · bytes per load/store of a tile.",
        "",
        HEADER,
        "|---|---|---|---|" + "---:|" * len(TARGETS),
        *(
            f"| {one.kernel} | {one.dtype} | {one.shape} | {one.call} | "
            + " | ".join(str(one.targets.get(target, "")) for target in TARGETS)
            + " |"
            for one in found
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Compile, tell, and fail on a fault."""
    parser = argparse.ArgumentParser(description="What the Triton kernels compile to.")
    parser.add_argument("--quick", action="store_true", help="a part, for two targets")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write static.md there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = parser.parse_args()
    targets = ("sm_90", "gfx942") if given.quick else tuple(TARGETS)
    chosen = [case for case in cases() if not given.quick or quick(case)]
    found: list[Compiled] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for results in pool.map(examine, chosen, [targets] * len(chosen)):
            found += [one for one in results if one not in found]
    if given.save:
        given.save.mkdir(parents=True, exist_ok=True)
        (given.save / "static.md").write_text(table(found))
    faults = [fault for one in found for fault in one.faults()]
    if given.json:
        kernels = [
            asdict(one) | {"cells": {target: str(cell) for target, cell in one.targets.items()}}
            for one in found
        ]
        figures = {"triton": triton.__version__, "faults": faults, "kernels": kernels}
        given.json.write_text(json.dumps(figures, indent=1))
    print(*faults, sep="\n")
    print(f"{len(found)} kernels for {', '.join(targets)}: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
