"""Faults that were reported of other projects, with the smallest input that shows each.

The ids name the reports.  Right answers are worked out by hand, or by one line of mathematics.
"""
# ruff: noqa: D103

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from linscan import reference
from linscan.testing.engines import DTYPES, Engine
from linscan.testing.problems import Array, assert_close, rounded

nan = np.nan


def results(engine: Engine, name: str, **args: Any) -> tuple[Array, ...]:
    """What the engine makes of these lists and numbers, lists of numbers as float64."""

    def array(key: str, x: Any) -> Any:
        if isinstance(x, list):
            flags = key in ("terminated", "truncated", "mask")
            x = np.array(x, bool if flags else np.float64)
        return engine.array(x) if isinstance(x, np.ndarray) else x

    found = getattr(engine, name)(**{key: array(key, x) for key, x in args.items()})
    return tuple(map(engine.numpy, found if name == "gae" else (found,)))


GAE_REPORTS: dict[str, tuple[dict[str, Any], Any]] = {
    # A bonus for ending an episode, from flags shifted by one: +95 instead of -4.
    "RoboVerse-814": (
        {"rewards": [1, 1, 1], "values": [5, 5, 100], "terminated": [0, 1, 0], "gamma": 0.99},
        [1 + 0.99 * 5 - 5 - 0.99 * 4, -4, -99],
    ),
    # The last step's advantage was wrong.
    "stable-baselines3-183": (
        {"rewards": [0, 3], "values": [0, 1], "last_values": np.array(10.0), "gamma": 0.5},
        [0.5 + 0.5 * 7, 3 + 5 - 1],
    ),
    # Episodes of one step.
    "cleanrl-16": (
        {"rewards": [1, 2], "values": [5, 7], "terminated": [1, 1], "gamma": 0.9},
        [-4, -5],
    ),
    # The second-to-last value was taken for the last one: [3, 1].
    "tf-agents-953": (
        {"rewards": [1, 1], "values": [1, 2, 10], "gamma": 1.0},
        [11, 9],
    ),
    # The value after the last step was ignored: [1, -1].
    "ElegantRL-183": (
        {"rewards": [1, 1], "values": [1, 2], "last_values": np.array(10.0), "gamma": 1.0},
        [11, 9],
    ),
    # The value after a terminal state was used: 0.98 instead of -1.
    "tianshou-869": (
        {
            "rewards": [1, 1, 1],
            "values": [2, 2, 2],
            "next_values": [2, 2, 2],
            "terminated": [0, 0, 1],
            "gamma": 0.5,
        },
        [0 + 0.5 * (0 - 0.5), 0 - 0.5, -1],
    ),
    # The next episode's value leaked through a truncation.
    "torchrl-4209": (
        {
            "rewards": [1, 1, 1, 1],
            "values": [1, 2, 100, 100],
            "truncated": [0, 1, 0, 0],
            "truncation_values": [nan, 3, nan, nan],
            "gamma": 1.0,
        },
        [2 + 2, 1 + 3 - 2, 1 + 1 - 100, 1 - 100],
    ),
    # Terminated and truncated at once: there is no value after it.
    "ray-59958": (
        {
            "rewards": [1],
            "values": [3],
            "terminated": [1],
            "truncated": [1],
            "truncation_values": [nan],
            "gamma": 1.0,
        },
        [-2],
    ),
    # The last column was always 0.
    "PufferLib-363": ({"rewards": [[7], [9]], "values": [[1], [2]], "gamma": 1.0}, [[6], [7]]),
    # Tool output in the middle, with a NaN where no token was sampled.
    "SkyRL-1635": (
        {"rewards": [1, nan, 1], "values": [2, nan, 4], "mask": [1, 0, 1], "gamma": 0.5},
        [1 + 0.5 * 4 - 2 + 0.5 * -3, 0, -3],
    ),
    # A row without a valid token.
    "OpenRLHF-1239": (
        {"rewards": [[nan, nan]], "values": [[nan, nan]], "mask": [[0, 0]], "gamma": 0.5},
        [[0, 0]],
    ),
}


