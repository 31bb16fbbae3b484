"""PPO learns CartPole: a whole training loop of Gymnasium, torch and linscan.

CartPole pays a point for each step.  An episode is terminated when the pole falls, and truncated
after 500 steps.  That is no end of the world, and the critic must not be taught that it is.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rich.progress import Progress, TextColumn
from torch import Tensor, nn

import linscan

ENVS, STEPS, EPOCHS, BATCH = 8, 128, 10, 256
GAMMA, LAM, CLIP, RATE = 0.99, 0.95, 0.2, 2e-3


class Agent(nn.Module):
    """A policy and a critic, each a small network of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def actions(self, observations: Tensor) -> torch.distributions.Categorical:
        """Their distribution."""
        return torch.distributions.Categorical(logits=self.policy(observations))

    def value(self, observations: Any) -> Tensor:
        """The discounted return to expect."""
        return self.critic(torch.as_tensor(observations)).squeeze(-1)


@torch.no_grad()
def play(agent: Agent, seed: int) -> Iterator[tuple[list[Tensor], float]]:
    """Rollouts without end, and the mean return of the last 100 episodes.

    A rollout is observations, actions, log π, advantages and returns, ``[steps, envs, ...]``.
    """
    make = [lambda: gymnasium.make("CartPole-v1")] * ENVS
    envs = SyncVectorEnv(make, autoreset_mode=AutoresetMode.SAME_STEP)
    now, _ = envs.reset(seed=seed)
    points, finished = np.zeros(ENVS), deque[float](maxlen=100)
    while True:
        obs, actions = torch.zeros(STEPS, ENVS, 4), torch.zeros(STEPS, ENVS, dtype=torch.int64)
        log_probs, rewards, values, final_values = torch.zeros(4, STEPS, ENVS)
        terminated, truncated = torch.zeros(2, STEPS, ENVS, dtype=torch.bool)
        for t in range(STEPS):
            obs[t] = torch.as_tensor(now)
            policy = agent.actions(obs[t])
            actions[t] = policy.sample()
            log_probs[t], values[t] = policy.log_prob(actions[t]), agent.value(obs[t])
            now, reward, ended, cut, info = envs.step(actions[t].numpy())
            rewards[t], terminated[t], truncated[t] = map(torch.as_tensor, (reward, ended, cut))
            if cut.any():  # these envs have begun anew: what they showed at the end is in info
                final_values[t, cut] = agent.value(np.stack(info["final_obs"][cut]))
            points += reward
            finished.extend(points[ended | cut])
            points[ended | cut] = 0
        advantages, returns = linscan.gae(
            rewards,
            values,
            gamma=GAMMA,
            lam=LAM,
            axis=0,
            terminated=terminated,
            truncated=truncated,
            truncation_values=final_values,
            last_values=agent.value(now),
        )
        yield [obs, actions, log_probs, advantages, returns], float(np.mean(finished))


def learn(agent: Agent, optimiser: torch.optim.Optimizer, rollout: list[Tensor]) -> None:
    """Some epochs of PPO's clipped objective, over the steps of a rollout in random batches."""
    steps = [x.flatten(0, 1) for x in rollout]
    for batch in torch.cat([torch.randperm(STEPS * ENVS) for _ in range(EPOCHS)]).split(BATCH):
        obs, actions, log_probs, advantages, returns = (x[batch] for x in steps)
        advantages = linscan.whiten(advantages)
        policy = agent.actions(obs)
        ratio = (policy.log_prob(actions) - log_probs).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
        error = (agent.value(obs) - returns).square()
        loss = (0.5 * error - gain - 0.01 * policy.entropy()).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimiser.step()


def train(rollouts: int, seed: int) -> Iterator[float]:
    """The mean return of the last 100 episodes, after each rollout."""
    torch.manual_seed(seed)
    agent = Agent()
    optimiser = torch.optim.Adam(agent.parameters())
    for i, (rollout, mean) in enumerate(islice(play(agent, seed), rollouts)):
        optimiser.param_groups[0]["lr"] = RATE * (1 - i / rollouts)
        learn(agent, optimiser, rollout)
        yield mean


def main() -> None:
    """Train, show the progress, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=98, help=f"of {STEPS * ENVS} steps each")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the networks are small
    columns = *Progress.get_default_columns(), TextColumn("mean return {task.fields[mean]:.0f}")
    with Progress(*columns) as bar:
        task, curve = bar.add_task("CartPole", total=options.rollouts, mean=0.0), list[float]()
        for mean in train(options.rollouts, options.seed):
            bar.update(task, advance=1, mean=mean)
            curve.append(mean)
    print(f"mean return of 100 episodes: {curve[0]:.1f} at first, {curve[-1]:.1f} at last")


if __name__ == "__main__":
    main()
