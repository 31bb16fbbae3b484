"""The table with which the chunk scan for GAE was published in 2025, and the same by linscan."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from linscan.cli.bench._measure import MATRIX, Result
from linscan.cli.bench._report import label, ratio

PUBLISHED = {
    (128, 65536): {
        "serial": 2.902570,
        "chunk 64": 0.232986,
        "chunk 128": 0.017645,
        "chunk 256": 0.009134,
    },
    (256, 131072): {
        "serial": 5.935994,
        "chunk 64": 0.070122,
        "chunk 128": 0.034059,
        "chunk 256": 0.018390,
    },
}
"""Seconds, by rows and steps."""
NOTE = (
    "Published: float32 on a GPU that is not named, one call each without a warm-up, so that "
    "0.232986 s may hold a library's start (slime, pull request 850). Published figures and ours "
    "come from different machines: compare within a column.\n"
)
QUICK = 16


def shapes(quick: bool) -> list[tuple[int, int]]:
    """Those of the table; quickly, a 16th of the rows and of the steps."""
    scale = QUICK if quick else 1
    return [(rows // scale, time // scale) for rows, time in PUBLISHED]


def table(results: Sequence[Result], machine: dict[str, str], quick: bool) -> Table:
    """Seconds as published and as measured, with the speed against the loop."""
    ways = {result.way: result for result in results if result.way != MATRIX}
    found = {(result.rows, result.time, result.way): result.median for result in results}
    title = f"\nGAE, float32: seconds of a call. Here: {machine['device']}"
    rows = Table(title=title, title_justify="left")
    rows.add_column("", no_wrap=True)
    for shape in shapes(quick):
        name = "×".join(map(str, shape))
        headings = [f"{name} here", "speed"] if quick else [f"{name} published", "here", "speed"]
        for heading in headings:
            rows.add_column(heading, justify="right")
    for way, result in ways.items():
        cells = []
        for published, shape in zip(PUBLISHED.values(), shapes(quick), strict=True):
            seconds, serial = found[(*shape, way)], found[(*shape, "serial")]
            if not quick:
                cells.append(f"{published[way]:.6f}" if way in published else "")
            cells.append("left out" if seconds is None else f"{seconds:.6f}")
            cells.append(f"{ratio(serial / seconds)} ×" if serial and seconds else "")
        rows.add_row(label(result), *cells)
    return rows