@pytest.mark.parametrize("report", list(GAE_REPORTS))
def test_gae(engine: Engine, report: str) -> None:
    args, expected = GAE_REPORTS[report]
    advantages, _ = results(engine, "gae", lam=1.0, **args)
    np.testing.assert_allclose(advantages, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("mask", "rewards", "gamma", "expected"),
    [
        ([1, 0, 1], [0, 0, 1], 0.5, [0.5, 0, 1]),
        ([1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1], 1.0, [1, 1, 0, 0, 1, 1]),
    ],
)
def test_verl_7278_rewards_cross_a_tool_observation(
    engine: Engine, mask: list[int], rewards: list[int], gamma: float, expected: list[float]
) -> None:
    (returns,) = results(engine, "discounted_returns", rewards=rewards, mask=mask, gamma=gamma)
    np.testing.assert_array_equal(returns, expected)


def test_rsl_rl_151_a_truncated_step_bootstraps_from_its_final_observation(engine: Engine) -> None:
    args = {"rewards": [10], "values": [12], "truncated": [1], "gamma": 1.0, "lam": 1.0}
    _, returns = results(engine, "gae", **args, truncation_values=[2])
    np.testing.assert_array_equal(returns, [12])
    _, returns = results(engine, "gae", **args, on_missing_bootstrap="current_value")
    np.testing.assert_array_equal(returns, [22])
    _, returns = results(engine, "gae", **args, on_missing_bootstrap="zero")
    np.testing.assert_array_equal(returns, [10])


def test_ray_57683_the_value_of_a_state_before_a_terminal_step_is_used(engine: Engine) -> None:
    args = {"rewards": [0, 1], "values": [5, 1], "terminated": [0, 1], "gamma": 0.99, "lam": 0.0}
    (target,) = results(engine, "td_lambda", **args)
    np.testing.assert_allclose(target, [0.99, 1], rtol=1e-15)


def test_ray_36013_the_last_reward_is_not_lost(engine: Engine) -> None:
    zeros = [0, 0, 0, 0]
    advantages, _ = results(engine, "gae", rewards=[0, 0, 0, 8], values=zeros, gamma=0.5, lam=1.0)
    np.testing.assert_array_equal(advantages, [1, 2, 4, 8])


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_dreamerv3_102_the_bootstrap_counts_once(engine: Engine, lam: float) -> None:
    (target,) = results(
        engine, "td_lambda", rewards=[1], values=[5], last_values=np.array(8.0), gamma=0.5, lam=lam
    )
    np.testing.assert_array_equal(target, [5])


@pytest.mark.parametrize("decay", [0.0, 1e-4, 1e-9, 1e-30])
def test_torchrl_tiny_decays(engine: Engine, decay: float) -> None:
    rng = np.random.default_rng(0)
    r, v = rng.standard_normal((2, 3, 200))
    for gamma, lam in ((decay, 0.9), (0.9, decay), (decay, decay)):
        found = results(engine, "gae", rewards=r, values=v, gamma=gamma, lam=lam)
        for x, y in zip(found, reference.gae(r, v, gamma=gamma, lam=lam), strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-13)


@pytest.mark.parametrize("lam", [0.0, 1.0])
@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_tianshou_85_integer_rewards_have_floating_returns(
    engine: Engine, dtype: str, lam: float
) -> None:
    r, v = np.array([1, 0, 1]).astype(dtype), np.array([0.5, 0.25, 2.0], np.float32)
    advantages, _ = results(engine, "gae", rewards=r, values=v, gamma=0.5, lam=lam)
    expected, _ = reference.gae(r, v, gamma=0.5, lam=lam)
    np.testing.assert_allclose(advantages, expected, rtol=1e-6)
    (returns,) = results(engine, "discounted_returns", rewards=r, gamma=0.5)
    np.testing.assert_allclose(returns, [1.25, 0.5, 1.0])
    assert returns.dtype.kind == "f"


