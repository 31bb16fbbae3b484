"""What ``linscan bench`` prints: times by length, all about the largest shape, a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from linscan._profile import readable
from linscan.cli.bench._jobs import JOBS, Setting
from linscan.cli.bench._measure import SERIAL, Result, readable_bytes

DETAILED = 2
"""Up to so many shapes are all shown in full; of more, the largest."""


def show(
    console: Console, setting: Setting, results: Sequence[Result], machine: dict[str, str]
) -> None:
    """Print it all."""
    shapes = list(dict.fromkeys((result.rows, result.time) for result in results))
    console.print(describe(setting, machine), soft_wrap=True)
    if len(shapes) > DETAILED:
        console.print(overview(results, shapes))
        shapes = shapes[-1:]
    for shape in shapes:
        at = [result for result in results if (result.rows, result.time) == shape]
        console.print(details(at))
        for result in at:
            if result.reason is not None:
                text = f"Left out: {result.way}: it {escape(result.reason)}."
                console.print(text, soft_wrap=True)
        console.print(f"\n{verdict(at)}\n", soft_wrap=True)


def describe(setting: Setting, machine: dict[str, str]) -> str:
    """The job, and the machine it ran on."""
    job = [f"{JOBS[setting.job].function.__name__} of {setting.arrays} arrays, {setting.dtype}"]
    if setting.job == "decay":
        job.append("one multiplier for all steps")
    elif setting.job == "scan":
        job.append("a multiplier for every element")
    job.append("time first" if setting.time_first else "time last")
    if setting.mask < 1:
        job.append(f"{setting.mask:.0%} of the steps valid")
    if setting.episode < float("inf"):
        job.append(f"episodes of {setting.episode:g} steps")
    versions = " ".join(
        f"{name} {machine[name]}" for name in ("numpy", "numba", "torch") if name in machine
    )
    return f"{', '.join(job)}; {machine['device']}; {versions}; a copy is by {machine['copy']}."


def overview(results: Sequence[Result], shapes: Sequence[tuple[int, int]]) -> Table:
    """The time of each way at each shape."""
    found = {(result.rows, result.time, result.way): result for result in results}
    table = Table(title="\nTime of a call", title_justify="left")
    table.add_column("", no_wrap=True)
    for rows, time in shapes:
        table.add_column(f"{rows}×{time}", justify="right", no_wrap=True)
    for way in dict.fromkeys(result.way for result in results):
        line = [found[(*shape, way)] for shape in shapes]
        table.add_row(label(line[0]), *(cell(result) for result in line))
    return table


def details(results: Sequence[Result]) -> Table:
    """Everything about the ways at one shape."""
    serial = next(result for result in results if result.way == SERIAL).median
    table = Table(title=f"\n{results[0].rows}×{results[0].time}", title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in ("time", "spread", "speed", "× copy", "memory", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        if result.median is None or result.times_copy is None:
            table.add_row(label(result), "left out")
            continue
        table.add_row(
            label(result),
            cell(result),
            "once" if result.spread is None else f"±{result.spread:.0%}",
            "" if serial is None else f"{ratio(serial / result.median)} ×",
            ratio(result.times_copy),
            "" if result.peak_bytes is None else readable_bytes(result.peak_bytes),
            f"{result.error:.1e}" if result.agrees else f"[red]{result.error:.1e}[/]",
        )
    return table


def verdict(results: Sequence[Result]) -> str:
    """Whether it is worth it, in a sentence or two."""
    done = [(x, x.median) for x in results if x.agrees and x.median is not None]
    ours = sorted((seconds, x.way, x.times_copy or 0) for x, seconds in done if x.ours)
    others = sorted((seconds, x.way) for x, seconds in done if not x.ours)
    if not ours:
        return "No backend of linscan did this job."
    best, backend, times_copy = ours[0]
    lines = [
        f"At {results[0].rows}×{results[0].time} linscan ({backend}) takes {readable(best)}, "
        f"{ratio(times_copy)} times a copy."
    ]
    for seconds, way in others:
        if way == SERIAL or (seconds, way) == others[0]:
            lines.append(against(best, seconds, "the loop over time" if way == SERIAL else way))
    lines.append("What share of a training step that is, `with linscan.profile()` tells.")
    return " ".join(lines)


def against(ours: float, theirs: float, name: str) -> str:
    """One comparison."""
    name = name[0].upper() + name[1:]
    if theirs < ours:
        return f"{name} is {ratio(ours / theirs)} times as fast: stay with it."
    more = readable(theirs - ours)
    return f"{name} takes {ratio(theirs / ours)} times as long, {more} more per call."


def label(result: Result) -> str:
    """What the tables call a way."""
    return f"[bold]linscan {result.way}[/]" if result.ours else result.way


def cell(result: Result) -> str:
    """The time, if there is one."""
    if result.median is None:
        return "left out"
    time = readable(result.median)
    return time if result.agrees else f"[red]{time} (wrong)[/]"


def ratio(value: float) -> str:
    """To three digits, without an exponent."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
