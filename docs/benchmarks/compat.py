"""linscan.compat beside what it stands in for, at the frameworks' own shapes, on this CPU.

    pip install -e '.[cpu,torch,bench]' torchrl stable-baselines3 tianshou
    python docs/benchmarks/compat.py --write      # the table, into docs/compat.md

torchrl, Stable-Baselines3 and tianshou are measured themselves, where they are installed; of the
others, the loop over time that they have, in the same library.  The two of a row take turns.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from timing import Call, normal, report, take_turns, uniform

from linscan.compat import (
    areal,
    cleanrl,
    nemo_rl,
    openrlhf,
    pufferlib,
    rl_games,
    rsl_rl,
    sample_factory,
    skrl,
    slime,
    tianshou,
    torchrl,
    trl,
    verl,
)

PAGE = Path(__file__).parents[1] / "compat.md"
GAMMA, LAM = 0.99, 0.95
NEMO = SimpleNamespace(gae_gamma=GAMMA, gae_lambda=LAM)


class Row(NamedTuple):
    """A function at one shape: ours, and theirs."""

    function: str
    shape: str
    original: str
    ours: Call
    theirs: Call


# The loops that frameworks have ------------------------------------------------------------------


def columns_loop(rewards: Any, values: Any) -> Any:
    """Language models: ``[B, T]``, a column at a time."""
    following, carry, columns = torch.zeros(len(rewards)), torch.zeros(len(rewards)), []
    for t in reversed(range(rewards.shape[1])):
        carry = rewards[:, t] + GAMMA * following - values[:, t] + GAMMA * LAM * carry
        following = values[:, t]
        columns.append(carry)
    advantages = torch.stack(columns[::-1], dim=1)
    return advantages, advantages + values


def masked_loop(rewards: Any, values: Any, mask: Any) -> Any:
    """The same, over holes."""
    following, carry, columns = torch.zeros(len(rewards)), torch.zeros(len(rewards)), []
    for t in reversed(range(rewards.shape[1])):
        m = mask[:, t]
        fresh = rewards[:, t] + GAMMA * following - values[:, t] + GAMMA * LAM * carry
        following = m * values[:, t] + (1 - m) * following
        carry = m * fresh + (1 - m) * carry
        columns.append(carry)
    advantages = torch.stack(columns[::-1], dim=1)
    return advantages, advantages + values


def whitened(x: Any, mask: Any) -> Any:
    """By the statistics under the mask."""
    count = mask.sum()
    mean = (x * mask).sum() / count
    variance = ((x - mean) ** 2 * mask).sum() / (count - 1)
    return (x - mean) * torch.rsqrt(variance + 1e-8)


def chunks(rewards: Any, values: Any, size: int = 128) -> Any:
    """The chunk scan: a matrix of powers for all chunks, and a loop over them."""
    rows, time = rewards.shape
    deltas = rewards + GAMMA * torch.nn.functional.pad(values[:, 1:], (0, 1)) - values
    padded = torch.nn.functional.pad(deltas.flip(-1), (0, -time % size)).view(rows, -1, size)
    t = torch.arange(size)
    distance = t[None, :] - t[:, None]
    powers = torch.where(distance >= 0, (GAMMA * LAM) ** distance.clamp(min=0).float(), 0.0)
    x, weights = padded @ powers, (GAMMA * LAM) ** (t + 1).float()
    for n in range(1, x.shape[1]):
        x[:, n] += weights * x[:, n - 1, -1:]
    advantages = x.reshape(rows, -1)[:, :time].flip(-1)
    return advantages, advantages + values


def steps_loop(rewards: Any, values: Any, done: Any, last: Any, ended: Any = None) -> Any:
    """Control: ``[T, N]``, flags of starts if ``ended`` is given, else of ends."""
    advantages, carry = torch.zeros_like(rewards), 0
    for t in reversed(range(len(rewards))):
        if ended is None:
            going = 1.0 - done[t].float()
        else:
            going = 1.0 - (ended if t == len(rewards) - 1 else done[t + 1])
        following = last if t == len(rewards) - 1 else values[t + 1]
        delta = rewards[t] + GAMMA * following * going - values[t]
        carry = advantages[t] = delta + GAMMA * LAM * going * carry
    return advantages, advantages + values


def valids_loop(
    rewards: torch.Tensor, dones: torch.Tensor, values: torch.Tensor, valids: torch.Tensor
) -> torch.Tensor:
    """Sample Factory, scripted."""
    rewards, dones = rewards.transpose(0, 1), dones.transpose(0, 1).float()
    values, valids = values.transpose(0, 1), valids.transpose(0, 1).float()
    deltas = (rewards - values[:-1]) * valids[:-1]
    deltas = deltas + (1 - dones) * (0.99 * values[1:] * valids[1:])
    x, carry = torch.zeros_like(deltas), torch.zeros_like(deltas[0])
    i = len(deltas) - 1
    while i >= 0:
        carry = deltas[i] + (0.9405 * valids[i] + (1 - valids[i])) * carry * (1.0 - dones[i])
        x[i] = carry
        i -= 1
    return x.transpose(0, 1)


@numba.njit
def puffer_loop(v: Any, r: Any, done: Any, rho: Any, advantages: Any) -> None:
    """PufferLib's kernel, a row at a time."""
    gamma, decay = np.float32(0.99), np.float32(0.9405)
    for i in range(v.shape[0]):
        carry = np.float32(0)
        for t in range(v.shape[1] - 2, -1, -1):
            going, weight = np.float32(1) - done[i, t + 1], min(rho[i, t], np.float32(1))
            delta = weight * (r[i, t + 1] + gamma * v[i, t + 1] * going - v[i, t])
            carry = delta + decay * weight * carry * going
            advantages[i, t] = carry


