"""The table with which the chunk scan for GAE was published in 2025, and the same by linscan."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from linscan.cli.bench_measure import Result

COLUMNS = ("serial", "chunk 64", "chunk 128", "chunk 256")
PUBLISHED = {
    (128, 65536): (2.902570, 0.232986, 0.017645, 0.009134),
    (256, 131072): (5.935994, 0.070122, 0.034059, 0.018390),
}
"""Seconds, in the order of the columns."""
NOTE = (
    "Published: float32 on a GPU that is not named, one call each without a warm-up, so that "
    "0.233 s may hold the start of a library (slime, pull request 850).  Those figures and the "
    "ones measured here come from different machines: compare along a line, not across them.\n"
)
QUICK = 16


def shapes(quick: bool) -> list[tuple[int, int]]:
    """Those of the table; quickly, a 16th of the rows and of the steps."""
    scale = QUICK if quick else 1
    return [(rows // scale, time // scale) for rows, time in PUBLISHED]


def table(results: Sequence[Result], machine: dict[str, str], quick: bool) -> Table:
    """Published and measured, line by line; linscan's backends are columns of their own."""
    backends = list(dict.fromkeys(result.way for result in results if result.ours))
    found = {(result.rows, result.time, result.way): result for result in results}
    rows = Table(title=f"GAE, float32, measured on {machine['device']}", title_justify="left")
    for heading in ("B×T", "seconds"):
        rows.add_column(heading, no_wrap=True)
    for heading in (*COLUMNS, *(f"linscan {name}" for name in backends)):
        rows.add_column(heading, justify="right")
    for published, here in zip(PUBLISHED, shapes(quick), strict=True):
        rows.add_section()
        if not quick:
            figures = (f"{seconds:.6f}" for seconds in PUBLISHED[published])
            rows.add_row("×".join(map(str, here)), "published", *figures)
        measured = [found[(*here, way)] for way in (*COLUMNS, *backends)]
        rows.add_row(
            "×".join(map(str, here)) if quick else "",
            "here",
            *(f"{x.median:.6f}" if x.median is not None else "left out" for x in measured),
        )
        serial = measured[0].median
        if serial is not None:
            ratios = (serial / x.median if x.median else None for x in measured)
            rows.add_row("", "× faster", *("" if x is None else f"{x:.3g}" for x in ratios))
    if quick:
        rows.caption = "--quick: a 16th of the rows and of the steps; no figures are published."
    return rows
