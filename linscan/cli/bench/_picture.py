"""The picture: time against the number of steps, a line for each way, its name at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from linscan._profile import readable
from linscan.cli.bench._jobs import JOBS, Setting
from linscan.cli.bench._measure import MATRIX, SERIAL, Result
from linscan.cli.bench._report import ratio

INK, FAINT, WARNING = "#1f2933", "#9aa5b1", "#b54708"
OTHERS = {
    SERIAL: "#52606d",
    MATRIX: "#b08968",
    "chunk 64": "#8fb8de",
    "chunk 128": "#5b8fc7",
    "chunk 256": "#2f6690",
}
OURS = ("#d1495b", "#edae49", "#3a9d6e", "#7b4fa6")
COPY = "a copy"
APART = 0.045
"""How far names keep from one another, as a part of the height."""


def draw(
    file: Path,
    setting: Setting,
    results: Sequence[Result],
    machine: dict[str, str],
    warning: str | None,
) -> None:
    """A panel for each number of rows: lines over time, or bars where there is one length only."""
    rows = dict.fromkeys(result.rows for result in results)
    panels = [[x for x in results if x.rows == count] for count in rows]
    as_bars = all(len({result.time for result in panel}) == 1 for panel in panels)
    figure = Figure(figsize=(2.5 + 6.5 * len(panels), 6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    height = 0.82 if warning else 0.86
    figure.get_layout_engine().set(rect=(0, 0.04, 1, height))  # type: ignore[union-attr, call-arg]
    axes = figure.subplots(1, len(panels), sharey=not as_bars, squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        (bars if as_bars else lines)(axis, panel)
        if len(panels) > 1 or as_bars:
            title = f"{panel[0].rows} rows" + (f" of {panel[0].time} steps" if as_bars else "")
            axis.set_title(title, loc="left", fontsize=11, color=INK)
    if not as_bars:
        axes[0].set_ylabel("time of a call", color=INK)
    figure.text(0.02, 0.945, finding(setting, results), fontsize=12, weight="bold", color=INK)
    what = f"{setting.dtype}, {setting.arrays} arrays"
    below = f"{what}. {machine['device']}. Median of warm calls, of slow ways one."
    figure.text(0.02, 0.905, below, fontsize=9.5, color=INK)
    if warning:
        figure.text(0.02, 0.87, warning, fontsize=9.5, color=WARNING)
    same = "moves the same bytes: each input read, each result written once."
    note = f"Calls allocate their results. A copy ({machine['copy']}) {same}"
    figure.text(0.02, 0.015, note, fontsize=8.5, color=FAINT)
    figure.savefig(file, metadata={"Software": "linscan bench"})


def finding(setting: Setting, results: Sequence[Result]) -> str:
    """What the figures say at the largest shape."""
    rows, time = results[-1].rows, results[-1].time
    done = [x for x in results if (x.rows, x.time) == (rows, time) and x.agrees]
    times = {x.way: (x.median, x.ours) for x in done if x.median is not None}
    what = f"{JOBS[setting.job].function.__name__} of {rows}×{time}"
    best = min((seconds for seconds, ours in times.values() if ours), default=None)
    if best is None:
        return what
    said = [f"{what}: {readable(best)}"]
    if SERIAL in times:
        said.append(f"{ratio(times[SERIAL][0] / best)} × as fast as a loop")
    chunks = [seconds for way, (seconds, _) in times.items() if way.startswith("chunk")]
    if chunks:
        said.append(f"{ratio(min(chunks) / best)} × as fast as chunks")
    return ", ".join(said)


class Line(NamedTuple):
    """What becomes of a way in a panel."""

    name: str
    colour: str
    points: list[tuple[int, float]]
    ours: bool = False
    reason: str | None = None
    """Why it ends before the others."""


def ways(results: Sequence[Result]) -> Iterator[Line]:
    """The copy, and every way with the lengths and times that it has."""
    yield Line(COPY, FAINT, copies(results))
    colours = iter(OURS * len(results))
    for way in dict.fromkeys(result.way for result in results):
        mine = [x for x in results if x.way == way]
        points = [(x.time, x.median) for x in mine if x.median is not None and x.agrees]
        reason = next((x.reason for x in mine if x.reason), None)
        if mine[0].ours:
            yield Line(f"linscan {way}", next(colours), points, True, reason)
        else:
            yield Line(way, OTHERS[way], points, False, reason)


def bars(axis: Any, results: Sequence[Result]) -> None:
    """A bar for each way, the quickest at the bottom."""
    shown = sorted((x for x in ways(results) if x.points), key=lambda x: x.points[0][1])
    seconds = [line.points[0][1] for line in shown]
    axis.barh(range(len(shown)), seconds, color=[line.colour for line in shown], height=0.62)
    axis.set_xscale("log")
    axis.set_xlim(min(seconds) / 2, max(seconds) * 6)
    for i, (line, time) in enumerate(zip(shown, seconds, strict=True)):
        weight = "bold" if line.ours else "normal"
        axis.text(time * 1.15, i, readable(time), va="center", color=INK, weight=weight)
    axis.set_yticks(range(len(shown)), [line.name for line in shown])
    for tick, line in zip(axis.get_yticklabels(), shown, strict=True):
        tick.set(color=line.colour, weight="bold" if line.ours else "normal")
    bare(axis)
    axis.xaxis.set_visible(False)
    axis.spines["bottom"].set_visible(False)


def lines(axis: Any, results: Sequence[Result]) -> None:
    """A line for each way, with its name at the end."""
    shown = [line for line in ways(results) if line.points]
    for line in shown:
        axis.plot(
            *zip(*line.points, strict=True),
            color=line.colour,
            linewidth=2.6 if line.ours else 1.7,
            linestyle=(0, (4, 3)) if line.name == COPY else "-",
            marker="" if line.name == COPY else "o",
            markersize=5.5 if line.ours else 4,
            zorder=3 if line.ours else 2,
        )
    times = sorted({result.time for result in results})
    over_time(axis, times)
    whole = [line for line in shown if line.points[-1][0] == times[-1]]
    for line, height in zip(*spread_out(axis, whole), strict=True):
        axis.annotate(
            line.name,
            line.points[-1],
            xytext=(1.03, height),
            textcoords="axes fraction",
            va="center",
            color=line.colour,
            weight="bold" if line.ours else "normal",
            arrowprops={"arrowstyle": "-", "color": line.colour, "lw": 0.6, "alpha": 0.6},
            annotation_clip=False,
        )
    for line in shown:
        if line not in whole:
            memory = (line.reason or "").startswith("needs")
            axis.annotate(
                f"{line.name}: {'no memory' if memory else 'left out'} beyond",
                line.points[-1],
                xytext=(-6, 9),
                textcoords="offset points",
                ha="right",
                color=line.colour,
            )


def copies(results: Sequence[Result]) -> list[tuple[int, float]]:
    """What a copy took, as the quickest way says by its ratio."""
    found = []
    for time in sorted({result.time for result in results}):
        at = [x for x in results if x.time == time and x.median and x.times_copy]
        if at:
            best = min(at, key=lambda x: x.median or 0)
            found.append((time, (best.median or 0) / (best.times_copy or 1)))
    return found


def over_time(axis: Any, times: Sequence[int]) -> None:
    """Log axes with plain numbers."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(times, [f"{time:,}".replace(",", "\u202f") for time in times])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: readable(seconds)))
    axis.set_xlabel("steps T", color=INK)
    axis.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    bare(axis)


def bare(axis: Any) -> None:
    """No ink that shows no figure."""
    axis.set_axisbelow(True)
    axis.tick_params(length=0, labelcolor=INK)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(FAINT)


def spread_out(axis: Any, lines: Sequence[Line]) -> tuple[list[Line], list[float]]:
    """The lines by their ends, and heights for their names such that no two overlap."""
    placed = sorted(lines, key=lambda line: line.points[-1][1])
    to_axes = axis.transData + axis.transAxes.inverted()
    heights = [float(to_axes.transform(line.points[-1])[1]) for line in placed]
    for _ in range(200):
        for i in range(len(heights) - 1):
            overlap = APART - (heights[i + 1] - heights[i])
            if overlap > 0:
                heights[i] -= overlap / 2
                heights[i + 1] += overlap / 2
    return placed, heights
