"""How far the kernels are from the speed of the GPU's memory, and beside other ways.

    python tests/gpu/speed.py --report gpu.json

Device times are those of CUDA events around calls that the host has queued well ahead, into arrays
that exist; copy and work take turns, and a figure is the median over the turns.  The ratio is to a
copy that reads and writes as many bytes as the work has to at least.  Beside them, what one call
costs the host.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from rich.console import Console
from rich.progress import track
from rich.table import Table

import linscan

Call = Callable[[], Any]

GAMMA, LAM = 0.99, 0.95
W = GAMMA * LAM
TIME_LAST = [
    (256, 131072),
    (128, 65536),
    (8192, 2048),
    (4096, 128),
    (32768, 8),
    (16, 131072),
    (1, 1 << 24),
]
TIME_FIRST = [(2048, 16384), (128, 65536)]
CACHE = 1 << 28
"""Bytes: of smaller arrays there are as many, used in turn, as no cache holds."""
TURNS = 15


class Work(NamedTuple):
    """A call per set of operands, and the bytes per element that have to move."""

    name: str
    size: int
    make: Callable[[tuple[int, int], int], Call]


# What is measured --------------------------------------------------------------------------------


def scan_full(shape: tuple[int, int], axis: int) -> Call:
    """A multiplier per element."""
    a, b, out = multipliers(shape), normal(shape), normal(shape)
    return lambda: linscan.scan(a, b, axis=axis, out=out)


def scan_constant(shape: tuple[int, int], axis: int) -> Call:
    """One multiplier."""
    b, out = normal(shape), normal(shape)
    return lambda: linscan.scan(W, b, axis=axis, out=out)


def scan_reverse(shape: tuple[int, int], axis: int) -> Call:
    """A multiplier per element, from the last step to the first."""
    a, b, out = multipliers(shape), normal(shape), normal(shape)
    return lambda: linscan.scan(a, b, axis=axis, reverse=True, out=out)


def backward(shape: tuple[int, int], axis: int) -> Call:
    """The gradients of the multipliers and of the terms."""
    a, b = multipliers(shape).requires_grad_(), normal(shape).requires_grad_()
    x = linscan.scan(a, b, axis=axis)
    g = normal(shape)
    return lambda: torch.autograd.grad(x, (a, b), g, retain_graph=True)


def gae(shape: tuple[int, int], axis: int) -> Call:
    """Rewards and values to advantages and returns."""
    rewards, values = normal(shape), normal(shape)
    out = normal(shape), normal(shape)
    return lambda: linscan.gae(rewards, values, gamma=GAMMA, lam=LAM, axis=axis, out=out)


def gae_flags(shape: tuple[int, int], axis: int) -> Call:
    """The same, with episodes that end."""
    rewards, values, flags = normal(shape), normal(shape), multipliers(shape) > 0.999
    out = normal(shape), normal(shape)
    keywords: dict[str, Any] = {"gamma": GAMMA, "lam": LAM, "axis": axis, "out": out}
    return lambda: linscan.gae(rewards, values, terminated=flags, **keywords)


def vtrace(shape: tuple[int, int], axis: int) -> Call:
    """Ratios, rewards and values to targets, advantages and errors."""
    log_rhos, rewards, values = normal(shape), normal(shape), normal(shape)
    out = normal(shape), normal(shape), normal(shape)
    return lambda: linscan.vtrace(log_rhos, rewards, values, gamma=GAMMA, axis=axis, out=out)


WORK = [
    Work("scan, full a", 12, scan_full),
    Work("scan, full a, reverse", 12, scan_reverse),
    Work("scan, constant a", 8, scan_constant),
    Work("backward", 20, backward),
    Work("gae", 16, gae),
    Work("gae, flags", 17, gae_flags),
    Work("vtrace", 24, vtrace),
]


def normal(shape: tuple[int, int]) -> Any:
    """Standard normal numbers."""
    return torch.randn(shape, device="cuda")


def multipliers(shape: tuple[int, int]) -> Any:
    """Numbers in 0.9 .. 1."""
    return 0.9 + torch.rand(shape, device="cuda") / 10


def copy(size: int) -> Call:
    """A copy that reads and writes so many bytes in sum."""
    source, target = torch.ones(2, max(1, size // 8), device="cuda")
    return lambda: target.copy_(source)


# How it is measured ------------------------------------------------------------------------------


def device_times(groups: Sequence[Sequence[Call]], turns: int = TURNS) -> list[list[float]]:
    """Seconds per call of each group, per turn; the calls of a group differ in operands only."""
    for call in (call for group in groups for call in group):
        call()
    torch.cuda.synchronize()
    counts = [max(3, len(group)) for group in groups]
    times: list[list[float]] = [[] for _ in groups]
    for _ in range(turns):
        for group, count, found in zip(groups, counts, times, strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(count * 400_000)  # the host queues the calls meanwhile
            start.record()
            for i in range(count):
                group[i % len(group)]()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) / 1e3 / count)
    return times


def host_time(call: Call, count: int = 300) -> float:
    """Seconds until a call returns, the device having almost nothing to do."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    taken = (time.perf_counter() - start) / count
    torch.cuda.synchronize()
    return taken


