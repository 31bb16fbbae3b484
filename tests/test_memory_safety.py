"""Compiled kernels touch nothing beside their arrays: those lie next to pages without access."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

import linscan

pytest.importorskip("numba", reason="only numba takes addresses")

from linscan_numba import _streaming, _threads

LIBC: Any = ctypes.CDLL(None)
pytestmark = pytest.mark.skipif(
    not hasattr(LIBC, "mprotect"), reason="no mprotect in this system's C library"
)
NO_ACCESS = 0
SIZES = (1, 1, 2, 3, 7, 8, 15, 16, 17, 33, 40)
TIMES = (1, 2, 5, 16, 63, 64, 65, 130, 1030)


class Memory:
    """Makes arrays that end, or begin, where a page without access begins or ends."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.blocks: list[mmap.mmap] = []

    def array(self, x: Any) -> Any:
        """``x`` there, with its axes in memory in any order."""
        x = np.asarray(x)
        order = [int(k) for k in self.rng.permutation(x.ndim)]
        turned = x.transpose(order).copy(order="C")
        pages = -(-turned.nbytes // mmap.PAGESIZE) + 2
        block = mmap.mmap(-1, pages * mmap.PAGESIZE)
        self.blocks.append(block)
        base = ctypes.addressof(ctypes.c_char.from_buffer(block))
        last = (pages - 1) * mmap.PAGESIZE
        first = mmap.PAGESIZE if self.rng.random() < 0.3 else last - turned.nbytes
        y = np.frombuffer(block, turned.dtype, turned.size, first).reshape(turned.shape)
        y[...] = turned
        for page in (base, base + last):
            assert LIBC.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, NO_ACCESS) == 0
        return y.transpose([order.index(k) for k in range(x.ndim)])


@pytest.fixture(params=range(40))
def rng(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    generator = np.random.default_rng(request.param)
    parts, streams = int(generator.choice([1, 2, 3, 7])), bool(generator.random() < 0.5)
    monkeypatch.setattr(_threads, "parts_of", lambda work: parts)
    monkeypatch.setattr(_streaming, "pays", lambda size: streams)
    return generator


def shape_of(rng: np.random.Generator) -> tuple[list[int], int]:
    """A shape, and the axis of time."""
    rank = int(rng.integers(1, 4))
    shape = [int(rng.choice(SIZES)) for _ in range(rank)]
    axis = int(rng.integers(rank))
    shape[axis] = int(rng.choice(TIMES))
    if rank == 2 and rng.random() < 0.2:
        shape[1 - axis] = int(rng.choice([300, 700]))
    return shape, axis


def some(shape: list[int], rng: np.random.Generator) -> list[int]:
    """A shape that broadcasts to it."""
    return [1 if rng.random() < 0.3 else n for n in shape]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_scans(dtype: str, rng: np.random.Generator) -> None:
    for _ in range(6):
        memory, (shape, axis) = Memory(rng), shape_of(rng)
        rest = shape[:axis] + shape[axis + 1 :]
        b = memory.array(rng.standard_normal(shape).astype(dtype))
        a: Any = float(rng.uniform(-1, 1))
        if rng.random() < 0.7:
            a = memory.array(rng.uniform(-1, 1, some(shape, rng)).astype(dtype))
        options: dict[str, Any] = {"axis": axis, "reverse": bool(rng.random() < 0.5)}
        if rng.random() < 0.5:
            initial = np.asarray(rng.standard_normal(some(rest, rng)), dtype)
            options["initial"] = memory.array(initial)
        if rng.random() < 0.4:
            options["reset"] = memory.array(rng.random(some(shape, rng)) < 0.2)
        expected = linscan.scan(a, b, backend="numpy", **options)
        into = [None, memory.array(np.zeros(shape, dtype)), b][rng.integers(3)]
        x = linscan.scan(a, b, backend="numba", out=into, **options)
        tolerance = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-9}[dtype]
        np.testing.assert_allclose(x, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["gae", "discounted_returns", "td_lambda", "vtrace"])
def test_estimators(name: str, dtype: str, rng: np.random.Generator) -> None:
    for _ in range(4):
        memory, (shape, axis) = Memory(rng), shape_of(rng)
        rest = shape[:axis] + shape[axis + 1 :]

        def numbers(shape: list[int], memory: Memory = memory) -> Any:
            return memory.array(np.asarray(rng.standard_normal(shape), dtype))

        def flags(rate: float, shape: list[int] = shape, memory: Memory = memory) -> Any:
            return memory.array(rng.random(shape) < rate)

        options: dict[str, Any] = {"gamma": 0.9, "axis": axis}
        arrays = [
            numbers(shape) for _ in range({"discounted_returns": 1, "vtrace": 3}.get(name, 2))
        ]
        if name != "discounted_returns":
            options["lam"] = 0.8
        if rng.random() < 0.4:
            options["last_values"] = numbers(rest)
        elif rng.random() < 0.4 and name != "discounted_returns":
            options["next_values"] = numbers(shape)
        if rng.random() < 0.5:
            options["terminated"] = flags(0.2)
        if rng.random() < 0.5:
            options["truncated"] = flags(0.2)
            if "next_values" not in options:
                options["truncation_values"] = numbers(shape)
        if rng.random() < 0.4:
            options["mask"] = flags(0.8)
        expected = getattr(linscan, name)(*arrays, backend="numpy", **options)
        count = len(expected) if isinstance(expected, tuple) else 1
        out = tuple(memory.array(np.zeros(shape, dtype)) for _ in range(count))
        for into in (None, out if count > 1 else out[0]):
            found = getattr(linscan, name)(*arrays, backend="numba", **options, out=into)
            for x, y in zip(
                *((z if isinstance(z, tuple) else (z,)) for z in (found, expected)), strict=True
            ):
                tolerance = {"float32": 1e-3, "float64": 1e-9}[dtype]
                np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)
