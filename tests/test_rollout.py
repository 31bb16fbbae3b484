"""The rollout that the package ships: it is what it is said to be, and can be made again."""

from __future__ import annotations

import importlib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from linscan.cli._rollout import load, read, repeat

RECORDER = Path(__file__).parents[1] / "docs"


def test_shapes_and_dtypes():
    rollout = load()
    for name, x in rollout._asdict().items():
        assert x.shape == ((32,) if name == "last_values" else (512, 32)), name
        assert x.dtype == (bool if name in ("terminated", "truncated") else np.float32), name
    tasks = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"]
    assert read()["task"].tolist() == [task for task in tasks for _ in range(8)]


def test_it_is_small():
    assert len(files("linscan.cli").joinpath("rollout.npz").read_bytes()) < 300_000


def test_episodes_end_in_both_ways():
    rollout = load()
    assert rollout.terminated.sum() == 84
    assert rollout.truncated.sum() == 109
    assert not (rollout.terminated & rollout.truncated).any()
    assert np.isfinite(rollout.values).all()
    assert np.isfinite(rollout.last_values).all()


def test_truncations_have_the_value_of_their_final_observation():
    rollout = load()
    assert np.array_equal(np.isfinite(rollout.truncation_values), rollout.truncated)


def test_every_step_is_a_transition():
    """A step spent on a reset would make truncated episodes longer than their limit."""
    rollout, limits = load(), read()["limit"]
    for column, limit in enumerate(limits):
        done = np.flatnonzero((rollout.terminated | rollout.truncated)[:, column])
        lengths = np.diff(done, prepend=-1)
        assert np.array_equal(lengths == limit, rollout.truncated[done, column])


def test_rewards_are_those_of_the_environments():
    rollout, task = load(), read()["task"]
    assert (rollout.rewards[:, task == "CartPole-v1"] == 1).all()
    assert (rollout.rewards[:, task == "MountainCar-v0"] == -1).all()
    acrobot = rollout.rewards[:, task == "Acrobot-v1"]
    assert np.array_equal(acrobot == 0, rollout.terminated[:, task == "Acrobot-v1"])
    assert (rollout.rewards[:, task == "Pendulum-v1"] <= 0).all()


def test_repeating_cuts_at_the_seams():
    rollout = load()
    longer = repeat(rollout, times=3, columns=2)
    assert longer.rewards.shape == longer.truncated.shape == (1536, 64)
    assert longer.last_values.shape == (64,)
    seam = longer.terminated[511::512] | longer.truncated[511::512]
    assert seam.all()
    assert np.array_equal(np.isfinite(longer.truncation_values), longer.truncated)
    running = ~(rollout.terminated[-1] | rollout.truncated[-1])
    assert np.array_equal(
        longer.truncation_values[1023, :32][running], rollout.last_values[running]
    )
    assert np.array_equal(longer.rewards[512:1024, 32:], rollout.rewards)


def test_it_can_be_recorded_again(monkeypatch):
    gymnasium = pytest.importorskip("gymnasium")
    recorded = read()
    if gymnasium.__version__ != recorded["gymnasium"]:
        pytest.skip(f"recorded with gymnasium {recorded['gymnasium']}, not {gymnasium.__version__}")
    monkeypatch.syspath_prepend(RECORDER)
    made = importlib.import_module("record_rollout").make()
    assert made.keys() == recorded.keys()
    for name, x in made.items():
        if x.dtype == np.float32:  # sine and cosine differ in the last bit from CPU to CPU
            np.testing.assert_allclose(recorded[name], x, rtol=1e-3, atol=1e-3, err_msg=name)
        else:
            assert np.array_equal(recorded[name], x), name
