"""Writes the measured tables into the README and the documentation, from ``results/*.json``.

    python docs/benchmarks/tables.py            # after measuring
    python docs/benchmarks/tables.py --check    # are they up to date?

A line ``<!-- figures: NAME -->`` says which table follows it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
PAGES = [ROOT / "README.md", ROOT / "docs" / "performance.md"]
TABLE = re.compile(r"(?<=<!-- figures: )([\w-]+)( -->\n\n)((?:\|.*\n)*)")

README_ROWS = [
    "gae 256×131072",
    "gae 256×131072, flags",
    "gae 256×131072, mask, 10 % holes",
    "gae 256×131072, fresh results",
    "gae 2048×4096, time first",
    "gae 64×2048, fresh results",
    "scan 256×131072, full a",
    "scan 1×2²⁴, full a",
    "scan 1×2²⁴, constant a",
    "backward 128×65536, full a, fresh results",
    "gae 8×128, the whole call",
    "gae, first call, nothing compiled",
    "numpy backend 1×2²⁴, full a",
    "numpy backend 1×2²⁴, constant a",
]
UNITS = {
    "gae 8×128, the whole call": "µs",
    "gae, first call, nothing compiled": "s",
    "import linscan, after NumPy": "ms",
}


def markdown(headings: list[str], rows: Iterable[list[str]]) -> str:
    """A table whose columns are numbers, but for the first."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def budgets(chosen: list[str] | None = None) -> str:
    """Distances from the speed of memory, of some of the work or of all."""
    figures: dict[str, dict[tuple[str, str], float]] = {}
    for result in read("cpu_budgets"):
        column = result["library"], result["dtype"]
        figures.setdefault(result["work"], {})[column] = result["figure"]
    columns = [(library, d) for d in ("float32", "float64") for library in ("NumPy", "torch")]

    def unit(work: str) -> str:
        return UNITS.get(work, "ns per element" if work.startswith("numpy backend") else "× copy")

    return markdown(
        ["work", "in", *(" ".join(column) for column in columns)],
        (
            [
                work,
                unit(work),
                *(f"{figures[work][c]:.2f}" if c in figures[work] else "" for c in columns),
            ]
            for work in (chosen or figures)
            if work in figures
        ),
    )


def peers(work: str) -> str:
    """Other ways of doing ``work``, in multiples of linscan's time."""
    by_shape: dict[str, dict[str, float]] = read("cpu_peers")[work]
    ways = [way for way in next(iter(by_shape.values())) if not way.startswith("backend=")]
    ours = [way for way in ways if way.startswith("linscan")]
    others = [way for way in ways if way not in ours]

    def cells(times: dict[str, float]) -> list[str]:
        base = {
            way: times["linscan, torch" if "torch" in way else "linscan, NumPy"] for way in others
        }
        return [
            *(digits(1e6 * times[way], 4) for way in ours),
            *(digits(times[way] / base[way], 3) for way in others),
        ]

    return markdown(
        ["steps×columns" if work.endswith("time first") else "rows×steps", *ours, *others],
        ([shape, *cells(times)] for shape, times in by_shape.items()),
    )


def digits(x: float, number: int) -> str:
    """So many significant digits, at most two after the point below 1, and no exponent."""
    if x < 1:
        return f"{x:.2f}"
    return (
        f"{float(f'{x:.{number}g}'):.{number}g}"
        if x < 10**number
        else f"{float(f'{x:.{number}g}'):.0f}"
    )


def read(name: str) -> Any:
    """The figures of one script."""
    return json.loads((RESULTS / f"{name}.json").read_text())["results"]


TABLES: dict[str, Callable[[], str]] = {
    "readme-budgets": lambda: budgets(README_ROWS),
    "budgets": budgets,
    "gae": lambda: peers("GAE"),
    "gae-time-first": lambda: peers("GAE, time first"),
    "scan-constant": lambda: peers("scan, constant a"),
    "scan-full": lambda: peers("scan, full a"),
}


def updated(page: str) -> str:
    """The page with its tables made anew."""
    return TABLE.sub(lambda match: f"{match[1]}{match[2]}{TABLES[match[1]]()}", page)


def main() -> None:
    """Write the tables, or say which pages have old ones."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if any is old")
    options = parser.parse_args()
    old = {page: text for page in PAGES if updated(text := page.read_text()) != text}
    if options.check:
        sys.exit(f"old tables in {', '.join(page.name for page in old)}" if old else 0)
    for page, text in old.items():
        page.write_text(updated(text))
        print(f"{page.relative_to(ROOT)}: new tables")


if __name__ == "__main__":
    main()
