"""Which kernel goes through a problem, in tiles of what size: one small table, no trials.

Needs neither torch nor triton, so that a choice can be explained where neither is installed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from linscan._problem import ITEMSIZE, ScanProblem
from linscan._protocol import Kernel

Strides = tuple[int, int, int]

TILE = {
    "float16": (2048, 8),
    "bfloat16": (2048, 8),
    "float32": (2048, 8),
    "float64": (1024, 8),
    "complex64": (512, 4),
    "complex128": (256, 4),
}
"""Steps that the row kernel does at once, and the warps of 32 that do them, by dtype: as many as
fit into the registers twice, so that two programs share a multiprocessor."""

ADJOINING = 32
"""From as many neighbouring lanes on, each is a column of its own: the loop needs no products."""
SHORT = 8
"""Fewer steps than this are not worth a tile."""
MANY_COLUMNS = 1 << 16
"""From as many columns on, accesses are 16 bytes wide; fewer keep more steps in flight instead."""
FEW_ROWS, FEW_COLUMNS = 96, 1 << 12
"""With fewer than this, time is cut into chunks, so that every multiprocessor has work."""
PROGRAMS = 1024
"""About as many programs then."""


@dataclass(frozen=True, slots=True)
class Regime:
    """How a kernel goes through a problem."""

    kernel: Literal["rows", "columns"]
    lane: Literal[0, 2]
    """The dimension whose neighbours are the lanes of a program; the other one has the planes."""
    lanes: int
    """Per program."""
    steps: int
    """Per tile, or loaded at once."""
    vector: int
    """Elements per access of 16 bytes."""
    warps: int
    chunk: int = 0
    """Tiles per chunk; 0: time is not cut."""

    def planes(self, problem: ScanProblem) -> int:
        """How often there are lanes."""
        return problem.inner if self.lane == 0 else problem.outer

    def rows(self, problem: ScanProblem) -> int:
        """How many lanes there are in a plane."""
        return problem.outer if self.lane == 0 else problem.inner

    def blocks(self, problem: ScanProblem) -> int:
        """The programs per chunk."""
        return ceil(self.rows(problem) / self.lanes) * self.planes(problem)

    def tiles(self, problem: ScanProblem) -> int:
        """In how many tiles the kernel goes through time."""
        return ceil(problem.time / self.steps)

    def chunks(self, problem: ScanProblem) -> int:
        """Into how many chunks time is cut."""
        return ceil(self.tiles(problem) / self.chunk) if self.chunk else 1


def strides(shape: tuple[int, ...], given: tuple[int, ...]) -> Strides:
    """0 where an operand broadcasts, so that equal layouts have equal strides."""
    outer, time, inner = (0 if n == 1 else s for n, s in zip(shape, given, strict=True))
    return outer, time, inner


def regime(
    problem: ScanProblem, b: Strides, columns_from: int = ADJOINING, heavy: bool = False
) -> Regime:
    """The table, for inputs of such strides; ``heavy``: for code that does more than a scan."""
    outer, time, inner = problem.outer, problem.time, problem.inner
    lane: Literal[0, 2] = 2 if inner > 1 and (outer == 1 or b[2] <= b[0]) else 0
    lanes = outer if lane == 0 else inner
    vector = 16 // ITEMSIZE[problem.dtype]
    adjoining = 0 < b[lane] < b[1] or time == 1
    if time < SHORT or (adjoining and lanes >= columns_from):
        if outer * inner >= MANY_COLUMNS:
            chosen = Regime("columns", lane, 64 * vector, 4 if heavy else 8, vector, 2)
        else:
            chosen = Regime("columns", lane, 32, 16 if heavy else 32, 1, 1)
        return _chunked(chosen, problem, FEW_COLUMNS // 32, 16)
    tile, warps = TILE[problem.dtype]
    side = min(power_of_two(lanes), ADJOINING) if adjoining else 1
    steps = min(tile // side, power_of_two(time))
    side = max(side, min(tile // steps, power_of_two(lanes)))
    chosen = _chunked(
        Regime("rows", lane, side, steps, 1 if adjoining else vector, warps), problem, FEW_ROWS, 4
    )
    # Chunks, and resets beside an initial state, need more registers than 8 warps have.
    heavy = heavy or (warps == 8 and bool(chosen.chunk or (problem.reset and problem.initial)))
    return _halved(chosen) if heavy else chosen


def _chunked(chosen: Regime, problem: ScanProblem, few: int, least: int) -> Regime:
    """The same; in chunks if there would be few programs, each with many tiles."""
    programs, tiles = chosen.blocks(problem), chosen.tiles(problem)
    if programs >= few or tiles < least:
        return chosen
    size = problem.chunk_size
    return replace(chosen, chunk=ceil(size / chosen.steps if size else tiles * programs / PROGRAMS))


def _halved(chosen: Regime) -> Regime:
    """Tiles of half the size, by half the warps: so each has as many registers as it needs."""
    warps = max(1, chosen.warps // 2)
    if chosen.lanes > 1:
        return replace(chosen, lanes=chosen.lanes // 2, warps=warps)
    return replace(chosen, steps=chosen.steps // 2, warps=warps, chunk=2 * chosen.chunk)


def power_of_two(n: int) -> int:
    """The first that is not smaller."""
    return 1 << max(0, n - 1).bit_length()


def explain(problem: ScanProblem, heavy: bool = False) -> Kernel:
    """What would run for operands laid out as the problem's dimensions suggest."""
    outer, time, inner = problem.outer, problem.time, problem.inner
    chosen = regime(problem, strides((outer, time, inner), (time * inner, inner, 1)), heavy=heavy)
    if not chosen.chunk:
        return Kernel(chosen.kernel, problem.bytes_per_element)
    return Kernel(
        f"{chosen.kernel} in chunks: their totals, the scan of these, the scan from there",
        2 * problem.bytes_per_element - ITEMSIZE[problem.dtype],
        chunk_size=chosen.chunk * chosen.steps,
    )
