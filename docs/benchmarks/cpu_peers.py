"""linscan beside other ways of computing the same on this machine's CPU.

    pip install -e '.[cpu,torch,bench]'      # and torchrl, if its estimators are to take part
    python docs/benchmarks/cpu_peers.py --save docs/benchmarks/results

Whole calls with fresh results, on the arrays that each takes.  All that compute the same take
turns; before that their results are compared.  Where results are large, as much memory is had once
before each call: see :func:`timing.take_turns`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from rich.progress import track
from scipy.signal import lfilter
from timing import Call, forget, normal, report, save, take_turns, torch, uniform

import linscan

GAMMA, LAM = 0.99, 0.95
W = GAMMA * LAM
SHAPES = [
    (1, 128),
    (8, 128),
    (32, 512),
    (64, 2048),
    (256, 2048),
    (4096, 15),
    (4096, 32),
    (8192, 128),
    (65536, 8),
    (1000000, 4),
    (16, 8192),
    (1, 131072),
    (128, 65536),
    (256, 131072),
]
STEPS_FIRST = [
    (128, 8),
    (2048, 8),
    (2048, 16),
    (128, 64),
    (2048, 64),
    (512, 512),
    (128, 4096),
    (2048, 4096),
]
OURS = {"NumPy": "linscan, NumPy", "torch": "linscan, torch"}


class Way(NamedTuple):
    """A way of computing something: on which arrays, and the call."""

    name: str
    library: str
    call: Call


# What a trainer has that does not use linscan ----------------------------------------------------


def gae_loop(rewards: Any, values: Any) -> Any:
    """The loop over time of every row, to be compiled."""
    advantages, returns = np.empty_like(rewards), np.empty_like(rewards)
    gamma, w = rewards.dtype.type(GAMMA), rewards.dtype.type(W)
    for i in numba.prange(rewards.shape[0]):
        value = advantage = rewards.dtype.type(0)
        for t in range(rewards.shape[1] - 1, -1, -1):
            delta = rewards[i, t] + gamma * value - values[i, t]
            advantage = delta + w * advantage
            value = values[i, t]
            advantages[i, t] = advantage
            returns[i, t] = advantage + value
    return advantages, returns


def gae_loop_over_steps(rewards: Any, values: Any) -> Any:
    """The same where steps come first, all columns of a step together, to be compiled."""
    advantages, returns = np.empty_like(rewards), np.empty_like(rewards)
    gamma, w = rewards.dtype.type(GAMMA), rewards.dtype.type(W)
    value, advantage = np.zeros_like(rewards[0]), np.zeros_like(rewards[0])
    for t in range(rewards.shape[0] - 1, -1, -1):
        for i in range(rewards.shape[1]):
            delta = rewards[t, i] + gamma * value[i] - values[t, i]
            advantage[i] = delta + w * advantage[i]
            value[i] = values[t, i]
            advantages[t, i] = advantage[i]
            returns[t, i] = advantage[i] + value[i]
    return advantages, returns


def gae_steps(rewards: Any, values: Any, empty_like: Any) -> Any:
    """The same in a Python loop over steps, as trainers have it."""
    advantages, following, advantage = empty_like(rewards), 0, 0
    for t in range(len(rewards) - 1, -1, -1):
        delta = rewards[t] + GAMMA * following - values[t]
        advantages[t] = advantage = delta + W * advantage
        following = values[t]
    return advantages, advantages + values


def scan_loop(a: Any, b: Any) -> Any:
    """The same for the recurrence with a multiplier per element."""
    x = np.empty_like(b)
    for i in numba.prange(b.shape[0]):
        state = b.dtype.type(0)
        for t in range(b.shape[1]):
            state = a[i, t] * state + b[i, t]
            x[i, t] = state
    return x


def constant_loop(a: Any, b: Any) -> Any:
    """The same with one multiplier."""
    x = np.empty_like(b)
    for i in numba.prange(b.shape[0]):
        state = b.dtype.type(0)
        for t in range(b.shape[1]):
            state = a * state + b[i, t]
            x[i, t] = state
    return x


def compiled(function: Any) -> dict[str, Any]:
    """The loop compiled for one thread and for all."""
    return {
        "numba loop": numba.njit(function),
        "numba loop, parallel": numba.njit(parallel=True)(function),
    }


def gae_lfilter(rewards: Any, values: Any) -> Any:
    """SciPy's filter, run from the end over the temporal differences."""
    following = np.zeros_like(values)
    following[:, :-1] = values[:, 1:]
    deltas = rewards + GAMMA * following - values
    advantages = scan_lfilter(deltas[:, ::-1], W)[:, ::-1]
    return advantages, advantages + values


