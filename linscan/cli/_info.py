"""``linscan info``: what is installed here, and what each backend would need."""

from __future__ import annotations

import os
import platform

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import linscan
from linscan._dispatch import VARIABLE
from linscan.cli._here import CORES, PACKAGES, installed


def run() -> int:
    """Print it all; the exit code is 0."""
    console = Console(highlight=False)
    facts = Table.grid(padding=(0, 2))
    facts.add_row(
        "Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    facts.add_row("CPU", threads())
    for package in PACKAGES:
        facts.add_row(package, installed(package) or "not installed")
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


def threads() -> str:
    """How many threads this process may use, and how many the libraries would."""
    counts = [f"{CORES} cores"]
    if installed("numba"):
        import numba

        counts.append(f"numba uses {numba.get_num_threads()} threads")
    if installed("torch"):
        import torch

        counts.append(f"torch uses {torch.get_num_threads()}")
    return ", ".join(counts)
