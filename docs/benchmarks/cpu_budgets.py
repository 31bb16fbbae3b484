"""How far linscan is from the speed of memory on this machine's CPU.

    pip install -e '.[cpu,torch,bench]'
    python docs/benchmarks/cpu_budgets.py --save docs/benchmarks/results

Most figures are multiples of the time of a copy that reads and writes as many bytes as the work
has to at least, from memory that exists into memory that exists, with all threads.  GAE in float32
reads rewards and values and writes advantages and returns: 16 bytes per element.  Copy and work
take turns, and the figure is the median over the turns of their quotient.  1 is not the limit: the
copy waits for every line that it overwrites, and linscan asks for lines ahead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from timing import Call, copy, forget, normal, report, save, take_turns, to, torch, uniform

import linscan
from linscan._problem import ScanProblem
from linscan_numba import BACKEND as numba_backend

GAMMA, LAM = 0.99, 0.95
Shape = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A dtype and an array library, and how thoroughly to measure."""

    dtype: str
    library: str
    turns: int
    small: bool

    def shape(self, shape: Shape) -> Shape:
        """The shape, or a small one that takes no time."""
        return (min(shape[0], 8), min(shape[1], 128)) if self.small else shape

    def array(self, x: np.ndarray) -> Any:
        """The array in the case's library."""
        return to(self.library, x)

    def fresh(self, shape: Shape) -> Any:
        """An array to write into, its pages touched."""
        return self.array(np.ones(shape, self.dtype))


def verify(work: Call, rows_axis: int, function: Any, *operands: Any, **keywords: Any) -> None:
    """Hold the first and the last row of what ``work`` computes against float64 NumPy."""

    def rows(x: Any) -> Any:
        if np.ndim(x) == 0:
            return x
        x = np.take(np.asarray(x), [0, -1], axis=rows_axis)
        return x if x.dtype == bool else x.astype(np.float64)

    exact = function(
        *map(rows, operands), **{k: rows(x) for k, x in keywords.items()}, backend="numpy"
    )
    found = work()
    pairs = zip(found, exact, strict=True) if isinstance(exact, tuple) else [(found, exact)]
    for x, y in pairs:
        worst = np.abs(rows(x) - y).max() / np.abs(y).max()
        if not worst < 1e-3:
            raise ArithmeticError(f"the result is off by {worst:.1e} of the largest magnitude")


def against_copy(case: Case, work: Call, size: float, elements: int, results: int = 0) -> float:
    """The time of ``work`` in times of a copy of ``size`` bytes per element.

    ``results``: how many it makes.
    """
    wanted = results * elements * np.dtype(case.dtype).itemsize
    times = take_turns([copy(int(size * elements)), work], case.turns, wanted)
    return float(np.median(times[:, 1] / times[:, 0]))


def gae(
    case: Case,
    shape: Shape,
    *,
    axis: int = -1,
    flags: bool = False,
    mask: Callable[[Shape], np.ndarray] | None = None,
    into: bool = True,
) -> float:
    """GAE into existing arrays, or with fresh results, in times of a copy."""
    shape = case.shape(shape)
    rewards, values = (case.array(normal(seed, shape, case.dtype)) for seed in (0, 1))
    keywords: dict[str, Any] = {"gamma": GAMMA, "lam": LAM, "axis": axis}
    size = 4.0 * np.dtype(case.dtype).itemsize
    if flags:
        keywords["terminated"] = case.array(uniform(2, shape) < 0.01)
        size += 1
    if mask is not None:
        keywords["mask"] = case.array(mask(shape))
        size += 1
    out = (case.fresh(shape), case.fresh(shape)) if into else None
    work = partial(linscan.gae, rewards, values, **keywords, out=out)
    verify(work, -1 - axis, linscan.gae, rewards, values, **keywords)
    return against_copy(case, work, size, shape[0] * shape[1], results=0 if into else 2)


def scan(case: Case, shape: Shape, a: str) -> float:
    """A scan into an existing array, with ``a`` per element or one number for all."""
    shape = case.shape(shape)
    b = case.array(normal(0, shape, case.dtype))
    item = np.dtype(case.dtype).itemsize
    multiplier = case.array(0.9 + uniform(1, shape, case.dtype) / 10) if a == "full" else 0.9405
    work = partial(linscan.scan, multiplier, b, out=case.fresh(shape))
    verify(work, 0, linscan.scan, multiplier, b)
    return against_copy(case, work, item * (3 if a == "full" else 2), shape[0] * shape[1])