def test_pytorch_rl_365_long_memory_is_exact_to_rounding(engine: Engine) -> None:
    rng = np.random.default_rng(1)
    r, v = rng.standard_normal((2, 2, 65_536)).astype(np.float32).astype(np.float64)
    rule: dict[str, Any] = {"gamma": 1 - 2.0**-10, "lam": 1.0}
    advantages, _ = engine.gae(engine.array(r, "float32"), engine.array(v, "float32"), **rule)
    expected, _ = reference.gae(r, v, **rule)
    error = np.abs(engine.numpy(advantages) - expected).max() / np.abs(expected).max()
    assert error < 1e-5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_slime_16_bit_states_forget(engine: Engine, dtype: str) -> None:
    if dtype == "bfloat16" and engine.library == "numpy":
        pytest.skip("NumPy has no bfloat16")
    r = np.full((1, 4096), 0.125)
    x = engine.discounted_returns(engine.array(r, dtype), gamma=0.999)
    expected = 0.125 * (1 - 0.999 ** np.arange(4096, 0, -1)) / (1 - 0.999)
    assert_close(engine.numpy(x), expected[np.newaxis], dtype)


# ---------------------------------------------------------------------------------------- scans


def scan(engine: Engine, a: Array, b: Array, dtype: str, **options: Any) -> Array:
    """The engine's scan of operands in that dtype."""
    x = engine.scan(engine.array(a, dtype), engine.array(b, dtype), **options)
    return engine.numpy(x)


def test_mamba_mini_6_zero_multipliers_in_a_long_scan(engine: Engine) -> None:
    rng = np.random.default_rng(2)
    a = rounded(rng.uniform(0.9, 1, (2, 10_000)) * (rng.random((2, 10_000)) > 0.05), "float32")
    b = rounded(rng.standard_normal((2, 10_000)), "float32")
    assert_close(scan(engine, a, b, "float32"), reference.serial(a, b)[0], "float32", factor=4)


def test_rl_triton_log_space_terminations_do_not_underflow(engine: Engine) -> None:
    rng = np.random.default_rng(3)
    a = rounded(0.94 * (rng.random((2, 65_536)) > 0.05), "float32")
    b = rounded(rng.standard_normal((2, 65_536)), "float32")
    x, _ = reference.serial(a, b, reverse=True)
    assert_close(scan(engine, a, b, "float32", reverse=True), x, "float32", factor=4)


@pytest.mark.parametrize("rows", [65_535, 65_536, 300_001])
def test_mamba_505_many_rows(engine: Engine, rows: int) -> None:
    rng = np.random.default_rng(4)
    a, b = (
        rounded(rng.uniform(-1, 1, (rows, 2)), "float32"),
        rounded(rng.random((rows, 2)), "float32"),
    )
    assert_close(scan(engine, a, b, "float32"), reference.serial(a, b)[0], "float32")
    x, _ = reference.serial(a.T, b.T, axis=0)
    assert_close(scan(engine, a.T, b.T, "float32", axis=0), x, "float32", axis=0)


@pytest.mark.parametrize("axis", [-1, -5, 0, 5])
def test_pytorch_154881_six_dimensions(engine: Engine, axis: int) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.uniform(-1, 1, (2, 3, 4, 2, 3, 5)), rng.standard_normal((2, 3, 4, 2, 3, 5))
    x, _ = reference.serial(a, b, axis=axis)
    np.testing.assert_allclose(scan(engine, a, b, "float64", axis=axis), x, rtol=0, atol=1e-13)


def test_pytorch_154881_integers(engine: Engine) -> None:
    x = engine.numpy(
        engine.scan(engine.array(np.array([2, 3, 4])), engine.array(np.array([1, 1, 1])))
    )
    np.testing.assert_array_equal(x, [1, 4, 17])
    assert x.dtype.kind == "f"


@pytest.mark.parametrize("dtype", DTYPES)
def test_torchaudio_clamps_nothing(engine: Engine, dtype: str) -> None:
    reason = engine.why_not(dtype)
    if reason is not None:
        pytest.skip(reason)
    x = scan(engine, np.full(5, 2.0), np.full(5, 64.0), dtype)
    np.testing.assert_array_equal(x, 64 * (2.0 ** np.arange(1, 6) - 1))
