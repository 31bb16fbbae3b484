"""The array libraries: how each makes arrays, copies, waits and tells the time."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from time import perf_counter
from typing import Any

import numpy as np

Call = Callable[[], Any]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Arrays(ABC):
    """One library's arrays, on one device."""

    @abstractmethod
    def array(self, x: np.ndarray) -> Any:
        """``x`` in this library, on this device."""

    @abstractmethod
    def copy(self, size: int) -> Call:
        """A copy of so many bytes, as fast as the library can."""

    @abstractmethod
    def wait(self) -> None:
        """Until everything is done that was begun."""

    @abstractmethod
    def seconds(self, call: Call) -> float:
        """How long the machine is at it."""


class OnHost(Arrays):
    """Arrays in the host's memory: a call that returns is done."""

    def wait(self) -> None:
        """There is nothing to wait for."""

    def seconds(self, call: Call) -> float:
        """By the clock on the wall."""
        start = perf_counter()
        call()
        return perf_counter() - start


class Numpy(OnHost):
    """NumPy arrays."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(CORES)

    def array(self, x: np.ndarray) -> np.ndarray:
        """``x`` itself."""
        return x

    def copy(self, size: int) -> Call:
        """On a thread per core."""
        source, target = (np.array_split(x, CORES) for x in np.ones((2, size), np.uint8))
        return lambda: list(self.pool.map(np.copyto, target, source))


class OnDevice(Arrays):
    """Arrays in the memory of a device, which has a queue and a clock of its own."""

    flush: Call
    """Moves more memory than the device's cache holds; the host does not wait for it."""

    @abstractmethod
    def event(self) -> Any:
        """A mark for the device's queue."""

    @abstractmethod
    def milliseconds(self, start: Any, stop: Any) -> float:
        """What the device's clock says between two marks."""

    @abstractmethod
    def passed(self, event: Any) -> bool:
        """Whether the device has come to a mark."""

    @abstractmethod
    def peak(self, call: Call) -> int:
        """The bytes of device memory at the height of a call, beyond those held before it."""

    def seconds(self, call: Call) -> float:
        """How long the device is at it.  The time that the host takes to queue it does not count.

        For that the device must still be flushing its cache when all of the call is queued; if it
        was not, it is given more to flush.  Only calls that wait for the device themselves are
        timed with what their host does.
        """
        for flushes in (4, 16, 64):
            start, stop = self.event(), self.event()
            for _ in range(flushes):
                self.flush()
            start.record()
            call()
            stop.record()
            queued_in_time = not self.passed(start)
            stop.synchronize()
            if queued_in_time:
                break
        return self.milliseconds(start, stop) / 1e3


class Tensors(Arrays):
    """torch tensors."""

    device: str

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def array(self, x: np.ndarray) -> Any:
        """A tensor; on the CPU, over the same memory."""
        return self.torch.from_numpy(x).to(self.device)

    def copy(self, size: int) -> Call:
        """As torch does it."""
        source, target = self.torch.ones((2, size), dtype=self.torch.uint8, device=self.device)
        return lambda: target.copy_(source)


class Torch(Tensors, OnHost):
    """torch tensors in the host's memory."""

    device = "cpu"


class TorchCuda(Tensors, OnDevice):
    """torch tensors on a GPU."""

    device = "cuda"

    def __init__(self) -> None:
        super().__init__()
        if not self.torch.cuda.is_available():
            raise NotImplementedError("torch finds no GPU")
        self.flush = self.copy(128 << 20)

    def wait(self) -> None:
        """Until the GPU is idle."""
        self.torch.cuda.synchronize()

    def event(self) -> Any:
        """A CUDA event."""
        return self.torch.cuda.Event(enable_timing=True)

    def milliseconds(self, start: Any, stop: Any) -> float:
        """Between two events."""
        return float(start.elapsed_time(stop))

    def passed(self, event: Any) -> bool:
        """As torch says."""
        return bool(event.query())

    def peak(self, call: Call) -> int:
        """As torch's allocator counts."""
        before = self.torch.cuda.memory_allocated()
        self.torch.cuda.reset_peak_memory_stats()
        call()
        return int(self.torch.cuda.max_memory_allocated() - before)


class Cupy(OnDevice):
    """CuPy arrays."""

    def __init__(self) -> None:
        import cupy

        if not cupy.cuda.is_available():
            raise NotImplementedError("CuPy finds no GPU")
        self.cupy = cupy
        self.flush = self.copy(128 << 20)

    def array(self, x: np.ndarray) -> Any:
        """On the GPU."""
        return self.cupy.asarray(x)

    def copy(self, size: int) -> Call:
        """As CuPy does it."""
        source, target = self.cupy.ones((2, size), self.cupy.uint8)
        return lambda: self.cupy.copyto(target, source)

    def wait(self) -> None:
        """Until the GPU is idle."""
        self.cupy.cuda.get_current_stream().synchronize()

    def event(self) -> Any:
        """A CUDA event."""
        return self.cupy.cuda.Event()

    def milliseconds(self, start: Any, stop: Any) -> float:
        """Between two events."""
        return float(self.cupy.cuda.get_elapsed_time(start, stop))

    def passed(self, event: Any) -> bool:
        """As CuPy says."""
        return bool(event.done)

    def peak(self, call: Call) -> int:
        """As CuPy's pool hands out and gets back."""
        changes: list[int] = []

        class Record(self.cupy.cuda.MemoryHook):  # type: ignore[misc, name-defined]
            def malloc_postprocess(self, **event: int) -> None:
                changes.append(event["mem_size"])

            def free_postprocess(self, **event: int) -> None:
                changes.append(-event["mem_size"])

        with Record():
            call()
        return max(accumulate(changes), default=0)
