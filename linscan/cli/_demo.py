"""``linscan demo``: the returns of a recorded rollout by every backend, checked and timed."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

import linscan
from linscan.cli._compare import ESTIMATORS, GAMMA, LAM, LOOP, Result, exact, measure, ways
from linscan.cli._rollout import Rollout, load, read, repeat

ULP = float(np.finfo(np.float32).eps)


def run(times: int = 32, columns: int = 2) -> int:
    """Compute, check and print; the exit code is 0 if every result is as the reference says."""
    console = Console(highlight=False)
    recorded = load()
    rollout = repeat(recorded, times, columns)
    console.print(describe(recorded, rollout), soft_wrap=True)

    results = []
    work = [(estimator, way) for estimator in ESTIMATORS for way in ways()]
    truth = {estimator: exact(estimator, rollout) for estimator in ESTIMATORS}
    for estimator, way in track(work, "Computing", console=console, transient=True):
        results.append(measure(way, estimator, rollout, truth[estimator]))
    loops = {result.estimator: result for result in results if result.way.backend == LOOP}
    console.print(table(results, loops))
    for name, reason in linscan.backends().items():
        if reason is not None:
            console.print(f"Left out: {name}: {escape(reason)}", soft_wrap=True)

    wrong = [result for result in results if not agrees(result, loops[result.estimator])]
    console.print(f"\n{verdict(results, wrong)}", soft_wrap=True)
    return 1 if wrong else 0


def describe(recorded: Rollout, rollout: Rollout) -> str:
    """What the demo works on."""
    steps, environments = recorded.rewards.shape
    long, wide = rollout.rewards.shape
    tasks = ", ".join(dict.fromkeys(read()["task"]))
    return (
        f"Recorded from Gymnasium: {steps} steps of {environments} environments ({tasks}) with "
        f"{recorded.terminated.sum()} terminations, {recorded.truncated.sum()} truncations by time "
        f"limits, and a critic's values; here repeated to {long} steps of {wide}, "
        f"γ = {GAMMA}, λ = {LAM}, float32."
    )


def table(results: list[Result], loops: dict[str, Result]) -> Table:
    """A row for each result."""
    rows = Table()
    for heading in ("estimator", "backend", "array"):
        rows.add_column(heading, no_wrap=True)
    for heading in ("time", "speed", "largest error"):
        rows.add_column(heading, no_wrap=True, justify="right")
    for before, result in zip([None, *results], results, strict=False):
        starts = before is None or before.estimator != result.estimator
        if starts:
            rows.add_section()
        loop = loops[result.estimator]
        rows.add_row(
            result.estimator if starts else "",
            *result.way,
            f"{1e3 * result.seconds:.2f} ms",
            f"{loop.seconds / result.seconds:.3g} ×",
            f"{result.error:.1e}" if agrees(result, loop) else f"[red]{result.error:.1e}[/]",
        )
    return rows


def agrees(result: Result, loop: Result) -> bool:
    """Whether the error is at most twice the loop's, and one unit in the last place."""
    return result.error <= 2 * loop.error + ULP


def verdict(results: list[Result], wrong: list[Result]) -> str:
    """What was verified, or what turned out wrong."""
    if wrong:
        return "\n".join(
            f"[red]Wrong:[/] {r.estimator} by {r.way.backend} on {r.way.library} arrays is off by "
            f"{r.error:.1e} of the largest magnitude in its column."
            for r in wrong
        )
    backends = ", ".join(dict.fromkeys(r.way.backend for r in results if r.way.backend != LOOP))
    return (
        f"Verified: {', '.join(ESTIMATORS)} by {backends} agree with the float64 reference, the "
        "error nowhere above twice the loop's plus one unit in the last place (in proportion to "
        "the largest magnitude in the column)."
    )
