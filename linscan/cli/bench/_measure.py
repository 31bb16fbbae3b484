"""Every way of doing a job, at one shape: first whether it is right, then how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isfinite
from statistics import median, quantiles
from typing import Any, NamedTuple

import numpy as np

from linscan._dispatch import registry
from linscan._protocol import BackendUnsupported
from linscan.cli._error import largest_error
from linscan.cli.bench import _machine as machine
from linscan.cli.bench import _schemes as schemes
from linscan.cli.bench._jobs import Scheme, Setting, Work, double, make

CHUNKS = (64, 128, 256)
SERIAL, MATRIX = "serial", "matrix"
ROWS = 8
"""How many rows are compared with the definition, evenly spread."""
SAMPLE = 0.002
"""Shorter calls are repeated for so many seconds, and their time is averaged."""
TURNS = 3, 15
"""How often the ways take turns: at least, and at most."""


class Way(NamedTuple):
    """One way of doing a job."""

    name: str
    compute: Callable[[Work], tuple[Any, ...]]
    ours: bool
    """Whether it is one of linscan's backends."""


@dataclass(slots=True)
class Result:
    """How a way fared at a shape."""

    way: str
    ours: bool
    rows: int
    time: int
    reason: str | None = None
    """Why there are no figures."""
    seconds: list[float] = field(default_factory=list)
    """Of one call, every time it was measured."""
    times_copy: float | None = None
    """The median of its time in copies of the minimal bytes."""
    peak_bytes: int | None = None
    """The most memory it held beyond its inputs; the results are part of it."""
    error: float | None = None
    """Against float64: the largest, in proportion to the largest magnitude in its row."""
    allowed: float | None = None
    """The largest error that counts as agreement."""

    @property
    def agrees(self) -> bool:
        """Whether the result is right; so is one that was not computed."""
        return self.error is None or self.allowed is None or self.error <= self.allowed

    @property
    def median(self) -> float | None:
        """The median time."""
        return median(self.seconds) if self.seconds else None

    @property
    def spread(self) -> float | None:
        """Half of the distance between the quartiles, in proportion to the median."""
        if len(self.seconds) < 2:
            return None
        low, middle, high = quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / middle

    def figures(self) -> dict[str, Any]:
        """Everything, for a file."""
        return asdict(self) | {
            "median": self.median,
            "spread": self.spread,
            "agrees": self.agrees,
            "error": self.error if self.error is None or isfinite(self.error) else str(self.error),
        }


def ways(setting: Setting) -> Iterator[Way]:
    """The schemes, then every backend that can run here and owns the job's arrays."""
    named: dict[str, Scheme] = {SERIAL: schemes.serial, MATRIX: schemes.matrix}
    named |= {f"chunk {size}": partial(schemes.chunk, size=size) for size in CHUNKS}
    for name, scheme in named.items():
        yield Way(name, partial(Work.by_scheme, scheme=scheme), False)
    array = next(iter(make(setting, 1, 1).operands.values()))
    for name, backend in registry().items():
        if not isinstance(backend, str) and not backend.why_not() and backend.owns(array):
            yield Way(name, partial(Work.by_linscan, backend=name), True)


def warm_up(setting: Setting, ways: Sequence[Way], step: Callable[[str], None]) -> None:
    """Let every way run on a small shape: libraries are loaded and kernels compiled."""
    work = make(setting, 8, 300)
    for way in ways:
        step(f"warming up {way.name}")
        try:
            way.compute(work)
        except BackendUnsupported:
            continue


def compare(
    setting: Setting,
    rows: int,
    time: int,
    ways: Sequence[Way],
    *,
    before: Sequence[Result],
    budget: float,
    limit: float,
    step: Callable[[str], None],
) -> list[Result]:
    """Measure every way at one shape.

    A way is called once for nothing, since another shape may be another kernel to compile, and once
    more to be checked.  If that took less than a third of ``budget`` seconds, it takes turns with
    the others for as long; otherwise that one time is reported.  A way is left out if ``before``
    says that a call would take more than ``limit`` seconds.  ``step`` hears of two stages per way:
    is it right, and what does it take.
    """
    work = make(setting, rows, time)
    checked = sorted({round(i) for i in np.linspace(0, rows - 1, min(ROWS, rows))})
    exact = work.exact(checked)
    loop = loop_error(work.rows(checked), exact)

    results: list[Result] = []
    watched: dict[Way, float] = {}
    for way in ways:
        step(f"{rows}×{time}: is {way.name} right?")
        result = Result(way.name, way.ours, rows, time)
        results.append(result)
        result.reason = no_room(way, setting, rows, time) or too_long(result, before, limit)
        if result.reason:
            continue
        try:
            call = partial(way.compute, work)
            call()
            found = machine.watch(call, setting.device)
        except BackendUnsupported as error:
            result.reason = f"cannot do this: {error}"
            continue
        outputs = [work.take(x, checked) for x in found.result]
        result.error = worst(outputs, exact, setting)
        result.allowed = allowed(loop, way, setting)
        result.peak_bytes, watched[way] = found.peak_bytes, found.seconds
        del found

    take_turns(setting, work, ways, results, watched, budget, step)
    return results