def backward(case: Case, shape: Shape) -> float:
    """Both gradients of a scan with ``a`` per element, into fresh arrays."""
    shape = (*case.shape(shape), 1)
    a, x, g = (case.array(normal(seed, shape, case.dtype) / 4) for seed in (0, 1, 2))
    problem = ScanProblem(*shape[:2], 1, case.dtype, "full")
    work = partial(numba_backend.backward, problem, a, x, None, g, None)
    size = 5.0 * np.dtype(case.dtype).itemsize
    return against_copy(case, work, size, shape[0] * shape[1], results=2)


def printed(script: str, count: int) -> float:
    """What a script prints, the median over ``count`` processes.

    Each finds Python's bytecode, as pip leaves it on installation, but no kernels of numba's.
    """
    numbers = []
    with tempfile.TemporaryDirectory() as bytecode:
        for _ in range(1 + count):
            with tempfile.TemporaryDirectory() as kernels:
                environment = os.environ | {
                    "PYTHONPYCACHEPREFIX": bytecode,
                    "NUMBA_CACHE_DIR": kernels,
                }
                environment.pop("PYTHONDONTWRITEBYTECODE", None)
                command = [sys.executable, "-c", script]
                result = subprocess.run(
                    command, env=environment, check=True, capture_output=True, text=True
                )
                numbers.append(float(result.stdout))
    return float(np.median(numbers[1:]))  # the first writes the bytecode


def imported(case: Case) -> float:
    """Milliseconds that ``import linscan`` adds to ``import numpy``, in processes of their own."""
    script = """
import sys, time, numpy
start = time.perf_counter()
import linscan
print(time.perf_counter() - start)
heavy = {"torch", "triton", "cupy", "numba"} & sys.modules.keys()
if heavy:
    sys.exit(f"import linscan imports {heavy}")"""
    return 1e3 * printed(script, 1 if case.small else case.turns)


def pure_numpy(case: Case, shape: Shape, a: str) -> float:
    """Nanoseconds per element without a compiler."""
    shape = case.shape(shape)
    b = case.array(normal(0, shape, case.dtype))
    multiplier = case.array(0.9 + uniform(1, shape, case.dtype) / 10) if a == "full" else 0.9405
    work = partial(linscan.scan, multiplier, b, out=case.fresh(shape), backend="numpy")
    return 1e9 * float(np.median(take_turns([work], case.turns))) / (shape[0] * shape[1])


def overhead(case: Case) -> float:
    """Microseconds of a call so small that there is nothing to do."""
    rewards, values = (case.array(normal(seed, (8, 128), case.dtype)) for seed in (0, 1))
    work = partial(linscan.gae, rewards, values, gamma=GAMMA, lam=LAM)
    return 1e6 * float(np.median(take_turns([work], case.turns)))


def first_call(case: Case) -> float:
    """Seconds of the first call of a process that finds no compiled code."""
    script = f"""
import time, numpy as np, linscan
x = np.ones((256, 4096), {case.dtype!r})
start = time.perf_counter()
linscan.gae(x, x, gamma=0.99, lam=0.95)
print(time.perf_counter() - start)"""
    return printed(script, 1 if case.small else 3)


def segments(shape: Shape) -> np.ndarray:
    """A mask whose runs, valid and not in turn, are some 200 steps long."""
    return np.cumsum(uniform(3, shape) < 1 / 200, axis=-1) % 2 == 0


def scattered(shape: Shape) -> np.ndarray:
    """A mask with a hole at every tenth step, at random."""
    return uniform(3, shape) >= 0.1


@dataclass(frozen=True)
class Row:
    """Some work, what it may take and what it should take."""

    name: str
    must: float
    aim: float
    measure: Callable[[Case], float]
    unit: str = "× copy"
    dtypes: tuple[str, ...] = ("float32", "float64")
    libraries: tuple[str, ...] = ("NumPy", "torch")
    goal_for: tuple[str, ...] = ("float32", "float64")


BIG, MEDIUM, SMALL = (256, 131072), (128, 65536), (64, 2048)
ONE = (1, 1 << 24)
ONE_DTYPE = {"dtypes": ("float32",)}
NUMPY = {"libraries": ("NumPy",)}