def compare(work: Work, shape: tuple[int, int], axis: int) -> dict[str, Any]:
    """One line of the table."""
    line = {"work": work.name, "shape": shape, "time": "last" if axis else "first"}
    size = work.size * shape[0] * shape[1]
    sets = range(min(64, -(-CACHE // size)))
    try:
        copies = [copy(size) for _ in sets]
        beside, times = device_times([copies, [work.make(shape, axis) for _ in sets]])
    except Exception as failure:  # the other lines are wanted all the same
        return line | {"failed": in_a_line(failure)}
    return line | {
        "seconds": statistics.median(times),
        "copy": statistics.median(beside),
        "ratio": statistics.median(x / y for x, y in zip(times, beside, strict=True)),
    }


def in_a_line(failure: Exception) -> str:
    """Its type, and the beginning of what it says."""
    return f"{type(failure).__name__}: {failure}".splitlines()[0][:200]


def bandwidth() -> float:
    """Bytes per second of a large copy, read and written."""
    size = 4 << 30
    return size / statistics.median(device_times([[copy(size)]])[0])


def host_costs() -> dict[str, float]:
    """Seconds per call on 8 x 128."""
    shape = (8, 128)
    return {work.name: host_time(work.make(shape, -1)) for work in WORK}


# Other ways --------------------------------------------------------------------------------------


def gae_loop(rewards: Any, values: Any) -> Any:
    """A Python loop over time."""
    advantages = torch.empty_like(rewards)
    advantage, value = torch.zeros(2, rewards.shape[0], device="cuda")
    for t in range(rewards.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + GAMMA * value - values[:, t]
        advantage = delta + W * advantage
        value = values[:, t]
        advantages[:, t] = advantage
    return advantages, advantages + values


def gae_chunks(rewards: Any, values: Any, size: int) -> Any:
    """The chunk scan: a matrix of powers for each chunk, and a loop over the chunks."""
    rows, steps = rewards.shape
    following = torch.nn.functional.pad(values[:, 1:], (0, 1))
    deltas = (rewards + GAMMA * following - values).flip(-1)
    padded = torch.nn.functional.pad(deltas, (0, -steps % size)).view(rows, -1, size)
    t = torch.arange(size, device="cuda")
    distance = t[None, :] - t[:, None]
    powers = torch.where(distance >= 0, W ** distance.clamp(min=0).double(), 0.0).float()
    x = padded @ powers
    weights = (W ** (t + 1).double()).float()
    for n in range(1, x.shape[1]):
        x[:, n] += weights * x[:, n - 1, -1:]
    advantages = x.reshape(rows, -1)[:, :steps].flip(-1)
    return advantages, advantages + values


def compiled_associative_scan(a: Any, b: Any) -> Any:
    """torch's own scan, of pairs."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    return associative_scan(combine, (a, b), dim=-1, combine_mode="pointwise")[1]


def peers() -> Iterator[dict[str, Any]]:
    """Other ways and ours, whole calls with fresh results."""
    for shape in TIME_LAST:
        if shape[0] * shape[1] > 1 << 24 and shape not in TIME_LAST[:2]:
            continue
        rewards, values = normal(shape), normal(shape)
        ways: dict[str, Call] = {
            "linscan": lambda r=rewards, v=values: linscan.gae(r, v, gamma=GAMMA, lam=LAM)
        }
        for size in (64, 128, 256):
            if shape[1] >= size and shape[1] / size < 4096:
                ways[f"chunks of {size}"] = lambda r=rewards, v=values, n=size: gae_chunks(r, v, n)
        if shape[1] <= 2048:
            ways["loop"] = lambda r=rewards, v=values: gae_loop(r, v)
        yield from side_by_side("gae", shape, ways)
    scan = torch.compile(compiled_associative_scan)
    for shape in ((8192, 2048), (128, 65536)):
        a, b = multipliers(shape), normal(shape)
        ways = {
            "linscan": lambda a=a, b=b: linscan.scan(a, b),
            "associative_scan, compiled": lambda a=a, b=b: scan(a, b),
        }
        yield from side_by_side("scan, full a", shape, ways)


def side_by_side(name: str, shape: tuple[int, int], ways: dict[str, Call]) -> Iterator[Any]:
    """The time of each way, after a look at what it computes; a way that fails says so."""
    expected = None
    for way, call in ways.items():
        line: dict[str, Any] = {"work": name, "shape": shape, "way": way}
        try:
            found = call()
            found = found[0] if isinstance(found, tuple) else found
            expected = found if expected is None else expected
            line["error"] = float((found - expected).abs().max() / expected.abs().max())
            line["seconds"] = statistics.median(device_times([[call]], turns=5)[0])
        except Exception as failure:  # another's code: what it cannot do is a result
            line["failed"] = in_a_line(failure)
        yield line


# CuPy --------------------------------------------------------------------------------------------


def by_cupy() -> Iterator[dict[str, Any]]:
    """What CuPy does beside Triton and beside its own copy."""
    import cupy

    rules: dict[str, dict[str, Any]] = {"scan": {}, "gae": {"gamma": GAMMA, "lam": LAM}}
    for shape, axis in [*((shape, -1) for shape in TIME_LAST[2:]), (TIME_FIRST[0], 0)]:
        for size, (name, rule) in zip((12, 16), rules.items(), strict=True):
            yield from side_by_side(name, shape, ways_of_cupy(name, shape, {"axis": axis, **rule}))
            source, target = cupy.ones((2, size * shape[0] * shape[1] // 8), "float32")
            times = device_times([[partial(cupy.copyto, target, source)]], turns=5)
            seconds = statistics.median(times[0])
            yield {"work": name, "shape": shape, "way": "cupy's copy", "seconds": seconds}


def ways_of_cupy(name: str, shape: tuple[int, int], options: dict[str, Any]) -> dict[str, Call]:
    """On torch's tensors, on arrays of its own, and from the one to the other and back."""
    import cupy

    work, to_cupy, to_torch = getattr(linscan, name), cupy.from_dlpack, torch.from_dlpack
    x, y = multipliers(shape), normal(shape)
    u, v = to_cupy(x), to_cupy(y)

    def tensor(result: Any) -> Any:
        return to_torch(result[0] if isinstance(result, tuple) else result)

    return {
        "triton": lambda: work(x, y, backend="triton", **options),
        "cupy, tensors": lambda: work(x, y, backend="cupy", **options),
        "cupy, arrays": lambda: tensor(work(u, v, **options)),
        "cupy, by DLPack": lambda: tensor(work(to_cupy(x), to_cupy(y), **options)),
    }


def host_costs_of_cupy() -> dict[str, float]:
    """Seconds per call on 8 x 128: of torch's tensors, and of arrays."""
    import cupy

    x = cupy.ones((8, 128), "float32")
    y = torch.ones((8, 128), device="cuda")
    gae: dict[str, Any] = {"gamma": GAMMA, "lam": LAM, "backend": "cupy"}
    return {
        "scan, constant a: cupy, arrays": host_time(lambda: linscan.scan(W, x)),
        "scan, constant a: cupy, tensors": host_time(lambda: linscan.scan(W, y, backend="cupy")),
        "gae: cupy, arrays": host_time(lambda: linscan.gae(x, x, **gae)),
        "gae: cupy, tensors": host_time(lambda: linscan.gae(y, y, **gae)),
    }


# What Triton does --------------------------------------------------------------------------------


@triton.jit
def _after(a, x, b, y):  # type: ignore[no-untyped-def]
    return b * a, b * x + y


@triton.jit
def _backwards(a, b, x, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]
    t = tl.arange(0, STEPS)
    _, state = tl.associative_scan((tl.load(a + t), tl.load(b + t)), 0, _after, reverse=True)
    tl.store(x + t, state)


def reverse_scan_of_pairs() -> dict[str, float]:
    """The error of ``tl.associative_scan(..., reverse=True)``, which linscan does not use."""
    errors = {}
    for warps in (1, 4, 8):
        for steps in (32, 1024, 4096):
            a, b = multipliers((1, steps))[0], normal((1, steps))[0]
            x = torch.empty_like(b)
            launch: Any = _backwards[(1,)]
            launch(a, b, x, STEPS=steps, num_warps=warps, enable_fp_fusion=True)
            expected = linscan.scan(a.double().cpu(), b.double().cpu(), reverse=True).cuda()
            error = (x - expected).abs().max() / expected.abs().max()
            errors[f"{steps} steps, {warps} warps"] = float(error)
    return errors


# What is told ------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """Where the figures come from."""
    facts = {"GPU": torch.cuda.get_device_name(), "Python": platform.python_version()}
    facts["CUDA"] = str(torch.version.cuda or torch.version.hip)
    for package in ("linscan", "torch", "triton", "cupy-cuda12x", "cupy-cuda13x"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def show(report: dict[str, Any]) -> None:
    """Tables for people."""
    console = Console(width=110)
    console.print(", ".join(f"{name} {value}" for name, value in report["machine"].items()))
    console.print(f"copy: {report['bandwidth'] / 1e12:.2f} TB/s read and written")
    table = Table("work", "shape", "time", "ms", "copy, ms", "ratio", title="beside a copy")
    for line in report["speed"]:
        if "failed" in line:
            figures = [line["failed"]]
        else:
            figures = [f"{1e3 * line[key]:.4f}" for key in ("seconds", "copy")]
            figures.append(f"{line['ratio']:.2f}")
        table.add_row(line["work"], str(line["shape"]), line["time"], *figures)
    console.print(table)
    table = Table("work", "microseconds", title="host cost of a call, 8 x 128")
    for work, seconds in report["host"].items():
        table.add_row(work, f"{1e6 * seconds:.1f}")
    console.print(table)
    table = Table("work", "shape", "way", "ms", "error", title="other ways")
    for line in report["peers"]:
        found = line.get("failed") or f"{1e3 * line['seconds']:.4f}"
        error = f"{line['error']:.1e}" if "error" in line else ""
        table.add_row(line["work"], str(line["shape"]), line["way"], found, error)
    console.print(table)
    if "cupy" in report:
        console.print(f"cupy is not measured: {report['cupy']}", markup=False)
    table = Table("tile", "error", title="associative_scan(reverse=True) of pairs, not used")
    for tile, error in report["reverse=True"].items():
        table.add_row(tile, f"{error:.1e}")
    console.print(table)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="Speed of linscan on this GPU.")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the figures there")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    report: dict[str, Any] = {"machine": machine(), "bandwidth": bandwidth()}
    shapes = [(shape, -1) for shape in TIME_LAST] + [(shape, 0) for shape in TIME_FIRST]
    report["speed"] = [
        compare(work, shape, axis)
        for shape, axis in track(shapes, "beside a copy", transient=True)
        for work in WORK
    ]
    report["host"] = host_costs()
    report["reverse=True"] = reverse_scan_of_pairs()
    report["peers"] = list(peers())
    if linscan.backends()["cupy"] is None:
        report["peers"] += by_cupy()
        report["host"] |= host_costs_of_cupy()
    else:
        report["cupy"] = linscan.backends()["cupy"]  # why it is not measured
    show(report)
    if given.report:
        given.report.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
