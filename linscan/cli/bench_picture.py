"""The picture: time against the number of steps, a line for each way, its name at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from linscan.cli.bench_jobs import JOBS, Setting
from linscan.cli.bench_measure import MATRIX, SERIAL, Result
from linscan.cli.bench_report import duration, ratio

INK, FAINT = "#1f2933", "#9aa5b1"
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


def draw(file: Path, setting: Setting, results: Sequence[Result], machine: dict[str, str]) -> None:
    """A panel for each number of rows."""
    panels = list(dict.fromkeys(result.rows for result in results))
    figure = Figure(figsize=(2.5 + 6.5 * len(panels), 6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0, 0.04, 1, 0.86))  # type: ignore[union-attr, call-arg]
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, rows in zip(axes, panels, strict=True):
        panel(axis, setting, [result for result in results if result.rows == rows])
        if len(panels) > 1:
            axis.set_title(f"{rows} rows", loc="left", fontsize=11, color=INK)
    axes[0].set_ylabel("time of a call", color=INK)
    figure.text(0.02, 0.945, finding(setting, results), fontsize=14, weight="bold", color=INK)
    what = f"{JOBS[setting.job].function.__name__}, {setting.dtype}, {setting.arrays} arrays"
    below = f"{what}. {machine['device']}. Median of warm calls, results allocated anew."
    figure.text(0.02, 0.905, below, fontsize=9.5, color=INK)
    note = "A copy moves the same bytes: every input read once, every result written once."
    figure.text(0.02, 0.015, note, fontsize=8.5, color=FAINT)
    figure.savefig(file, metadata={"Software": "linscan bench"})


def finding(setting: Setting, results: Sequence[Result]) -> str:
    """What the figures say at the largest shape."""
    rows, time = results[-1].rows, results[-1].time
    at = {x.way: (x.median, x) for x in results if (x.rows, x.time) == (rows, time) and x.agrees}
    what = f"{JOBS[setting.job].function.__name__} of {rows}×{time}"
    ours = [(seconds, x.times_copy) for seconds, x in at.values() if seconds and x.ours]
    if not ours:
        return what
    best, times_copy = min(ours)
    says = [f"linscan takes {duration(best)}, {ratio(times_copy or 0)} copies"]
    serial = at[SERIAL][0] if SERIAL in at else None
    if serial:
        says.append(f"a loop {ratio(serial / best)} times as long")
    chunks = [seconds for way, (seconds, _) in at.items() if seconds and way.startswith("chunk")]
    if chunks:
        says.append(f"chunks {ratio(min(chunks) / best)} times")
    return f"{what}: {'; '.join(says)}"


def panel(axis: Any, setting: Setting, results: Sequence[Result]) -> None:
    """The lines for one number of rows."""
    lines = {COPY: copies(results)}
    colours, ours = {COPY: FAINT}, iter(OURS * len(results))
    for way in dict.fromkeys(result.way for result in results):
        mine = [x for x in results if x.way == way]
        name = f"linscan {way}" if mine[0].ours else way
        colours[name] = next(ours) if mine[0].ours else OTHERS[way]
        lines[name] = [(x.time, x.median) for x in mine if x.median and x.agrees]
    ends = []
    for name, points in lines.items():
        if not points:
            continue
        times, seconds = zip(*points, strict=True)
        bold, copy = name.startswith("linscan"), name == COPY
        axis.plot(
            times,
            seconds,
            color=colours[name],
            linewidth=2.6 if bold else 1.7,
            linestyle=(0, (4, 3)) if copy else "-",
            marker="" if copy else "o",
            markersize=5.5 if bold else 4,
            zorder=3 if bold else 2,
            solid_capstyle="round",
        )
        ends.append((name, times[-1], seconds[-1]))
    style(axis, sorted({result.time for result in results}))
    last = max(result.time for result in results)
    for name, time, at, height in spread_out(axis, [end for end in ends if end[1] == last]):
        axis.annotate(
            name,
            (time, at),
            xytext=(1.03, height),
            textcoords="axes fraction",
            va="center",
            color=colours[name],
            weight="bold" if name.startswith("linscan") else "normal",
            fontsize=10,
            arrowprops={"arrowstyle": "-", "color": colours[name], "lw": 0.6, "alpha": 0.6},
            annotation_clip=False,
        )
    for name, time, at in ends:
        if time == last:
            continue
        reason = next((x.reason for x in results if x.way == name and x.reason), "")
        why = "no memory beyond" if reason.startswith("needs") else "left out beyond"
        axis.annotate(
            f"{name}: {why}",
            (time, at),
            xytext=(-6, 9),
            textcoords="offset points",
            ha="right",
            color=colours[name],
            fontsize=10,
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


def style(axis: Any, times: Sequence[int]) -> None:
    """Log axes with plain numbers, and nothing that is no ink for data."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(times, [f"{time:,}".replace(",", "\u202f") for time in times])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))
    axis.set_xlabel("steps T", color=INK)
    axis.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(length=0, colors=INK)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(FAINT)


def spread_out(
    axis: Any, ends: Sequence[tuple[str, int, float]]
) -> list[tuple[str, int, float, float]]:
    """The ends of lines, each with a height for its name so that no two names overlap."""
    to_axes = axis.transData + axis.transAxes.inverted()
    placed: list[tuple[str, int, float, float]] = []
    for name, time, seconds in sorted(ends, key=lambda end: end[2]):
        height = float(to_axes.transform((time, seconds))[1])
        if placed:
            height = max(height, placed[-1][3] + APART)
        placed.append((name, time, seconds, height))
    return placed
