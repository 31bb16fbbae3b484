"""``linscan bench``: whether linscan is worth it for a job like yours."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import linscan
from linscan.cli.bench import _machine as machine
from linscan.cli.bench import _preset, _report
from linscan.cli.bench._jobs import Setting
from linscan.cli.bench._measure import Result, compare, warm_up, ways
from linscan.cli.bench._options import job

FORMAT = 1
"""Of the JSON file; it rises when the meaning of a field changes."""


class Run(NamedTuple):
    """What was measured, and where."""

    setting: Setting
    machine: dict[str, str]
    results: list[Result]
    left_out: dict[str, str]
    """Backends that have no part, with the reason."""

    def figures(self) -> dict[str, Any]:
        """All of it, for a file."""
        setting = self.setting._asdict()
        if setting["episode"] == float("inf"):
            setting["episode"] = None
        return {
            "format": FORMAT,
            "machine": self.machine,
            "setting": setting,
            "left_out": self.left_out,
            "results": [result.figures() for result in self.results],
        }


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Measure, print, save; the exit code is 0 if every result is as the reference says."""
    setting, shapes = job(options, parser)
    if options.preset:
        shapes = _preset.shapes(options.quick)

    console = Console(highlight=False)
    warning = machine.busy()
    if warning:
        console.print(f"[yellow]{warning}[/]")
    bench = measure(setting, shapes, options.seconds, options.limit, console)
    if options.preset:
        console.print(f"GAE, float32. Here: {bench.machine['device']}")
        console.print(*_preset.tables(bench.results, options.quick), sep="")
        if not options.quick:
            console.print(_preset.NOTE, soft_wrap=True)
    _report.show(console, setting, bench.results, bench.machine)
    for name, reason in bench.left_out.items():
        console.print(f"Left out: {name}: {escape(reason)}", soft_wrap=True)
    if options.json is not None:
        options.json.write_text(json.dumps(bench.figures(), indent=1) + "\n")
        console.print(f"Figures: {options.json}")
    if options.no_png:
        pass
    elif find_spec("matplotlib"):
        from linscan.cli.bench import _picture

        _picture.draw(options.png, setting, bench.results, bench.machine, warning)
        console.print(f"Picture: {options.png}")
    else:
        console.print(escape("No picture: it takes matplotlib, `pip install 'linscan[bench]'`"))

    wrong = [result for result in bench.results if not result.agrees]
    for result in wrong:
        console.print(
            f"[red]Wrong:[/] {result.way} at {result.rows}×{result.time} is off by "
            f"{result.error:.1e} of the largest magnitude in its row; "
            f"{result.allowed:.1e} would be rounding.",
            soft_wrap=True,
        )
    return 1 if wrong else 0


def measure(
    setting: Setting,
    shapes: Sequence[tuple[int, int]],
    budget: float,
    limit: float,
    console: Console,
) -> Run:
    """Every way at every shape, with a bar that says where it is."""
    everyone = list(ways(setting))
    taking_part = {way.name for way in everyone if way.ours}
    left_out = {
        name: reason or f"does not take {setting.arrays} arrays on {setting.device}"
        for name, reason in linscan.backends().items()
        if name not in taking_part
    }
    results: list[Result] = []
    with progress(console, len(everyone) * (1 + 2 * len(shapes))) as step:
        warm_up(setting, everyone, step)
        for rows, time in shapes:
            results += compare(
                setting, rows, time, everyone, before=results, budget=budget, limit=limit, step=step
            )
    return Run(setting, machine.describe(setting), results, left_out)


@contextmanager
def progress(console: Console, total: int) -> Iterator[Any]:
    """A bar; what it yields is told the name of each step as it begins."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)

        def step(description: str) -> None:
            bar.update(task, advance=1, description=description)

        yield step