# Who takes part ----------------------------------------------------------------------------------


def tensors(count: int, *shape: int) -> list[Any]:
    """Data."""
    return [torch.from_numpy(normal(seed, shape, "float32")) for seed in range(count)]


def flags(rate: float, *shape: int) -> Any:
    """Flags."""
    return torch.from_numpy(uniform(9, shape) < rate)


def language_models() -> Iterator[Row]:
    """Batches of responses."""
    for rows, time in [(8, 1024), (64, 4096), (8, 32768)]:
        r, v = tensors(2, rows, time)
        mask, shape = flags(0.8, rows, time), f"{rows}×{time}"
        number, whole = mask.float(), mask.long()
        yield Row(
            "slime.vanilla_gae", shape, "its loop",
            lambda r=r, v=v: slime.vanilla_gae(r, v, GAMMA, LAM),
            lambda r=r, v=v: columns_loop(r, v),
        )  # fmt: skip
        yield Row(
            "slime.chunked_gae", shape, "chunks of 128",
            lambda r=r, v=v: slime.chunked_gae(r, v, GAMMA, LAM),
            lambda r=r, v=v: chunks(r, v),
        )  # fmt: skip
        yield Row(
            "verl.compute_gae_advantage_return", shape, "its loop",
            lambda r=r, v=v, m=whole: verl.compute_gae_advantage_return(r, v, m, GAMMA, LAM),
            lambda r=r, v=v, m=whole: whitened(masked_loop(r, v, m)[0], m),
        )  # fmt: skip
        yield Row(
            "openrlhf.get_advantages_and_returns", shape, "its loop",
            lambda r=r, v=v, m=mask: openrlhf.get_advantages_and_returns(v, r, m, GAMMA, LAM),
            lambda r=r, v=v, m=mask: columns_loop(m * r, m * v),
        )  # fmt: skip
        yield Row(
            "nemo_rl.compute_gae", shape, "its loop",
            lambda r=r, v=v, m=number: nemo_rl.compute_gae(NEMO, r, v, m),
            lambda r=r, v=v, m=number: masked_loop(r, v, m),
        )  # fmt: skip
    r, v = tensors(2, 64, 53)
    padding = flags(0.2, 64, 53)
    yield Row(
        "trl.advantages_and_returns", "64×53", "its loop",
        lambda: trl.advantages_and_returns(r, v, padding, GAMMA, LAM),
        lambda: whitened(columns_loop(r, v)[0], ~padding),
    )  # fmt: skip
    (packed,), (longer,) = tensors(1, 32 * 512), tensors(1, 32 * 513)
    offsets, ends = torch.arange(0, 32 * 512 + 1, 512).int(), flags(0.5, 32)

    def areal_loop() -> Any:
        """One sequence and one step after the other."""
        for i in range(32):
            carry, start = 0.0, 512 * i
            for t in reversed(range(start, start + 512)):
                delta = packed[t] + GAMMA * longer[t + i + 1] - longer[t + i]
                carry = delta + GAMMA * LAM * carry
        return carry

    yield Row(
        "areal.cugae1d_nolp_misalign_func", "32 of 512", "its loop in Python",
        lambda: areal.cugae1d_nolp_misalign_func(packed, longer, offsets, ends, GAMMA, LAM),
        areal_loop,
    )  # fmt: skip


