"""Stable-Baselines3 learns CartPole twice: with its own rollout buffer, and with linscan's.

One argument makes the difference.  Both runs of a seed begin as the same run, until rounding shows:
the buffers agree to seven digits, and one day a random number falls between two probabilities that
differ in the eighth.  From there on they are two runs of one algorithm, like those of two seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from rich.progress import Progress
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from linscan.compat import sb3

ENVS, STEPS = 8, 128
BUFFERS: dict[str, type[RolloutBuffer]] = {"theirs": RolloutBuffer, "linscan": sb3.RolloutBuffer}


class Curve(BaseCallback):
    """The mean return of the last 100 episodes, after each rollout."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self.means: list[float] = []
        self.step = step

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        episodes = self.model.ep_info_buffer or []
        self.means.append(float(np.mean([episode["r"] for episode in episodes])))
        self.step()


def train(
    buffer: type[RolloutBuffer], rollouts: int, seed: int, step: Callable[[], None] = lambda: None
) -> list[float]:
    """The learning curve of PPO with that rollout buffer."""
    curve = Curve(step)
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=ENVS, seed=seed),
        rollout_buffer_class=buffer,  # this is all
        n_steps=STEPS,
        batch_size=256,
        learning_rate=lambda left: 2e-3 * left,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
    )
    model.learn(rollouts * STEPS * ENVS, callback=curve)
    return curve.means


def main() -> None:
    """Train with both buffers for each seed; print the curves, and how far apart they are."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=98, help=f"of {STEPS * ENVS} steps each")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], metavar="SEED")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the networks are small

    curves = {}
    with Progress() as bar:
        task = bar.add_task("CartPole", total=2 * len(options.seeds) * options.rollouts)
        for seed in options.seeds:
            for name, buffer in BUFFERS.items():
                curve = train(buffer, options.rollouts, seed, lambda: bar.advance(task))
                curves[seed, name] = np.array(curve)

    print("mean return of the last 100 episodes, as training goes on:")
    for (seed, name), curve in curves.items():
        some = curve[np.linspace(0, len(curve) - 1, 10).astype(int)]
        print(f"  seed {seed}, {name:8}", *(f"{mean:5.0f}" for mean in some))

    apart = {seed: abs(curves[seed, "theirs"] - curves[seed, "linscan"]) for seed in options.seeds}
    same = min(np.flatnonzero([*x, 1.0])[0] for x in apart.values())
    print(f"the same for the first {same} rollouts")
    print(f"largest difference between buffers: {max(map(np.max, apart.values())):.1f}")
    if len(options.seeds) > 1:
        first, *others = (curves[seed, "theirs"] for seed in options.seeds)
        between = max(abs(first - other).max() for other in others)
        print(f"largest difference between seeds: {between:.1f}")


if __name__ == "__main__":
    main()
