"""Records ``linscan/cli/rollout.npz``, the rollout of which ``linscan demo`` computes returns.

Four classic-control tasks, eight copies of each, side by side for 512 steps under small noisy
policies written by hand.  The time limits are short, so that episodes end both ways: by
termination and by truncation.  The values come from a critic that is linear in the products of
the observation's components, fitted to an earlier rollout of the same policy by least-squares
temporal differences with γ = 0.99.  It is a plain critic, not a good one.

By default Gymnasium's vector environments spend a step on every reset, and that step's reward and
flags belong to no transition (``AutoresetMode.NEXT_STEP``).  Here they reset within the step
(``SAME_STEP``) and hand over the observation that really ended the episode as ``final_obs``, so
that every recorded transition happened; ``play`` checks it.

To make the file again::

    pip install gymnasium
    python docs/record_rollout.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

Array = NDArray[Any]

FILE = Path(__file__).resolve().parents[1] / "linscan" / "cli" / "rollout.npz"
STEPS = 512
COPIES = 8
GAMMA = 0.99
SEED = 2024


def balance(obs: Array, rng: np.random.Generator) -> Array:
    """CartPole: push to the side the pole falls to, with an unsteady hand."""
    lean = obs[:, 2] + 0.4 * obs[:, 3] + rng.normal(0, 0.5, len(obs))
    return np.where(lean > 0, 1, 0)


def swing(obs: Array, rng: np.random.Generator) -> Array:
    """Acrobot: torque along the speed of the second joint, at times at random."""
    along = np.where(obs[:, 5] > 0, 2, 0)
    return np.where(rng.random(len(obs)) < 0.2, rng.integers(3, size=len(obs)), along)


def rock(obs: Array, rng: np.random.Generator) -> Array:
    """MountainCar: accelerate along the speed, at times at random."""
    along = np.where(obs[:, 1] > 0, 2, 0)
    return np.where(rng.random(len(obs)) < 0.1, rng.integers(3, size=len(obs)), along)


def hold(obs: Array, rng: np.random.Generator) -> Array:
    """Pendulum: a noisy spring and damper about the upright."""
    torque = -6 * obs[:, 1] - obs[:, 2] + rng.normal(0, 0.5, len(obs))
    return np.clip(torque, -2, 2).astype(np.float32)[:, None]


@dataclass(frozen=True)
class Task:
    """An environment, its time limit and the policy that acts in it."""

    name: str
    limit: int
    policy: Callable[[Array, np.random.Generator], Array]


TASKS = [
    Task("CartPole-v1", 80, balance),
    Task("Acrobot-v1", 120, swing),
    Task("MountainCar-v0", 160, rock),
    Task("Pendulum-v1", 64, hold),
]


class Step(NamedTuple):
    """A transition in every copy of an environment; stacked, a rollout of them."""

    obs: Array
    rewards: Array
    terminated: Array
    truncated: Array
    reached: Array
    """The observation the transition led to, also where a reset followed it."""
    next_obs: Array
    """The observation the next step starts from."""


def play(task: Task, steps: int, seed: int) -> Step:
    """What the task's policy does in ``steps`` steps of ``COPIES`` copies of its environment."""
    envs = SyncVectorEnv(
        [lambda: gymnasium.make(task.name, max_episode_steps=task.limit)] * COPIES,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    rng = np.random.default_rng(seed)
    obs, _ = envs.reset(seed=[seed + copy for copy in range(COPIES)])
    ages = np.zeros(COPIES, int)
    played = []
    for _ in range(steps):
        next_obs, rewards, terminated, truncated, info = envs.step(task.policy(obs, rng))
        done = terminated | truncated
        reached = next_obs.copy()
        if done.any():
            assert np.array_equal(info["_final_obs"], done), "an episode's last observation is lost"
            reached[done] = np.stack(info["final_obs"][done])
        ages += 1
        assert np.array_equal(truncated, ages == task.limit), "a step was spent on a reset"
        ages[done] = 0
        played.append(Step(obs, rewards, terminated, truncated, reached, next_obs))
        obs = next_obs
    envs.close()
    return Step(*map(np.stack, zip(*played, strict=True)))


def features(obs: Array) -> Array:
    """All products of two among 1 and the components of the observation."""
    x = np.concatenate([np.ones((*obs.shape[:-1], 1)), obs], axis=-1, dtype=np.float64)
    left, right = np.triu_indices(x.shape[-1])
    return x[..., left] * x[..., right]


def fit_critic(rollout: Step) -> Callable[[Array], Array]:
    """V(s) = w·φ(s) whose temporal differences are uncorrelated with φ.

    The value of the observation that ended an episode counts if a time limit ended it, and is
    zero if it is terminal.  A slight ridge keeps the system regular where features depend on
    each other.
    """
    here = features(rollout.obs)
    there = np.where(rollout.terminated[..., None], 0, features(rollout.reached))
    system = np.einsum("tni,tnj->ij", here, here - GAMMA * there)
    system += 1e-3 * np.eye(len(system))
    w = np.linalg.solve(system, np.einsum("tni,tn->i", here, rollout.rewards))
    return lambda obs: features(obs) @ w


def record(task: Task) -> dict[str, Array]:
    """The task's columns of the file."""
    critic = fit_critic(play(task, 8 * STEPS, seed=SEED))
    rollout = play(task, STEPS, seed=SEED + COPIES)
    values = {
        "values": critic(rollout.obs),
        "last_values": critic(rollout.next_obs[-1]),
        # NaN wherever there is nothing to know: no one may read it there.
        "truncation_values": np.where(rollout.truncated, critic(rollout.reached), np.nan),
    }
    return {
        "rewards": rollout.rewards.astype(np.float32),
        **{name: x.astype(np.float32) for name, x in values.items()},
        "terminated": rollout.terminated,
        "truncated": rollout.truncated,
        "task": np.full(COPIES, task.name),
        "limit": np.full(COPIES, task.limit),
    }


def make() -> dict[str, Array]:
    """Everything in the file, by name: ``[STEPS, N]``, or ``[N]`` where time plays no part."""
    columns = [record(task) for task in TASKS]
    arrays = {name: np.concatenate([c[name] for c in columns], axis=-1) for name in columns[0]}
    return arrays | {"gymnasium": np.array(gymnasium.__version__)}


if __name__ == "__main__":
    np.savez_compressed(FILE, **make())
    print(f"{FILE}: {FILE.stat().st_size} bytes")