ROWS = [
    Row("gae 256×131072", 1.3, 0.8, lambda case: gae(case, BIG)),
    Row("gae 256×131072, flags", 1.3, 0.8, lambda case: gae(case, BIG, flags=True)),
    Row("gae 256×131072, mask in segments", 1.6, 1.2, lambda case: gae(case, BIG, mask=segments)),
    Row("gae 256×131072, mask, 10 % holes", 1.6, 1.2, lambda case: gae(case, BIG, mask=scattered)),
    Row("gae 256×131072, fresh results", 2.0, 1.4, lambda case: gae(case, BIG, into=False)),
    Row("gae 128×65536", 1.3, 0.8, lambda case: gae(case, MEDIUM)),
    Row("gae 128×65536, flags", 1.3, 0.8, lambda case: gae(case, MEDIUM, flags=True)),
    Row("gae 128×65536, mask in segments", 1.6, 1.2, lambda case: gae(case, MEDIUM, mask=segments)),
    Row(
        "gae 128×65536, mask, 10 % holes", 1.6, 1.2, lambda case: gae(case, MEDIUM, mask=scattered)
    ),
    Row("gae 2048×4096, time first", 1.6, 0.9, lambda case: gae(case, (2048, 4096), axis=0)),
    Row("gae 64×2048, fresh results", 2.5, 1.6, lambda case: gae(case, SMALL, into=False)),
    Row("scan 256×131072, full a", 1.5, 1.0, lambda case: scan(case, BIG, "full")),
    Row("scan 128×65536, full a", 1.5, 1.0, lambda case: scan(case, MEDIUM, "full")),
    Row("scan 1×2²⁴, full a", 1.5, 0.9, lambda case: scan(case, ONE, "full")),
    Row("scan 1×2²⁴, constant a", 1.5, 0.9, lambda case: scan(case, ONE, "constant")),
    Row("backward 128×65536, full a, fresh results", 1.5, 1.0, lambda case: backward(case, MEDIUM)),
    Row("gae 8×128, the whole call", 20, 8, overhead, "µs", **ONE_DTYPE),
    Row("gae, first call, nothing compiled", 3, 1.5, first_call, "s", **ONE_DTYPE, **NUMPY),
    Row("import linscan, after NumPy", 50, 50, imported, "ms", **ONE_DTYPE, **NUMPY),
    Row(
        "numpy backend 1×2²⁴, full a",
        5,
        3.5,
        lambda case: pure_numpy(case, ONE, "full"),
        "ns per element",
        goal_for=("float32",),
        **NUMPY,
    ),
    Row(
        "numpy backend 1×2²⁴, constant a",
        2.5,
        1.6,
        lambda case: pure_numpy(case, ONE, "constant"),
        "ns per element",
        goal_for=("float32",),
        **NUMPY,
    ),
]


def main() -> None:
    """Measure the rows asked for and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--dtype", choices=["float32", "float64"], help="this dtype only")
    parser.add_argument("--turns", type=int, default=11, help="how often copy and work alternate")
    parser.add_argument("--quick", action="store_true", help="small arrays: does all of it run?")
    parser.add_argument("--save", type=Path, help="folder for the table and the figures")
    options = parser.parse_args()

    dtypes = [options.dtype] if options.dtype else ["float32", "float64"]
    columns = [(d, lib) for d in dtypes for lib in (["NumPy", "torch"] if torch else ["NumPy"])]
    rows = [row for row in ROWS if options.only in row.name]
    turns = 1 if options.quick else options.turns
    figures: dict[tuple[str, str, str], float] = {}
    work = [
        (row, *column)
        for row in rows
        for column in columns
        if column[0] in row.dtypes and column[1] in row.libraries
    ]
    for row, dtype, library in track(work, "Measuring", transient=True):
        figures[row.name, dtype, library] = row.measure(Case(dtype, library, turns, options.quick))
        forget()

    def cell(row: Row, column: tuple[str, str]) -> str:
        figure = figures.get((row.name, *column))
        if figure is None:
            return ""
        met = figure <= row.must or column[0] not in row.goal_for
        return f"{figure:.2f}" if met else f"**{figure:.2f}**"

    headings = ["work", "unit", *(f"{lib} {d}" for d, lib in columns), "must", "aim"]
    table = [
        [row.name, row.unit, *(cell(row, c) for c in columns), f"{row.must:g}", f"{row.aim:g}"]
        for row in rows
    ]
    title = "linscan on this CPU" + (" (quick: the figures mean nothing)" if options.quick else "")
    results = [
        {"work": name, "dtype": d, "library": lib, "figure": figure}
        for (name, d, lib), figure in figures.items()
    ]
    save(options.save, "cpu_budgets", report(title, headings, table), results)


if __name__ == "__main__":
    main()
