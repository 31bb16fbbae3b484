"""The table with which the chunk scan for GAE was published in 2025, and the same by linscan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


def tables(results: Sequence[Result], quick: bool) -> Iterator[Table]:
    """Seconds as published and as measured, with the speed against the loop, for each shape."""
    for published, (rows, time) in zip(PUBLISHED.values(), shapes(quick), strict=True):
        title = f"\n{rows}×{time}, seconds of a call"
        table = Table(title=title, title_justify="left")
        for heading in ("", *(() if quick else ("published",)), "here", "speed"):
            table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
        found = {x.way: x for x in results if (x.rows, x.time) == (rows, time) and x.way != MATRIX}
        serial = found["serial"].median
        for way, result in found.items():
            seconds = result.median
            table.add_row(
                label(result),
                *(() if quick else (f"{published[way]:.6f}" if way in published else "",)),
                "left out" if seconds is None else f"{seconds:.6f}",
                f"{ratio(serial / seconds)} ×" if serial and seconds else "",
            )
        yield table
