"""What ``linscan bench`` can run: the data, linscan's call, the definition, and ``x = a·x' + b``.

Every job is given three times: as a call of linscan, as a call of ``linscan.reference``, and as a
recurrence between elementwise passes, which is what the schemes solve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import linscan
from linscan import reference
from linscan.cli.bench._schemes import library

GAMMA, LAM = 0.99, 0.95

Scheme = Callable[[Any, Any, bool], Any]
"""From (a, b, reverse) to x, with time last."""


class Setting(NamedTuple):
    """How a job is put: the same for all shapes."""

    job: str = "gae"
    dtype: str = "float32"
    arrays: str = "numpy"
    device: str = "cpu"
    time_first: bool = False
    mask: float = 1.0
    """The share of steps that are valid; 1 passes no mask."""
    episode: float = float("inf")
    """The mean number of steps to a termination; infinity passes no flags."""

    @property
    def axis(self) -> int:
        """The axis of time."""
        return 0 if self.time_first else -1

    @property
    def constant(self) -> bool:
        """Whether every step has the same multiplier."""
        return JOBS[self.job].constant and self.mask == 1 and self.episode == float("inf")

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize

    def bytes(self, rows: int, time: int) -> int:
        """What has to move: every input read once, every result written once."""
        job = JOBS[self.job]
        flags = (self.mask < 1) + (self.episode < float("inf"))
        return rows * time * (job.moved * self.itemsize + flags)


class Job(NamedTuple):
    """One function of linscan."""

    function: Callable[..., Any]
    reference: Callable[..., Any]
    operands: tuple[str, ...]
    moved: int
    """How many numbers per element are read and written."""
    keywords: dict[str, Any]
    solve: Callable[[Scheme, dict[str, Any]], tuple[Any, ...]]
    """The results by a scheme; everything with time last."""
    episodes: bool = True
    """Whether there are masks and flags."""
    constant: bool = True
    """Whether, without them, every step has the same multiplier."""


def recurrence(scheme: Scheme, operands: dict[str, Any]) -> tuple[Any, ...]:
    """A plain scan."""
    a = operands.get("a", GAMMA * LAM)
    return (scheme(a, operands["b"], False),)


class Rule(NamedTuple):
    """An estimator as a recurrence over valid steps, which a trace goes along until it ends."""

    a: Any
    b: Any
    outputs: Callable[[Any], tuple[Any, ...]]
    """From the states x to the results."""


class Steps(NamedTuple):
    """What an estimator works on, with time last."""

    operands: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        """An operand that the job has."""
        return self.operands[name]

    @property
    def terminated(self) -> Any:
        """Where episodes end, or None."""
        return self.operands.get("terminated")

    @property
    def mask(self) -> Any:
        """Which steps are valid, or None."""
        return self.operands.get("mask")

    @property
    def xp(self) -> Any:
        """NumPy or torch."""
        return library(self.first)

    @property
    def first(self) -> Any:
        """Any operand: all have its shape."""
        return next(iter(self.operands.values()))

    def after(self, x: Any) -> Any:
        """``x`` at the next valid step, or 0 where there is none before a termination."""
        found = following(x, self.mask)
        return found if self.terminated is None else self.xp.where(self.terminated, 0, found)


def estimator(
    rule: Callable[[Steps], Rule], reverse: bool = True
) -> Callable[[Scheme, dict[str, Any]], tuple[Any, ...]]:
    """A recurrence, from the end unless it is not ``reverse``.

    A masked step passes on what it gets, a = 1 and b = 0, and shows 0.
    """

    def solve(scheme: Scheme, operands: dict[str, Any]) -> tuple[Any, ...]:
        steps = Steps(operands)
        xp, mask, cut = steps.xp, steps.mask, steps.terminated
        a, b, outputs = rule(steps)
        if cut is not None or mask is not None:
            a = a * xp.ones_like(b)
        if mask is not None:
            a, b = xp.where(mask, a, 1), xp.where(mask, b, 0)
        if cut is not None:
            if not reverse:  # it ends before the step that follows
                cut = xp.concatenate((xp.zeros_like(cut[:, :1]), cut[:, :-1]), -1)
            a = xp.where(cut, 0, a)
        results = outputs(scheme(a, b, reverse))
        return results if mask is None else tuple(xp.where(mask, x, 0) for x in results)

    return solve


def following(values: Any, mask: Any) -> Any:
    """The value at the next step that is valid, or 0 where none is left."""
    xp = library(values)
    zero = xp.zeros_like(values[:, :1])
    if mask is None:
        return xp.concatenate((values[:, 1:], zero), -1)
    time = values.shape[-1]
    step = xp.arange(time, device=values.device)
    valid = xp.flip(xp.where(mask, step, time), (-1,))
    if xp is np:
        nearest = np.flip(np.minimum.accumulate(valid, -1), -1)
        after = np.concatenate((nearest[:, 1:], np.full((len(values), 1), time)), -1)
        return np.take_along_axis(np.concatenate((values, zero), -1), after, -1)
    nearest = xp.flip(xp.cummin(valid, -1).values, (-1,))
    after = xp.cat((nearest[:, 1:], xp.full_like(nearest[:, :1], time)), -1)
    return xp.gather(xp.cat((values, zero), -1), -1, after)


def gae(s: Steps) -> Rule:
    """The state is the advantage."""
    delta = s.rewards + GAMMA * s.after(s.values) - s.values
    return Rule(GAMMA * LAM, delta, lambda x: (x, x + s.values))


def returns(s: Steps) -> Rule:
    """The state is the return."""
    return Rule(GAMMA, s.rewards, lambda x: (x,))


def td_lambda(s: Steps) -> Rule:
    """The state is the λ-return."""
    mixed = s.rewards + GAMMA * (1 - LAM) * s.after(s.values)
    return Rule(GAMMA * LAM, mixed, lambda x: (x,))


def vtrace(s: Steps) -> Rule:
    """The state is what V-trace adds to the values."""
    rhos = s.xp.exp(s.log_rhos)
    clipped = s.xp.where(rhos < 1, rhos, 1)
    delta = clipped * (s.rewards + GAMMA * s.after(s.values) - s.values)

    def outputs(x: Any) -> tuple[Any, ...]:
        vs = s.values + x
        return vs, clipped * (s.rewards + GAMMA * s.after(vs) - s.values), x

    return Rule(GAMMA * clipped, delta, outputs)


def retrace(s: Steps) -> Rule:
    """The state is the target less Q."""
    rhos = s.xp.exp(s.log_rhos)
    expected = s.expected_next_q
    if s.terminated is not None:
        expected = s.xp.where(s.terminated, 0, expected)
    delta = s.rewards + GAMMA * expected - s.q_values
    trace = LAM * s.after(s.xp.where(rhos < 1, rhos, 1))
    return Rule(GAMMA * trace, delta, lambda x: (x + s.q_values,))


def q_lambda(s: Steps) -> Rule:
    """The state is the target."""
    best = s.next_q_max
    if s.terminated is not None:
        best = s.xp.where(s.terminated, 0, best)
    share = 1 - LAM * s.after(s.xp.ones_like(best))
    return Rule(GAMMA * LAM, s.rewards + GAMMA * share * best, lambda x: (x,))


def upgo(s: Steps) -> Rule:
    """The state is the return; it goes on where the step to come does better than its value."""
    one_step = s.rewards + GAMMA * s.after(s.values)
    better = s.after(s.xp.where(one_step >= s.values, s.xp.ones_like(one_step), 0))
    b = s.xp.where(better != 0, s.rewards, one_step)
    return Rule(GAMMA * better, b, lambda x: (x - s.values, x))


def traces(s: Steps) -> Rule:
    """The state is the trace."""
    return Rule(GAMMA * LAM, s.x, lambda x: (x,))


BOTH = {"gamma": GAMMA, "lam": LAM}
ONE = {"gamma": GAMMA}


def loop(**operands: Any) -> Any:
    """The definition of a scan."""
    return reference.serial(**operands)[0]


JOBS = {
    "gae": Job(linscan.gae, reference.gae, ("rewards", "values"), 4, BOTH, estimator(gae)),
    "returns": Job(
        linscan.discounted_returns,
        reference.discounted_returns,
        ("rewards",),
        2,
        ONE,
        estimator(returns),
    ),
    "td_lambda": Job(
        linscan.td_lambda, reference.td_lambda, ("rewards", "values"), 3, BOTH, estimator(td_lambda)
    ),
    "vtrace": Job(
        linscan.vtrace,
        reference.vtrace,
        ("log_rhos", "rewards", "values"),
        6,
        ONE,
        estimator(vtrace),
        constant=False,
    ),
    "retrace": Job(
        linscan.retrace,
        reference.retrace,
        ("rewards", "q_values", "expected_next_q", "log_rhos"),
        5,
        BOTH,
        estimator(retrace),
        constant=False,
    ),
    "q_lambda": Job(
        linscan.q_lambda,
        reference.q_lambda,
        ("rewards", "next_q_max"),
        3,
        BOTH,
        estimator(q_lambda),
    ),
    "upgo": Job(
        linscan.upgo,
        reference.upgo,
        ("rewards", "values"),
        4,
        ONE,
        estimator(upgo),
        constant=False,
    ),
    "traces": Job(
        linscan.eligibility_traces,
        reference.eligibility_traces,
        ("x",),
        2,
        BOTH,
        estimator(traces, reverse=False),
    ),
    "scan": Job(linscan.scan, loop, ("a", "b"), 3, {}, recurrence, episodes=False, constant=False),
    "decay": Job(linscan.scan, loop, ("b",), 2, {"a": GAMMA * LAM}, recurrence, episodes=False),
}


class Work(NamedTuple):
    """A job with data of some shape."""

    setting: Setting
    operands: dict[str, Any]
    """As the caller has them: in the setting's library, dtype and layout."""

    def by_linscan(self, backend: str) -> tuple[Any, ...]:
        """What a user calls."""
        job = JOBS[self.setting.job]
        keywords = job.keywords | {"axis": self.setting.axis, "backend": backend}
        return results(job.function(**self.operands, **keywords))

    def by_scheme(self, scheme: Scheme) -> tuple[Any, ...]:
        """The same by a scheme; 16-bit numbers are computed in float32 and rounded once."""
        wide = self if self.setting.itemsize > 2 else self.cast("float32")
        axis = self.setting.axis
        operands = {name: library(x).moveaxis(x, axis, -1) for name, x in wide.operands.items()}
        found = JOBS[self.setting.job].solve(scheme, operands)
        return tuple(astype(library(x).moveaxis(x, -1, axis), self.setting.dtype) for x in found)

    def cast(self, dtype: str) -> Work:
        """The same with the numbers in another dtype."""
        return Work(
            self.setting._replace(dtype=dtype),
            {name: x if name in FLAGS else astype(x, dtype) for name, x in self.operands.items()},
        )

    def rows(self, index: list[int]) -> Work:
        """The same for some rows only."""
        return Work(self.setting, {name: self.take(x, index) for name, x in self.operands.items()})

    def exact(self, index: list[int]) -> tuple[Any, ...]:
        """What the definition says about these rows, in float64."""
        job = JOBS[self.setting.job]
        operands = {name: double(x) for name, x in self.rows(index).operands.items()}
        return results(job.reference(**operands, **job.keywords, axis=self.setting.axis))

    def take(self, x: Any, index: list[int]) -> Any:
        """Some rows of an operand or a result."""
        return x[:, index] if self.setting.time_first else x[index]


