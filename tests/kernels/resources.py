"""What a compiled kernel uses: registers, spills, shared memory, and the width of its accesses."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import triton

Direction = Literal["load", "store"]

FULL = 16
"""Bytes of the widest access that every target has."""


@dataclass(frozen=True)
class Resources:
    """Of one kernel on one target.

    ``spills`` counts accesses to local memory (NVIDIA) or spilled vector registers (AMD).  ``load``
    and ``store`` are the bytes per access to global memory: the narrowest to a tile of numbers.  A
    tile of flags has as many elements and fewer bytes, and what there is one of per row or step (a
    state, a total, a multiplier) is no tile: neither is meant.
    """

    registers: int
    spills: int
    shared: int
    load: int
    store: int

    def faults(self, wide: bool = True) -> list[str]:
        """What must not be; ``wide``: whether accesses have to be."""
        found = [f"{self.spills} spills"] * (self.spills > 0)
        for direction in ("load", "store"):
            if wide and (width := getattr(self, direction)) < FULL:
                found.append(f"{direction}s {width} bytes wide")
        return found

    def __str__(self) -> str:
        return f"{self.registers} · {self.spills} · {self.shared} · {self.load}/{self.store}"


def resources(compiled: Any) -> Resources:
    """Read them from the machine code."""
    machine = _nvidia(compiled) if "cubin" in compiled.asm else _amd(compiled)
    tiles = list(_tile_accesses(compiled))
    return Resources(
        machine.registers,
        machine.spills,
        compiled.metadata.shared,
        _narrowest("load", machine.widths, tiles),
        _narrowest("store", machine.widths, tiles),
    )


class _Machine(NamedTuple):
    registers: int
    spills: int
    widths: dict[Direction, Counter[int]]
    """How many accesses to global memory there are of each width."""


def _nvidia(compiled: Any) -> _Machine:
    tools = Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = _output(tools / "cuobjdump", "-res-usage", file.name)
        code = _output(tools / "nvdisasm", "-c", file.name)
    widths: dict[Direction, Counter[int]] = {"load": Counter(), "store": Counter()}
    spills = 0
    for opcode in re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", code, re.M):
        name, *modifiers = opcode.split(".")
        spills += name in ("LDL", "STL")
        if name in ("LDG", "LDGSTS", "STG"):
            sizes = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
            width = next((sizes[m] for m in modifiers if m in sizes), 4)
            widths["store" if name == "STG" else "load"][width] += 1
    return _Machine(_number(r"REG:(\d+)", usage), spills, widths)


def _amd(compiled: Any) -> _Machine:
    code = compiled.asm["amdgcn"]
    widths: dict[Direction, Counter[int]] = {"load": Counter(), "store": Counter()}
    sizes = {"byte": 1, "short": 2, "dword": 4}
    pattern = r"^\s*(?:global|buffer|flat)_(load|store)_[us]?(byte|short|dword)(?:x(\d))?"
    for direction, kind, count in re.findall(pattern, code, re.M):
        widths[direction][sizes[kind] * int(count or 1)] += 1
    return _Machine(
        _number(r"\.vgpr_count:\s+(\d+)", code),
        _number(r"\.vgpr_spill_count:\s+(\d+)", code),
        widths,
    )


class _Access(NamedTuple):
    direction: Direction
    size: int
    """Bytes of one element; 1 for flags."""
    elements: int
    per_thread: int


def _tile_accesses(compiled: Any) -> Iterator[_Access]:
    """As Triton's own last intermediate form has them, before they become instructions."""
    code = compiled.asm["ttgir"]
    threads = _number(r'"ttg.threads-per-warp" = (\d+)', code) * _number(
        r'"ttg.num-warps" = (\d+)', code
    )
    pattern = r"(?:tt\.|buffer_|async_copy_)(load|store|global_to_local)\b[^\n]* : ([^\n]*)"
    for operation, kind in re.findall(pattern, code):
        direction: Direction = "store" if operation == "store" else "load"
        tile = re.search(r"tensor<((?:\d+x)+)(?:!tt\.ptr<)?([a-z]+)(\d+)", kind)
        if tile is None:
            yield _Access(direction, 0, 1, 1)
            continue
        shape, _, bits = tile.groups()
        elements = prod(map(int, shape.split("x")[:-1]))
        yield _Access(direction, max(1, int(bits) // 8), elements, -(-elements // threads))


def _narrowest(
    direction: Direction, widths: dict[Direction, Counter[int]], tiles: list[_Access]
) -> int:
    """The narrowest access to a tile of numbers, when all others are set aside."""
    mine = [access for access in tiles if access.direction == direction]
    if mine and not widths[direction]:
        raise LookupError(f"no {direction} is recognised in the machine code")
    whole = max(access.elements for access in tiles)
    most = max(access.per_thread for access in tiles)
    lanes = FULL // min((access.size for access in tiles if access.size > 1), default=FULL)
    aside = 0
    for access in mine:
        if access.elements < whole:  # each thread loads what it needs, others perhaps too
            aside += max(access.per_thread, min(access.elements, most))
        elif access.size == 1:
            aside += -(-access.per_thread // lanes)
    narrow = sorted(width for width in widths[direction].elements() if width < FULL)
    return FULL if len(narrow) <= aside else narrow[0]


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise LookupError(f"no {pattern!r} in the compiler's output")
    return int(found[1])


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