def take_turns(
    setting: Setting,
    work: Work,
    ways: Sequence[Way],
    results: Sequence[Result],
    watched: dict[Way, float],
    budget: float,
    step: Callable[[str], None],
) -> None:
    """Time the ways and a copy in turns, again and again: the machine's speed drifts."""
    rows, time = results[0].rows, results[0].time
    device = setting.device
    copy = machine.copier(setting, setting.bytes(rows, time))
    copy()
    copies_at_once = repeat(machine.seconds(copy, 1, device))
    calls = {way: partial(way.compute, work) for way in watched if watched[way] <= budget / 3}
    repeats, turns = {}, {}
    for way, call in calls.items():
        seconds = machine.seconds(call, 1, device)
        repeats[way] = repeat(seconds)
        turns[way] = int(np.clip(budget / (repeats[way] * seconds), *TURNS))

    by_way = dict(zip(ways, results, strict=True))
    copies: list[float] = []
    for turn in range(max(turns.values(), default=TURNS[0])):
        copies.append(machine.seconds(copy, copies_at_once, device))
        for way, call in calls.items():
            if turn < turns[way]:
                by_way[way].seconds.append(machine.seconds(call, repeats[way], device))
    for way, result in by_way.items():
        step(f"{rows}×{time}: timed {way.name}")
        if way in watched:
            ratios = [x / copy for x, copy in zip(result.seconds, copies, strict=False)]
            result.seconds = result.seconds or [watched[way]]
            result.times_copy = median(ratios or [watched[way] / median(copies)])


def repeat(seconds: float) -> int:
    """How often a call that takes so long runs for one sample."""
    return max(1, round(SAMPLE / seconds))


def worst(found: Sequence[Any], exact: Sequence[Any], setting: Setting) -> float:
    """The largest error in any of the results; NaN if any is."""
    pairs = zip(found, exact, strict=True)
    return float(np.max([largest_error(double(x), y, setting.axis) for x, y in pairs]))


def loop_error(work: Work, exact: Sequence[Any]) -> float:
    """The serial loop's error.

    In float64 the definition is no better than the loop: there it is twice what float32 makes one
    expect, for both of them.  The data are float32 numbers in any case.
    """
    setting = work.setting
    if setting.dtype != "float64":
        return worst(work.by_scheme(schemes.serial), exact, setting)
    narrow = work.cast("float32").by_scheme(schemes.serial)
    return 2 * 2.0**-29 * worst(narrow, exact, setting)


def allowed(loop: float, way: Way, setting: Setting) -> float:
    """Twice the serial loop's error and one ulp; four times and four where sums are in tiles."""
    slack = 2 if way.ours and setting.device == "cpu" else 4
    ulp = 2.0**-7 if setting.dtype == "bfloat16" else float(np.finfo(setting.dtype).eps)
    return slack * loop + (slack if slack > 2 else 1) * ulp


def no_room(way: Way, setting: Setting, rows: int, time: int) -> str | None:
    """Why the memory does not suffice, or None; it is asked of the matrix only."""
    if way.name != MATRIX:
        return None
    size = max(4, setting.itemsize)
    needed = schemes.matrix_bytes(rows, time, size, setting.constant)
    free = machine.free_bytes(setting.device)
    if free is None or needed <= free / 2:
        return None
    return f"needs {readable_bytes(needed)}, and of {readable_bytes(free)} free it may take half"


def too_long(result: Result, before: Sequence[Result], limit: float) -> str | None:
    """Why it would take too long, or None: by what it took at the largest shape so far."""
    same = [x for x in before if x.way == result.way and x.seconds]
    if not same:
        return None
    last = same[-1]
    growth = result.rows * result.time / (last.rows * last.time)
    if result.way == MATRIX:
        growth *= result.time / last.time
    expected = growth * median(last.seconds)
    if expected <= limit:
        return None
    return (
        f"would take some {expected:.3g} s, by its {median(last.seconds):.2g} s at "
        f"{last.rows}×{last.time}; --limit {limit:g} leaves it out"
    )


def readable_bytes(count: float) -> str:
    """A size to three digits."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB" if count < 1000 else f"{count / 1024:.3g} TiB"