def scan_lfilter(b: Any, a: float) -> Any:
    """SciPy's filter with a single pole, in the dtype of ``b``."""
    numerator, denominator = np.array([[1.0, 0.0], [1.0, -a]], b.dtype)
    return lfilter(numerator, denominator, b, axis=-1)


def scan_chunks(b: Any, a: float, size: int) -> Any:
    """The chunk scan in torch: a matrix of powers per chunk, and a loop over the chunks."""
    rows, time = b.shape
    padded = torch.nn.functional.pad(b, (0, -time % size)).view(rows, -1, size)
    t = torch.arange(size)
    distance = t[None, :] - t[:, None]
    powers = torch.where(distance >= 0, a ** distance.clamp(min=0).double(), 0.0).to(b.dtype)
    x = padded @ powers
    weights = (a ** (t + 1).double()).to(b.dtype)
    for n in range(1, x.shape[1]):
        x[:, n] += weights * x[:, n - 1, -1:]
    return x.reshape(rows, -1)[:, :time]


def gae_chunks(rewards: Any, values: Any, size: int) -> Any:
    """GAE by the chunk scan of the flipped temporal differences."""
    following = torch.nn.functional.pad(values[:, 1:], (0, 1))
    deltas = rewards + GAMMA * following - values
    advantages = scan_chunks(deltas.flip(-1), W, size).flip(-1)
    return advantages, advantages + values


# Who takes part ----------------------------------------------------------------------------------


def gae_ways(shape: tuple[int, int], dtype: str) -> Iterator[Way]:
    """GAE, time last, nothing after the last step."""
    r, v = (normal(seed, shape, dtype) for seed in (0, 1))
    keywords = {"gamma": GAMMA, "lam": LAM}
    yield Way(OURS["NumPy"], "NumPy", lambda: linscan.gae(r, v, **keywords))
    for name, loop in GAE_LOOPS.items():
        yield Way(name, "NumPy", lambda loop=loop: loop(r, v))
    yield Way("SciPy lfilter", "NumPy", lambda: gae_lfilter(r, v))
    if torch is None:
        return
    rewards, values = torch.from_numpy(r), torch.from_numpy(v)
    yield Way(OURS["torch"], "torch", lambda: linscan.gae(rewards, values, **keywords))
    for size in (64, 128, 256):
        yield Way(
            f"torch chunks of {size}",
            "torch",
            lambda size=size: gae_chunks(rewards, values, size),
        )
        yield Way(
            f'backend="torch", {size}',
            "torch",
            lambda size=size: linscan.gae(
                rewards, values, **keywords, backend="torch", chunk_size=size
            ),
        )
    if vectorised := torchrl_gae():
        following = torch.nn.functional.pad(values[:, 1:], (0, 1))
        done = torch.zeros(shape, dtype=torch.bool)
        done[:, -1] = True
        columns = [x[..., None] for x in (values, following, rewards, done)]
        yield Way("torchrl vectorised", "torch", lambda: vectorised(GAMMA, LAM, *columns))


def steps_first_ways(shape: tuple[int, int], dtype: str) -> Iterator[Way]:
    """GAE, time first, nothing after the last step."""
    r, v = (normal(seed, shape, dtype) for seed in (0, 1))
    keywords = {"gamma": GAMMA, "lam": LAM, "axis": 0}
    yield Way(OURS["NumPy"], "NumPy", lambda: linscan.gae(r, v, **keywords))
    yield Way("numba loop", "NumPy", lambda: STEPS_LOOP(r, v))
    yield Way("NumPy loop over steps", "NumPy", lambda: gae_steps(r, v, np.empty_like))
    if torch is None:
        return
    rewards, values = torch.from_numpy(r), torch.from_numpy(v)
    yield Way(OURS["torch"], "torch", lambda: linscan.gae(rewards, values, **keywords))
    yield Way(
        "torch loop over steps", "torch", lambda: gae_steps(rewards, values, torch.empty_like)
    )


def constant_ways(shape: tuple[int, int], dtype: str) -> Iterator[Way]:
    """A scan with one multiplier for all steps."""
    b = normal(0, shape, dtype)
    a = b.dtype.type(W)
    yield Way(OURS["NumPy"], "NumPy", lambda: linscan.scan(W, b))
    for name, loop in CONSTANT_LOOPS.items():
        yield Way(name, "NumPy", lambda loop=loop: loop(a, b))
    yield Way("SciPy lfilter", "NumPy", lambda: scan_lfilter(b, W))
    if torch is None:
        return
    tensor = torch.from_numpy(b)
    yield Way(OURS["torch"], "torch", lambda: linscan.scan(W, tensor))
    for size in (64, 128, 256):
        yield Way(
            f"torch chunks of {size}", "torch", lambda size=size: scan_chunks(tensor, W, size)
        )
        yield Way(
            f'backend="torch", {size}',
            "torch",
            lambda size=size: linscan.scan(W, tensor, backend="torch", chunk_size=size),
        )


