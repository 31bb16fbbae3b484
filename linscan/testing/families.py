"""Calls of every other estimator, made of those of GAE and λ-returns and what each has alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from linscan.testing.problems import Array, rounded
from linscan.testing.rollouts import Kind, Rollout, known, rollout

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "vtrace": ("vtrace", {}),
    "leaky vtrace": ("vtrace", {"rho_clip": 1.5, "c_clip": 0.75, "pg_rho_clip": 2.0, "leak": 0.25}),
    "retrace": ("retrace", {}),
    "importance": ("retrace", {"kind": "importance"}),
    "tree-backup": ("retrace", {"kind": "tree-backup"}),
    "harutyunyan": ("retrace", {"kind": "harutyunyan"}),
    "peng": ("q_lambda", {}),
    "watkins": ("q_lambda", {"kind": "watkins"}),
    "upgo": ("upgo", {}),
    "1 step": ("n_step_returns", {"n": 1}),
    "5 steps": ("n_step_returns", {"n": 5}),
    "45 steps": ("n_step_returns", {"n": 45}),
    "traces": ("eligibility_traces", {}),
    "turns by end": ("turn_gae", {}),
    "turns by start": ("turn_gae", {"variant": "start"}),
    "turns": ("turn_gae", {"variant": "turn"}),
    "tokens": ("turn_gae", {"variant": "token"}),
}
"""A name for each way of calling an estimator: the estimator, and its options."""

RENAMED = {
    "retrace": {"values": "q_values", "next_values": "expected_next_q"},
    "q_lambda": {"next_values": "next_q_max"},
    "eligibility_traces": {"rewards": "x"},
}
"""What an estimator calls the arguments of the others."""

GIVEN_NEXT = ("retrace", "q_lambda", "n_step_returns", "eligibility_traces")
"""These take no other values of what follows."""


def suits(case: str, kind: Kind) -> bool:
    """Whether the estimator takes all of it together."""
    name = CASES[case][0]
    if kind.lam_returns or not kind.suits("gae"):
        return False
    if name in GIVEN_NEXT:
        taken = kind.source == "next" and kind.truncation in ("none", "values")
    else:
        taken = name != "turn_gae" or (kind.source != "next" and kind.truncation == "none")
    has_masked = name not in ("n_step_returns", "turn_gae")
    return taken and (has_masked or kind.layout != "mask-carry")


@cache
def call_of(
    case: str,
    kind: Kind,
    rows: int = 3,
    time: int = 65,
    dtype: str = "float32",
    axis: int = 1,
    seed: int = 0,
) -> Rollout:
    """One drawn at random, with the reference's results.  What must not be read is NaN."""
    name, options = CASES[case]
    has_values = name not in ("q_lambda", "n_step_returns", "eligibility_traces")
    base = rollout("gae" if has_values else "td_lambda", kind, rows, time, dtype, axis, seed)
    args = {**base.args, **options}
    rng = np.random.default_rng([seed, rows, time, len(case)])
    shape = args["rewards"].shape
    unread = np.isnan(args["rewards"])

    def some(*, often: float = 0.5, step: bool = False) -> Array:
        """Weights about 0."""
        size = tuple(n if i == axis else 1 for i, n in enumerate(shape)) if step else shape
        x = rounded(often * rng.standard_normal(size), "float32" if dtype != "float64" else dtype)
        return x if step else np.where(unread, np.nan, x)

    if name == "vtrace":
        args["log_rhos"] = some()
    elif name == "upgo":
        args["rhos"] = np.exp2(np.round(some()))
    elif name == "retrace":
        args["log_rhos"] = None if case in ("tree-backup", "harutyunyan") else some()
        args["log_pi"] = -np.abs(some(step=True)) if case == "tree-backup" else None
    elif case == "watkins":
        args["greedy_next"] = rng.random(shape) < 0.7
    elif name == "turn_gae":
        args["turn_ids"] = np.cumsum(rng.random(shape) < 0.2, axis=axis) % 3
        args |= {"gamma_turn": 0.9375, "lam_turn": 0.75}
    if name in ("upgo", "n_step_returns"):
        del args["lam"]
    if name in ("n_step_returns", "turn_gae"):
        args.pop("masked", None)
    if name == "eligibility_traces":
        del args["next_values"]
    renamed = RENAMED.get(name, {})
    return known(name, {renamed.get(key, key): x for key, x in args.items()}, dtype)
