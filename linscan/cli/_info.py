"""``linscan info``: what is installed here, and what each backend would need."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import linscan
from linscan._dispatch import VARIABLE

PACKAGES = ["linscan", "numpy", "array-api-compat", "numba", "torch"]


def run() -> int:
    """Print it all; the exit code is 0."""
    console = Console(highlight=False)
    facts = Table.grid(padding=(0, 2))
    facts.add_row(
        "Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    facts.add_row("CPU", threads())
    for package in PACKAGES:
        facts.add_row(package, installed(package))
    if VARIABLE in os.environ:
        facts.add_row(VARIABLE, f"{os.environ[VARIABLE]!r} is the backend unless a call names one")
    console.print(facts)

    table = Table(
        "backend", "here", title="\nBackends, in the order auto tries them", title_justify="left"
    )
    for name, reason in linscan.backends().items():
        verdict = "[green]can run here[/]" if reason is None else f"[yellow]no:[/] {escape(reason)}"
        table.add_row(name, verdict)
    console.print(table)
    return 0


def installed(package: str) -> str:
    """The version of a package, or that it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def threads() -> str:
    """How many threads this process may use, and how many the libraries would."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    counts = [f"{cores} cores"]
    if installed("numba") != "not installed":
        import numba

        counts.append(f"numba uses {numba.get_num_threads()} threads")
    if installed("torch") != "not installed":
        import torch

        counts.append(f"torch uses {torch.get_num_threads()}")
    return ", ".join(counts)
