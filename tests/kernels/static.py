"""What the Triton kernels compile to, for four targets, on a machine that has none of them.

    python tests/kernels/static.py --save docs/kernels

compiles every kernel with every dtype (minutes, once: Triton keeps what it has compiled), writes
the table and fails if there are spills, or narrow accesses to aligned tiles.
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
from capture import TARGETS, Launch, launches
from cases import FLAGS, SCAN_EXTRAS, Case, estimators
from resources import Resources, resources
from triton.compiler import CompilationError

from linscan._problem import ITEMSIZE

SHAPES = {
    "many rows": (4096, 8192, 1),
    "tiny rows": (65536, 64, 1),
    "time first": (1, 256, 65536),
    "few columns": (1, 16384, 4096),
    "few long rows": (4, 1 << 20, 1),
}
SIDE_BY_SIDE = "few columns"
"""One number per column, so that more steps are in flight: 32 neighbours fill a line of memory."""
CHUNKED = "few long rows"
"""Here gradients and holes take more than one pass."""
SMALL = 1 << 16
"""A launch of fewer elements moves next to nothing, however wide: totals of chunks."""
HEADER = "| kernel | dtype | shape | call | " + " | ".join(TARGETS) + " |"


def cases() -> Iterator[Case]:
    """Every kernel with every dtype; the rest, as of few rows or columns, with float32."""
    for (name, shape), dtype in product(SHAPES.items(), ITEMSIZE):
        few, single = name in (SIDE_BY_SIDE, CHUNKED), dtype == "float32"
        if few and not single:
            continue
        yield Case("scan", dtype, shape)
        if name != CHUNKED:
            yield Case("backward", dtype, shape)
        if few:
            yield Case("scan", dtype, shape, extras=SCAN_EXTRAS)
            yield Case("gae", dtype, shape, extras=FLAGS)
            continue
        if single:
            yield Case("scan", dtype, shape, reverse=False)
            for kind in ("scalar", "row", "step"):
                yield Case("scan", dtype, shape, kind)
        if single or name == "many rows":
            yield Case("scan", dtype, shape, extras=SCAN_EXTRAS)
            yield Case("backward", dtype, shape, extras=("reset", "initial"))
            if not dtype.startswith("complex"):
                for work in estimators():
                    yield Case(work, dtype, shape)
                    yield Case(work, dtype, shape, extras=(*FLAGS, "mask"))


def quick(case: Case) -> bool:
    """A part that shows most regressions in a minute."""
    if case.a != "full" or not case.reverse:
        return False
    if case.shape != SHAPES["many rows"]:
        return case.dtype == "float32" and case.work in ("scan", "gae") and not case.extras
    if case.work in ("scan", "backward"):
        return case.dtype == "float32" or not case.extras
    return case.dtype in ("float32", "bfloat16") and bool(case.extras)


@dataclass(frozen=True)
class Compiled:
    """One kernel that a call launches, on every target asked for, or why there is none."""

    kernel: str
    dtype: str
    shape: str
    call: str
    targets: dict[str, Resources | str]
    wide: bool
    """Whether accesses ought to be."""

    def faults(self) -> list[str]:
        """What must not be, and where."""
        return [
            f"{self.kernel}, {self.dtype}, {self.shape}, {self.call} on {target}: {fault}"
            for target, found in self.targets.items()
            for fault in ([found] if isinstance(found, str) else found.faults(self.wide))
        ]


def compiled(launch: Launch, target: str) -> Resources | str:
    """What it uses, or why it does not compile."""
    try:
        return resources(launch.compile(target))
    except (CompilationError, KeyError, TypeError) as failure:
        reason = getattr(failure, "error_message", None) or failure.__cause__ or failure
        return f"does not compile: {reason}"


def examine(case: Case, targets: tuple[str, ...]) -> list[Compiled]:
    """Compile what the call launches on each."""
    warnings.simplefilter("ignore")
    shape = next(name for name, shape in SHAPES.items() if shape == case.shape)
    found: list[Compiled] = []
    for target in targets:
        with launches(target) as caught:
            case.run(lambda shape, dtype: torch.empty(shape, dtype=dtype))
        if not caught:
            raise RuntimeError(f"{case}: nothing was launched")
        for i, launch in enumerate(caught):
            if len(found) <= i:
                passes = f", {i + 1} of {len(caught)}" if len(caught) > 1 else ""
                wide = shape != SIDE_BY_SIDE and launch.elements >= SMALL
                wide &= case.a not in ("row", "step")  # one number for many elements
                name = launch.name + passes
                found.append(Compiled(name, case.dtype, shape, str(case), {}, wide))
            found[i].targets[target] = compiled(launch, target)
    return found


def table(found: list[Compiled]) -> str:
    """In Markdown."""
    lines = [
        "# What the Triton kernels compile to",
        "",
        f"Compiled by Triton {triton.__version__} without a GPU, for aligned contiguous operands,"
        " by `python tests/kernels/static.py --save docs/kernels`.",
        "Each cell: registers · spills · bytes of shared memory · bytes per load/store of a tile.",
        "A call that cuts time into chunks has three kernels: totals, their scan, and the rest.",
        f"{SIDE_BY_SIDE.capitalize()} are loaded one number wide, and the totals as they come.",
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
