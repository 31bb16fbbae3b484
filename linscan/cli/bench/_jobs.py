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
        return self.job != "scan" and self.mask == 1 and self.episode == float("inf")

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


def recurrence(scheme: Scheme, operands: dict[str, Any]) -> tuple[Any, ...]:
    """A plain scan."""
    a = operands.get("a", GAMMA * LAM)
    return (scheme(a, operands["b"], False),)


def estimator(
    decay: float,
    inputs: Callable[[Any, Any, Any], Any],
    outputs: Callable[[Any, Any], tuple[Any, ...]],
) -> Callable[[Scheme, dict[str, Any]], tuple[Any, ...]]:
    """A recurrence from the end, over transitions.

    ``inputs`` makes b of rewards, values and the values of the steps that follow; ``outputs`` makes
    the results of x and values.  A masked step passes on what it gets: a = 1, b = 0.
    """

    def solve(scheme: Scheme, operands: dict[str, Any]) -> tuple[Any, ...]:
        rewards, values = operands["rewards"], operands.get("values")
        terminated, mask = operands.get("terminated"), operands.get("mask")
        xp = library(rewards)
        after = None if values is None else following(values, mask)
        a: Any = decay
        if terminated is not None:
            after = None if after is None else xp.where(terminated, 0, after)
            a = xp.where(terminated, xp.zeros_like(rewards), decay)
        b = inputs(rewards, values, after)
        if mask is not None:
            a = xp.where(mask, decay * xp.ones_like(rewards) if terminated is None else a, 1)
            b = xp.where(mask, b, 0)
        results = outputs(scheme(a, b, True), values)
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


JOBS = {
    "gae": Job(
        linscan.gae,
        reference.gae,
        ("rewards", "values"),
        4,
        {"gamma": GAMMA, "lam": LAM},
        estimator(
            GAMMA * LAM,
            lambda reward, value, after: reward + GAMMA * after - value,
            lambda x, value: (x, x + value),
        ),
    ),
    "returns": Job(
        linscan.discounted_returns,
        reference.discounted_returns,
        ("rewards",),
        2,
        {"gamma": GAMMA},
        estimator(GAMMA, lambda reward, value, after: reward, lambda x, value: (x,)),
    ),
    "td_lambda": Job(
        linscan.td_lambda,
        reference.td_lambda,
        ("rewards", "values"),
        3,
        {"gamma": GAMMA, "lam": LAM},
        estimator(
            GAMMA * LAM,
            lambda reward, value, after: reward + GAMMA * (1 - LAM) * after,
            lambda x, value: (x,),
        ),
    ),
    "scan": Job(
        linscan.scan,
        lambda **operands: reference.serial(**operands)[0],
        ("a", "b"),
        3,
        {},
        recurrence,
        episodes=False,
    ),
    "decay": Job(
        linscan.scan,
        lambda **operands: reference.serial(**operands)[0],
        ("b",),
        2,
        {"a": GAMMA * LAM},
        recurrence,
        episodes=False,
    ),
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
    """Standard normal numbers; multipliers between 0.9 and 1; flags at valid steps only."""
    random = np.random.default_rng(0)
    shape = (time, rows) if setting.time_first else (rows, time)
    drawn: dict[str, Any] = {}
    for name in JOBS[setting.job].operands:
        if name == "a":
            drawn[name] = 0.9 + 0.1 * random.random(shape, np.float32)
        else:
            drawn[name] = random.standard_normal(shape, np.float32)
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
