"""Draws the learning curves of ``ppo_cartpole.py``: ``python docs/examples/draw.py``.

It trains with five seeds, some minutes on one core.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from ppo_cartpole import ENVS, STEPS, train
from rich.progress import track

FILE = Path(__file__).with_suffix(".png").with_stem("ppo_cartpole")
ROLLOUTS = 98
SEEDS = range(5)


def main() -> None:
    """Train and draw."""
    torch.set_num_threads(1)
    figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
    steps = STEPS * ENVS * np.arange(1, ROLLOUTS + 1)
    for seed in SEEDS:
        curve = list(track(train(ROLLOUTS, seed), f"seed {seed}", total=ROLLOUTS))
        ax.plot(steps, curve, color="#3f6fb5", alpha=0.6, lw=1.2)
        print(f"seed {seed}: 475 after {steps[np.argmax(np.array(curve) >= 475)]} steps")
    ax.axhline(475, color="#d9822b", lw=1, ls="--")
    ax.set(xlabel="steps of all eight environments", ylabel="mean return of 100 episodes")
    ax.set(xlim=(0, steps[-1]), ylim=(0, 510))
    ax.grid(alpha=0.3)
    figure.savefig(FILE, dpi=100, metadata={"Software": None}, facecolor="white")


if __name__ == "__main__":
    main()