def full_ways(shape: tuple[int, int], dtype: str) -> Iterator[Way]:
    """A scan with a multiplier per element."""
    a, b = 0.9 + uniform(1, shape, dtype) / 10, normal(0, shape, dtype)
    yield Way(OURS["NumPy"], "NumPy", lambda: linscan.scan(a, b))
    for name, loop in SCAN_LOOPS.items():
        yield Way(name, "NumPy", lambda loop=loop: loop(a, b))
    if torch is None:
        return
    multipliers, tensor = torch.from_numpy(a), torch.from_numpy(b)
    yield Way(OURS["torch"], "torch", lambda: linscan.scan(multipliers, tensor))
    for size in (64, 128, 256):
        yield Way(
            f'backend="torch", {size}',
            "torch",
            lambda size=size: linscan.scan(multipliers, tensor, backend="torch", chunk_size=size),
        )


def torchrl_gae() -> Any:
    """The vectorised estimator of torchrl, if that is installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchrl.objectives.value.functional import vec_generalized_advantage_estimate
    except ImportError:
        return None
    return vec_generalized_advantage_estimate


GAE_LOOPS, CONSTANT_LOOPS, SCAN_LOOPS = map(compiled, (gae_loop, constant_loop, scan_loop))
STEPS_LOOP = numba.njit(gae_loop_over_steps)
WORK = {
    "GAE": (gae_ways, SHAPES),
    "GAE, time first": (steps_first_ways, STEPS_FIRST),
    "scan, constant a": (constant_ways, SHAPES),
    "scan, full a": (full_ways, SHAPES),
}


def compare(ways: list[Way], turns: int, size: int) -> dict[str, float]:
    """The median time of each way in seconds, after a look at what it computes.

    ``size``: the bytes of an operand; a call makes up to two results and as much again on the way.
    """
    expected = first(ways[0])
    for way in ways:
        worst = np.abs(first(way) - expected).max() / np.abs(expected).max()
        if not worst < 1e-3:
            raise ArithmeticError(f"{way.name} is off by {worst:.1e}")
    times = np.median(take_turns([way.call for way in ways], turns, wanted=4 * size), axis=0)
    return {way.name: float(time) for way, time in zip(ways, times, strict=True)}


def first(way: Way) -> np.ndarray:
    """The result, or the first of several, without axes of length 1."""
    result = way.call()
    x = np.asarray(result[0] if isinstance(result, tuple) else result)
    return x[..., 0] if x.ndim == 3 else x


def main() -> None:
    """Compare and print: times of linscan, and of the others in multiples of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=WORK, help="this work only")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--turns", type=int, default=7, help="how often they alternate")
    parser.add_argument("--quick", action="store_true", help="small arrays: does all of it run?")
    parser.add_argument("--save", type=Path, help="folder for the tables and the figures")
    options = parser.parse_args()

    names = [options.only] if options.only else list(WORK)
    figures: dict[str, dict[str, dict[str, float]]] = {name: {} for name in names}
    libraries: dict[str, str] = {}
    few = 3 if options.quick else None
    pairs = [(name, shape) for name in names for shape in WORK[name][1][:few]]
    for name, shape in track(pairs, "Comparing", transient=True):
        ways = list(WORK[name][0](shape, options.dtype))
        libraries |= {way.name: way.library for way in ways}
        turns = 1 if options.quick else options.turns
        size = prod(shape) * np.dtype(options.dtype).itemsize
        figures[name]["×".join(map(str, shape))] = compare(ways, turns, size)
        forget()

    tables = []
    for name, by_shape in figures.items():
        everyone = list(next(iter(by_shape.values())))
        peers = [way for way in everyone if way not in OURS.values()]
        ours = [way for way in everyone if way in OURS.values()]
        rows = []
        for shape, times in by_shape.items():
            ratios = [times[peer] / times[OURS[libraries[peer]]] for peer in peers]
            rows.append(
                [
                    shape,
                    *(f"{1e6 * times[way]:.4g}" for way in ours),
                    *(f"{ratio:.3g}" if ratio >= 1 else f"**{ratio:.2f}**" for ratio in ratios),
                ]
            )
        title = f"{name}, {options.dtype}: linscan in µs, the others in multiples of linscan's time"
        shape = "steps×columns" if name.endswith("time first") else "rows×steps"
        tables.append(report(title, [shape, *ours, *peers], rows))
    save(options.save, "cpu_peers", "\n".join(tables), figures)


if __name__ == "__main__":
    main()