def control() -> Iterator[Row]:
    """Rollouts of environments."""
    for steps, envs in [(128, 8), (2048, 1), (24, 4096)]:
        r, v = tensors(2, steps, envs)
        (last,), done, shape = tensors(1, envs), flags(0.01, steps, envs).float(), f"{steps}×{envs}"
        ended = flags(0.5, envs).float()
        yield Row(
            "cleanrl.gae", shape, "its loop",
            lambda a=(r, v, done, last, ended): cleanrl.gae(*a, GAMMA, LAM),
            lambda a=(r, v, done, last, ended): steps_loop(*a),
        )  # fmt: skip
    r, v = tensors(2, 16, 4096, 1)
    (last,), done, ended = tensors(1, 4096, 1), flags(0.01, 16, 4096), flags(0.5, 4096)
    column, number = done[..., None].float(), done.float()
    yield Row(
        "rl_games.compute_gae", "16×4096×1", "its loop",
        lambda: rl_games.compute_gae(r, v, number, last, ended.float(), GAMMA, LAM),
        lambda: steps_loop(r, v, column, last, ended[:, None].float()),
    )  # fmt: skip
    byte, storage = column.byte(), SimpleNamespace(returns=torch.zeros_like(r))
    storage.rewards, storage.values, storage.dones = r, v, byte
    yield Row(
        "rsl_rl.compute_returns", "16×4096×1", "its loop",
        lambda: rsl_rl.compute_returns(storage, last, GAMMA, LAM, False),
        lambda: steps_loop(r, v, byte, last),
    )  # fmt: skip
    flag = done[..., None]
    yield Row(
        "skrl.compute_gae", "16×4096×1", "its loop",
        lambda: skrl.compute_gae(rewards=r, terminated=flag, values=v, next_values=last),
        lambda: steps_loop(r, v, flag, last),
    )  # fmt: skip
    (rewards,), (values,) = tensors(1, 512, 32), tensors(1, 512, 33)
    dones, valids, scripted = flags(0.01, 512, 32), flags(1, 512, 33), torch.jit.script(valids_loop)
    yield Row(
        "sample_factory.gae_advantages", "512×32", "its scripted loop",
        lambda: sample_factory.gae_advantages(rewards, dones, values, valids, GAMMA, LAM),
        lambda: scripted(rewards, dones, values, valids),
    )  # fmt: skip
    puff = [*tensors(2, 4096, 64), flags(0.01, 4096, 64).float(), torch.ones(4096, 64)]
    filled = torch.zeros(4096, 64)
    arrays = [x.numpy() for x in (*puff, filled)]
    yield Row(
        "pufferlib.compute_puff_advantage", "4096×64", "its kernel, in numba",
        lambda: pufferlib.compute_puff_advantage(*puff, filled, GAMMA, LAM, 1.0, 1.0),
        lambda: puffer_loop(*arrays),
    )  # fmt: skip


