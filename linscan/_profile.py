"""``profile``: how much of a block of code the calls of linscan took.

A public function asks whether :data:`active` holds anything, and else goes on as if this module
were not there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident, local
from time import perf_counter
from typing import NamedTuple, ParamSpec, TypeVar

from linscan._tracked import in_graph

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Calls:
    """The calls of one function."""

    count: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Profile:
    """What :func:`profile` found; printing it reads well."""

    seconds: float = 0.0
    """The wall time of the block."""
    functions: dict[str, Calls] = field(default_factory=dict)
    """The calls of each function of linscan, by its name."""

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return sum(calls.count for calls in self.functions.values())

    @property
    def seconds_inside(self) -> float:
        """The wall time that passed inside them."""
        return sum(calls.seconds for calls in self.functions.values())

    @property
    def share(self) -> float:
        """Their part of the block, between 0 and 1."""
        return self._share(self.seconds_inside)

    def _share(self, seconds: float) -> float:
        return seconds / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        lines = [
            f"linscan: {readable(self.seconds_inside)} of {readable(self.seconds)} "
            f"({self.share:.2%}), {_count(self.calls)}"
        ]
        width = max(map(len, self.functions), default=0)
        for name, calls in sorted(self.functions.items(), key=lambda item: -item[1].seconds):
            lines.append(
                f"  {name:{width}}  {readable(calls.seconds):>9}  "
                f"{self._share(calls.seconds):7.2%}  {_count(calls.count)}"
            )
        return "\n".join(lines)


class Running(NamedTuple):
    """A block that is being profiled."""

    report: Profile
    thread: int
    sync: bool


active: list[Running] = []
"""The blocks that are being profiled, in all threads."""

_inside = local()


@contextmanager
def profile(*, sync: bool = False) -> Iterator[Profile]:
    """Report how much of a block the calls of :func:`scan` and of the estimators took.

    The times are wall times, and the calls are those of the thread that entered the block.  A call
    that linscan itself makes is part of the one that made it.  Not seen are calls in a graph that
    torch compiled, and the way back through autograd.

    Args:
        sync: Wait for torch's devices before and after every call, and at both ends of the block.
            Without it nothing waits, and a call on a device takes as long as its launch.

    Returns:
        A context manager whose target, a report, holds the calls at once and the time of the block
        when it has ended.

    >>> with linscan.profile() as report:
    ...     x = linscan.scan(0.5, np.ones(3))
    ...     y = linscan.scan(0.5, x)
    >>> report.calls, list(report.functions), 0 < report.share < 1
    (2, ['scan'], True)
    """
    running = Running(Profile(), get_ident(), sync)
    _wait([running])
    start = perf_counter()
    active.append(running)
    try:
        yield running.report
    finally:
        active[:] = [other for other in active if other is not running]
        _wait([running])
        running.report.seconds = perf_counter() - start


def counts() -> bool:
    """Whether a call that begins now is to be timed: nobody times it yet, and no graph records."""
    return not getattr(_inside, "call", False) and not in_graph()


def timed(function: Callable[P, T], name: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of the call, which every block in this thread counts under that name."""
    running = [block for block in active if block.thread == get_ident()]
    _inside.call = True
    try:
        _wait(running)
        start = perf_counter()
        result = function(*args, **kwargs)
        _wait(running)
        seconds = perf_counter() - start
    finally:
        _inside.call = False
    for block in running:
        calls = block.report.functions.setdefault(name, Calls())
        calls.count += 1
        calls.seconds += seconds
    return result


def _wait(running: list[Running]) -> None:
    """Let torch's devices finish, if any block asks for it."""
    torch = sys.modules.get("torch")
    if torch is None or not any(block.sync for block in running):
        return
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def readable(seconds: float) -> str:
    """A time to three digits, in a unit that suits it."""
    unit, size = next(
        ((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= size), ("µs", 1e-6)
    )
    value = seconds / size
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def _count(calls: int) -> str:
    return f"{calls} call" if calls == 1 else f"{calls} calls"
