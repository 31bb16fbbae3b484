"""What the benchmarks share: taking turns, the copy they compare with, test data, and reports."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from linscan_numba._streaming import largest_cache

try:
    import torch
except ImportError:
    torch = None

Call = Callable[[], Any]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
SAMPLE = 0.002
"""Shorter calls are repeated for so many seconds, and their time is averaged."""

KEPT = 1 << 24
"""What a process keeps of the memory that it frees, roughly.  More goes back to the system."""


def take_turns(calls: Sequence[Call], turns: int, wanted: int = 0) -> np.ndarray:
    """Seconds per call, ``[turns, calls]``.

    The calls alternate, since the machine's speed drifts; in an order that is drawn for each turn,
    since the memory that one frees is what the next one gets.

    ``wanted``: how many bytes a call may want.  If they are many they are had once before each,
    since a virtual machine returns what is free to its host, and waits when it wants it back.
    """
    counts = []
    for call in calls:
        call()
        counts.append(max(1, round(SAMPLE / seconds(call, 1))))
    times = np.empty((turns, len(calls)))
    orders = np.random.default_rng(0)
    for turn in times:
        for i in orders.permutation(len(calls)):
            if wanted > KEPT:
                np.ones(wanted // 8)
            turn[i] = seconds(calls[i], counts[i])
    return times


def seconds(call: Call, count: int) -> float:
    """The time of one call, averaged over ``count`` of them."""
    start = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - start) / count


@cache
def copy(size: int) -> Call:
    """A copy, with all threads, that reads and writes ``size`` bytes in sum."""
    source, target = np.ones((2, size // 8), np.float32)
    if torch is not None:
        tensors = torch.from_numpy(source), torch.from_numpy(target)
        return lambda: tensors[1].copy_(tensors[0])
    if size < 1 << 20:
        return lambda: np.copyto(target, source)
    parts = [np.array_split(x, CORES) for x in (target, source)]
    pool = ThreadPoolExecutor(CORES)
    return lambda: list(pool.map(np.copyto, *parts))


def copied_by() -> str:
    """What ``copy`` copies with."""
    if torch is not None:
        return f"torch.Tensor.copy_ with {torch.get_num_threads()} threads"
    return f"numpy.copyto with {CORES} threads"


@cache
def normal(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype)


@cache
def uniform(seed: int, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Numbers between 0 and 1."""
    return np.random.default_rng(seed).random(shape, dtype)


def forget() -> None:
    """Free the test data."""
    for function in (copy, normal, uniform):
        function.cache_clear()


def to(library: str, x: np.ndarray) -> Any:
    """The array in ``library``'s type, over the same memory."""
    return torch.from_numpy(x) if library == "torch" else x


def machine() -> dict[str, str]:
    """Where the figures come from."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = (line.partition(":") for line in info.read_text().splitlines())
        model = next(
            (value.strip() for key, _, value in lines if key.strip() == "model name"), model
        )
    facts = {
        "CPU": f"{model}, {CORES} cores",
        "largest cache": f"{largest_cache() >> 20} MiB",
        "copy": copied_by(),
        "Python": platform.python_version(),
    }
    for package in ("linscan", "numpy", "numba", "torch", "scipy", "torchrl"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def report(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, with the machine under it."""
    lines = [
        f"## {title}",
        "",
        f"| {' | '.join(headings)} |",
        f"|---|{'---:|' * (len(headings) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        ", ".join(f"{name} {value}" for name, value in machine().items()) + ".",
        "",
    ]
    return "\n".join(lines)


def save(folder: Path | None, name: str, markdown: str, results: Any) -> None:
    """Print the table; in ``folder`` leave it as ``name.md``, and the figures as ``name.json``."""
    print(markdown)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(markdown)
        figures = {"machine": machine(), "results": results}
        (folder / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