FLAGS = ("terminated", "mask")


def make(setting: Setting, rows: int, time: int) -> Work:
    """Standard normal numbers; multipliers between 0.9 and 1; flags at valid steps only.

    UPGO compares: its numbers are multiples of 1/64, so that no rounding makes another outcome.
    """
    random = np.random.default_rng(0)
    shape = (time, rows) if setting.time_first else (rows, time)
    drawn: dict[str, Any] = {}
    for name in JOBS[setting.job].operands:
        if name == "a":
            drawn[name] = 0.9 + 0.1 * random.random(shape, np.float32)
        else:
            drawn[name] = random.standard_normal(shape, np.float32)
        if name == "log_rhos":
            drawn[name] /= 10
        if setting.job == "upgo":
            drawn[name] = np.round(64 * drawn[name]) / 64
    if setting.mask < 1:
        drawn["mask"] = random.random(shape, np.float32) < setting.mask
    if setting.episode < float("inf"):
        ends = random.random(shape, np.float32) < 1 / setting.episode
        drawn["terminated"] = ends & drawn.get("mask", True)
    return Work(setting, {name: convert(x, setting) for name, x in drawn.items()})


def convert(x: Any, setting: Setting) -> Any:
    """A NumPy array in the setting's library, on its device, numbers in its dtype."""
    if setting.arrays == "torch":
        import torch

        x = torch.from_numpy(x).to(setting.device)
    return x if str(x.dtype).endswith("bool") else astype(x, setting.dtype)


def astype(x: Any, dtype: str) -> Any:
    """``x`` in another dtype."""
    return x.astype(dtype, copy=False) if library(x) is np else x.to(getattr(library(x), dtype))


def double(x: Any) -> Any:
    """``x`` as a NumPy array of float64."""
    return np.asarray(x if library(x) is np else x.double().cpu(), np.float64)


def results(x: Any) -> tuple[Any, ...]:
    """The arrays that a function returned, be it one or several."""
    return tuple(x) if isinstance(x, tuple) else (x,)
