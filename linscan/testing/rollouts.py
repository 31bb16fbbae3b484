"""Estimator calls with known answers: arguments that their dtype holds exactly, float64 results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from linscan import reference
from linscan.testing.engines import SIXTEEN_BITS, Engine
from linscan.testing.problems import Array, rounded

NAMES = ("gae", "discounted_returns", "td_lambda")
SOURCES = ("none", "longer", "last", "next")
"""Where the value after the last step comes from: nowhere, values of length T + 1, and so on."""
TRUNCATIONS = ("none", "values", "zero", "current_value")
"""What truncated steps lead to."""
LAYOUTS = ("whole", "mask", "mask-carry", "lengths", "packed", "packed-mask")
DECAYS = ("number", "row", "step", "full")

DATA = (
    *("rewards", "values", "next_values", "last_values", "truncation_values"),
    *("x", "q_values", "expected_next_q", "next_q_max"),
)
WITHOUT_TIME = ("last_values", "lengths", "cu_seqlens")

TOLERANCE = {
    # Results are rounded once, from float32; a tenth more for its own error.
    "float16": 1.1 * 2.0**-11,
    "bfloat16": 1.1 * 2.0**-8,
    # A step rounds some five times, and is forgotten after some twenty.
    "float32": 64 * 2.0**-24,
    "float64": 64 * 2.0**-53,
}
"""The largest error, in units of the largest result in the row."""


class Kind(NamedTuple):
    """What a call has, besides rewards, values, gamma and lam."""

    source: str = "last"
    truncation: str = "values"
    terminated: bool = True
    layout: str = "whole"
    decay: str = "number"
    lam_returns: bool = False

    def suits(self, name: str) -> bool:
        """Whether the estimator takes all of it together."""
        if name != "gae" and self.lam_returns:
            return False
        if self.layout.startswith("packed") and self.source == "longer":
            return False
        if name == "discounted_returns":
            return self.source in ("none", "last") and self.truncation != "current_value"
        return not (
            name == "td_lambda" and self.source == "next" and self.truncation == "current_value"
        )


@dataclass(frozen=True, eq=False)
class Rollout:
    """The arguments of one call in float64, and its results."""

    name: str
    dtype: str
    args: dict[str, Any]
    expected: tuple[Array, ...]

    @property
    def axis(self) -> int:
        """The time axis."""
        return int(self.args["axis"])


@cache
def rollout(
    name: str,
    kind: Kind,
    rows: int = 3,
    time: int = 65,
    dtype: str = "float32",
    axis: int = 1,
    seed: int = 0,
) -> Rollout:
    """One drawn at random; the same for the same arguments.  What must not be read is NaN.

    A flag in a hole is a case of its own: here flags stand on valid steps.
    """
    rng = np.random.default_rng([seed, rows, time])
    shape = (rows, time)
    valued = name == "gae" or (name == "td_lambda" and kind.source != "next")

    def some(*size: int) -> Array:
        return rounded(rng.standard_normal(size), dtype)

    def marks(rate: float) -> Array:
        return rng.random(shape) < rate

    args: dict[str, Any] = {"rewards": some(*shape), "axis": 1}
    read = valid = np.ones(shape, bool)
    if "mask" in kind.layout:
        args["mask"] = read = valid = ~marks(0.3)
        valid[:1, 20:50] = False
        valid[1:2] = False
        args["masked"] = "carry" if kind.layout == "mask-carry" else "zero"
    if kind.layout == "lengths":
        lengths = args["lengths"] = rng.integers(0, time + 1, rows)
        valid = np.arange(time) < lengths[:, None]
        read = valid if kind.source != "longer" else np.arange(time) <= lengths[:, None]
    if kind.layout.startswith("packed"):
        inner = np.sort(rng.integers(0, time + 1, 4))
        args["cu_seqlens"] = np.array([0, 0, *inner, time])

    ends = cuts = np.zeros(shape, bool)
    if kind.terminated:
        args["terminated"] = ends = marks(0.1) & valid
    if kind.truncation != "none":
        args["truncated"] = cuts = marks(0.1) & valid
    if kind.truncation == "values" and kind.source != "next":
        args["truncation_values"] = np.where(cuts & ~ends, some(*shape), np.nan)
    elif kind.truncation not in ("none", "values"):
        args["on_missing_bootstrap"] = kind.truncation

    if kind.source == "next":
        args["next_values"] = np.where(valid & ~ends, some(*shape), np.nan)
    elif kind.source == "last":
        segments = (len(args["cu_seqlens"]) - 1,) if "cu_seqlens" in args else ()
        args["last_values"] = some(*segments, rows)
    if valued:
        args["values"] = some(rows, time + (kind.source == "longer"))
        if kind.layout != "mask-carry":
            args["values"][:, :time][~read] = np.nan
    args["rewards"][~valid] = np.nan

    size = {"number": None, "row": (rows, 1), "step": (1, time), "full": shape}[kind.decay]
    args["gamma"] = 0.96875 if size is None else rounded(rng.uniform(0.8, 1, size), dtype)
    if name != "discounted_returns":
        args["lam"] = 0.9375 if size is None else rounded(rng.uniform(0.7, 1, size), dtype)
    if kind.lam_returns:
        args["lam_returns"] = 1.0
    if axis == 0:
        args = {key: _time_first(key, x) for key, x in args.items()} | {"axis": 0}
    return known(name, args, dtype)


def _time_first(key: str, x: Any) -> Any:
    return x.T.copy() if isinstance(x, np.ndarray) and key not in WITHOUT_TIME else x


def known(name: str, args: dict[str, Any], dtype: str = "float32") -> Rollout:
    """A call with the reference's results."""
    results = getattr(reference, name)(**args)
    return Rollout(name, dtype, args, results if isinstance(results, tuple) else (results,))


def call(engine: Engine, r: Rollout, **options: Any) -> tuple[Any, ...]:
    """The results of the engine."""
    results = engine.estimate(r.name, **arguments(engine, r), **options)
    return tuple(results) if isinstance(results, tuple) else (results,)


def arguments(engine: Engine, r: Rollout) -> dict[str, Any]:
    """Its arguments as the engine's arrays.  A decay is never a 16-bit one."""

    def array(key: str, x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        dtype = "float32" if key not in DATA and r.dtype in SIXTEEN_BITS else r.dtype
        return engine.array(x, dtype if x.dtype == np.float64 else None)

    return {key: array(key, x) for key, x in r.args.items()}


def check(engine: Engine, r: Rollout) -> None:
    """The engine's results are the known ones."""
    results = call(engine, r)
    assert {engine.dtype_of(x) for x in results} == {r.dtype}
    compare(r, tuple(map(engine.numpy, results)))


def compare(r: Rollout, results: tuple[Array, ...]) -> None:
    """Results are the known ones, to the tolerance of their dtype."""
    largest = np.abs(np.concatenate(r.expected, r.axis)).max(r.axis, keepdims=True, initial=0)
    for got, expected in zip(results, r.expected, strict=True):
        assert got.shape == expected.shape
        assert np.isfinite(expected).all(), "the rollout is at fault"
        bound = np.broadcast_to(TOLERANCE[r.dtype] * largest, expected.shape)
        wrong = ~(np.abs(got - expected) <= bound)
        if wrong.any():
            at = tuple(int(i[0]) for i in np.nonzero(wrong))
            raise AssertionError(
                f"{int(wrong.sum())} of {wrong.size} elements are off; the first is at {at}: "
                f"{got[at]}, not {expected[at]} (allowed {bound[at]:.3g})"
            )