def themselves() -> Iterator[Row]:
    """Frameworks that are installed."""
    for row in (of_torchrl, of_stable_baselines3, of_tianshou):
        try:
            yield from row()
        except ImportError as error:
            print(f"left out: {error}")


def of_torchrl() -> Iterator[Row]:
    """The functions of torchrl."""
    original = import_module("torchrl.objectives.value.functional")
    for rows, time in [(1, 1000), (32, 512)]:
        v, n, r, pi = tensors(4, rows, time, 1)
        done, shape = flags(0.02, rows, time, 1), f"{rows}×{time}×1"
        calls: dict[str, tuple[Any, ...]] = {
            "generalized_advantage_estimate": (GAMMA, LAM, v, n, r, done),
            "vec_generalized_advantage_estimate": (GAMMA, LAM, v, n, r, done),
            "td_lambda_return_estimate": (GAMMA, LAM, n, r, done),
            "vec_td_lambda_return_estimate": (GAMMA, LAM, n, r, done),
            "vtrace_advantage_estimate": (GAMMA, pi, pi, v, n, r, done),
            "reward2go": (r, done, GAMMA),
        }
        for name, args in calls.items():
            ours, theirs = getattr(torchrl, name), getattr(original, name)
            yield Row(
                f"torchrl.{name}", shape, "itself",
                lambda f=ours, a=args: f(*a), lambda f=theirs, a=args: f(*a),
            )  # fmt: skip


def of_stable_baselines3() -> Iterator[Row]:
    """Its rollout buffer."""
    original = import_module("stable_baselines3.common.buffers")
    ours = import_module("linscan.compat.sb3")
    box = import_module("gymnasium").spaces.Box(-1, 1, (1,))
    for steps, envs in [(2048, 1), (128, 8)]:
        calls, (last,), dones = [], tensors(1, envs), np.zeros(envs, bool)
        for module in (ours, original):
            buffer = module.RolloutBuffer(steps, box, box, "cpu", LAM, GAMMA, envs)
            buffer.rewards[:], buffer.values[:] = (x.numpy() for x in tensors(2, steps, envs))
            buffer.episode_starts[:] = flags(0.02, steps, envs).numpy()
            calls.append(partial(buffer.compute_returns_and_advantage, last, dones))
        yield Row("sb3.RolloutBuffer", f"{steps}×{envs}", "itself", *calls)


def of_tianshou() -> Iterator[Row]:
    """Its compiled loop."""
    original = import_module("tianshou.algorithm.algorithm_base")._gae
    for steps in (2048, 20480):
        v, n, r = (x.numpy() for x in tensors(3, steps))
        args = v, n, r.astype(np.float64), flags(0.01, steps).numpy(), GAMMA, LAM
        yield Row(
            "tianshou.gae", f"{steps}", "itself",
            lambda a=args: tianshou.gae(*a), lambda a=args: original(*a),
        )  # fmt: skip


def main() -> None:
    """Compare and print: times of both, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=5, help="how often they alternate")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    options = parser.parse_args()
    rows = []
    for part in (language_models, control, themselves):
        for row in part():
            turns = take_turns([row.ours, row.theirs], options.turns)
            ours, theirs = map(float, np.median(turns, axis=0))
            ratio = theirs / ours
            cells = f"{1e6 * ours:.0f}", f"{1e6 * theirs:.0f}"
            factor = f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}"
            factor = factor if ratio >= 1 else f"**{factor}**"
            rows.append([f"`{row.function}`", row.shape, row.original, *cells, factor])
    headings = ["function", "shape", "beside", "linscan, µs", "the other, µs", "times faster"]
    table = report("", headings, rows).removeprefix("## \n\n").rstrip()
    print(table)
    if options.write:
        marks = re.compile(r"(<!-- speed -->\n).*?(\n<!-- end -->)", re.DOTALL)
        PAGE.write_text(marks.sub(lambda m: m[1] + table + m[2], PAGE.read_text()))


if __name__ == "__main__":
    main()
