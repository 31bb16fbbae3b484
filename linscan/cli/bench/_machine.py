"""The machine: what it is, how much memory is free, how much a call takes, and when it is done."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from linscan.cli._here import CORES, PACKAGES, installed
from linscan.cli.bench._jobs import Setting, convert

SMALL = 1 << 20
"""NumPy copies fewer bytes than this on one thread: to hand them out would take longer."""
PROCESS = Path("/proc/self")


def describe(setting: Setting) -> dict[str, str]:
    """Where the figures come from."""
    facts = {"device": cpu()}
    if setting.device != "cpu":
        facts["device"] = f"{sys.modules['torch'].cuda.get_device_name(setting.device)}"
    facts |= {"Python": platform.python_version(), "system": platform.system()}
    versions = {package: installed(package) for package in PACKAGES}
    facts |= {package: found for package, found in versions.items() if found}
    facts["copy"] = f"numpy.copyto, threads: {CORES} (1 below 1 MiB)"
    if setting.arrays == "torch":
        facts["copy"] = "torch.Tensor.copy_"
        if setting.device == "cpu":
            facts["copy"] += f", threads: {sys.modules['torch'].get_num_threads()}"
    return facts


def cpu() -> str:
    """The model, and how many of its cores this process may use."""
    model, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        lines = (line.partition(":") for line in info.read_text().splitlines())
        model = next((value for key, _, value in lines if key.strip() == "model name"), model)
    return f"{model.strip()}, {CORES} cores"


def busy() -> str | None:
    """What else runs on the CPU, if that is enough to spoil the figures."""
    if not hasattr(os, "getloadavg"):
        return None
    load = os.getloadavg()[0]
    if load < CORES / 2:
        return None
    return f"The load is {load:.1f} on {CORES} cores: on an idle machine the figures mean more."


def copier(setting: Setting, size: int) -> Callable[[], Any]:
    """A copy on all cores where the job's data lives, of ``size`` bytes read and written in sum."""
    source, target = (
        convert(np.ones(max(1, size // 8), np.float32), setting._replace(dtype="float32"))
        for _ in range(2)
    )
    if setting.arrays == "torch":
        return lambda: target.copy_(source)
    if size < SMALL:
        return lambda: np.copyto(target, source)
    parts = [np.array_split(x, CORES) for x in (target, source)]
    pool = ThreadPoolExecutor(CORES)
    return lambda: list(pool.map(np.copyto, *parts))


def synchronize(device: str) -> None:
    """Wait until the device has nothing left to do."""
    if device != "cpu":
        sys.modules["torch"].cuda.synchronize(device)


def seconds(call: Callable[[], Any], count: int, device: str) -> float:
    """The wall time of one call, averaged over ``count`` of them."""
    synchronize(device)
    start = perf_counter()
    for _ in range(count):
        call()
    synchronize(device)
    return (perf_counter() - start) / count


def free_bytes(device: str) -> int | None:
    """How much memory could be allocated; None where nothing says so."""
    if device != "cpu":
        free: int = sys.modules["torch"].cuda.mem_get_info(device)[0]
        return free
    free_of = []
    if Path("/proc/meminfo").exists():
        free_of.append(field(Path("/proc/meminfo"), "MemAvailable"))
    group = Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.current"
    if limit.exists() and used.exists() and limit.read_text().strip().isdigit():
        free_of.append(int(limit.read_text()) - int(used.read_text()))
    return min(free_of, default=None)


class Watched(NamedTuple):
    """A call that was watched."""

    result: Any
    seconds: float
    peak_bytes: int | None
    """The most memory that it held beyond what was held before; None where nobody counts."""


def watch(call: Callable[[], Any], device: str) -> Watched:
    """Watch a call.  On a device torch counts its memory, and on Linux the kernel does."""
    if device != "cpu":
        memory = sys.modules["torch"].cuda
        memory.reset_peak_memory_stats(device)
        before = memory.memory_allocated(device)
        result, time = timed(call, device)
        return Watched(result, time, memory.max_memory_allocated(device) - before)
    reset = PROCESS / "clear_refs"
    if not os.access(reset, os.W_OK):
        return Watched(*timed(call, device), None)
    give_back_freed()
    reset.write_text("5")  # the high-water mark starts anew from what is resident
    before = field(PROCESS / "status", "VmRSS")
    result, time = timed(call, device)
    return Watched(result, time, max(0, field(PROCESS / "status", "VmHWM") - before))


def timed(call: Callable[[], Any], device: str) -> tuple[Any, float]:
    """The result, and the time of the one call."""
    results: list[Any] = []
    time = seconds(lambda: results.append(call()), 1, device)
    return results.pop(), time


def give_back_freed() -> None:
    """Have the C library return what it keeps for later, which would hide what a call takes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def field(file: Path, name: str) -> int:
    """A figure in kB from one of Linux's lists, in bytes."""
    return next(
        1024 * int(line.split()[1])
        for line in file.read_text().splitlines()
        if line.startswith(f"{name}:")
    )
