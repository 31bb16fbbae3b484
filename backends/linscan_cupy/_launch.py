"""Which threads take which steps, and the words that tell a kernel so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from linscan import _arrays
from linscan._problem import ACCUMULATE, ITEMSIZE
from linscan_cupy._device import THREADS, Cuda, Words

ELEMENTS = {
    "float16": "Half",
    "bfloat16": "Bfloat",
    "float32": "float",
    "float64": "double",
    "complex64": "Complex<float>",
    "complex128": "Complex<double>",
}
"""Their types in the source."""

WARP = 32
JOB = 10
"""The words of a job: sizes first, then whether vectors may be read, totals and states."""
WIDE, TOTALS, STATES = range(7, JOB)
TOTAL, STATE = 12, 4
"""The room for a chunk's total and for the state before it, in states, as in the source."""

BLOCK = (THREADS,)

FEW_ROWS = 128
"""Fewer rows than this leave most of a device idle, a block each; they are cut into chunks."""
ENOUGH_ROWS = 1 << 13
"""As many keep it busy with a warp each."""
FEW_COLUMNS = 1 << 14
"""Fewer columns than this do, a thread each."""
BLOCKS, COLUMNS = 512, 1 << 16
"""How many chunks there are, of rows and of columns, together."""
SHORT_CHUNK = 128
"""Columns are not cut shorter, nor into fewer than FEW_CHUNKS."""
FEW_CHUNKS = 4


def steps_per_thread(dtype: str) -> int:
    """As in the source: a thread has 32 bytes, or 8 steps."""
    return min(8, 32 // ITEMSIZE[dtype])


class Tiling(NamedTuple):
    """How rows and their steps are shared out."""

    group: int
    """Threads per row: 1, 8, 32 or 256."""
    steps: int
    """Consecutive steps per thread."""
    chunks: int
    """Per row; one is the whole row."""
    length: int
    """Steps per chunk, in whole tiles."""

    @property
    def kernel(self) -> str:
        """What it is called in explanations."""
        if self.chunks > 1:
            return "reduce, scan, rescan " + ("columns" if self.group == 1 else "rows")
        return {1: "column per thread", THREADS: "row per block"}.get(self.group, "rows per block")


def tiling(dtype: str, rows: int, time: int, side_by_side: bool, chunk_size: int | None) -> Tiling:
    """The table.  ``side_by_side``: the rows are neighbours in memory, not the steps."""
    steps = steps_per_thread(dtype)
    if side_by_side or time <= steps:
        group = 1
        cut = rows < FEW_COLUMNS and time >= FEW_CHUNKS * SHORT_CHUNK
        chunks = COLUMNS // rows if cut else 1
        length = max(SHORT_CHUNK, -(-time // chunks))
    else:
        if time <= 8 * steps:
            group = 8
        elif time <= 4 * WARP * steps or rows >= ENOUGH_ROWS:
            group = WARP
        else:
            group = THREADS
        tile = group * steps
        chunks = BLOCKS // rows if group == THREADS and rows < FEW_ROWS else 1
        length = max(2 * tile, -(-time // chunks))
        if chunk_size is not None and time > THREADS * steps:
            group = THREADS
    if chunk_size is not None and group in (1, THREADS):
        length = chunk_size
    elif chunks == 1 or length >= time or group not in (1, THREADS):
        length = time
    tile = group * steps
    length = -(-length // tile) * tile
    return Tiling(group, steps, max(1, -(-time // length)), length)


class Operand(NamedTuple):
    """How an array lies in memory, in bytes, and where the words say so."""

    word: int
    itemsize: int
    stepped: bool
    """Whether it is read or written at every step."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def by(self, axis: int) -> int:
        """From one element to the next along an axis, 0 where it broadcasts."""
        return 0 if self.shape[axis] == 1 else self.strides[axis]

    def vector(self, steps: int) -> int:
        """How many bytes at once a thread that has so many steps may read."""
        return min(16, self.itemsize * steps)

    def lies_along_time(self, steps: int) -> bool:
        """Whether vectors of steps may be read, if the address allows it."""
        others = self.by(0) | self.by(2)
        return self.by(1) == self.itemsize and others % self.vector(steps) == 0


def side_by_side(operands: Sequence[Operand], size: tuple[int, int, int]) -> bool:
    """Whether rows are nearer to each other in memory than steps, in most full operands."""
    axis = 2 if size[2] > 1 else 0
    votes = [abs(x.by(axis)) < abs(x.by(1)) for x in operands if x.by(1) and (x.by(0) or x.by(2))]
    return 2 * sum(votes) > len(votes)


class Launch:
    """The kernels that do one problem, for operands that lie in one way: one kernel, or three.

    ``words`` are the parameters but for the job and the operands.
    """

    def __init__(
        self,
        cuda: Cuda,
        work: str,
        dtype: str,
        size: tuple[int, int, int],
        chunk_size: int | None,
        operands: Sequence[Operand],
        words: Words,
    ) -> None:
        outer, time, inner = size
        rows = outer * inner
        stepped = [x for x in operands if x.stepped]
        self.tiling = tiling(dtype, rows, time, side_by_side(stepped, size), chunk_size)
        group, steps, chunks, length = self.tiling
        padded = -(-time // steps) * steps
        words[:WIDE] = rows, inner, time, padded, chunks, length, length // (group * steps)
        for x in operands:
            words[x.word + 1 : x.word + 4] = x.by(0), x.by(1), x.by(2)
        self._wide = all(x.lies_along_time(steps) for x in stepped)
        whole = {x.word: x.vector(steps) - 1 for x in stepped}
        self._places = [(x.word, whole.get(x.word, 0), x.itemsize - 1) for x in operands]
        self._cuda = cuda
        self._words = words
        self._parameters = np.dtype(f"V{words.nbytes}")  # one element: it is passed by value
        self._grid = (-(-rows * chunks * group // THREADS),)
        self._join_grid = (-(-rows * WARP // THREADS),)
        self._names: tuple[str, ...] = (f"scan<{work}, {group}, false>",)
        self._room = 0
        if chunks > 1:
            self._names = f"scan<{work}, {group}, true>", f"join<{work}>", *self._names
            self._room = rows * chunks * ITEMSIZE[ACCUMULATE[dtype]]

    def __call__(self, addresses: Sequence[int], numbers: Mapping[int, float], model: Any) -> None:
        """Run, on operands at these addresses; ``model`` is one of them."""
        cuda, words = self._cuda, self._words.copy()
        reals, parameters = words.view(np.float64), (words.view(self._parameters),)
        crooked = 0
        for word, number in numbers.items():
            reals[word] = number
        for (word, whole, single), address in zip(self._places, addresses, strict=True):
            if address & single:
                raise ValueError("an array is misaligned: an element does not start where it could")
            words[word] = address
            crooked |= address & whole
        words[WIDE] = self._wide and not crooked
        with cuda.current(model):
            *before, scan = cuda.kernels(self._names)
            if before:
                reduce, join = before
                _memory, first = cuda.room(self._room * (TOTAL + STATE), model)
                words[TOTALS] = first
                reduce(self._grid, BLOCK, parameters)
                words[STATES] = first + self._room * TOTAL
                join(self._join_grid, BLOCK, parameters)
            scan(self._grid, BLOCK, parameters)


def run(
    cuda: Cuda,
    problem: Any,
    arrays: Sequence[tuple[int, int, bool, Any]],
    numbers: Mapping[int, float],
    make: Callable[[list[Operand]], Launch],
    model: Any,
) -> None:
    """Launch a problem on these arrays, with these numbers; how, is found out once for each layout.

    An array comes as ``(word, itemsize, stepped, array)``: see :class:`Operand`.
    """
    addresses, key = [], [problem]
    for *_, x in arrays:
        address, strides = cuda.where(x)
        addresses.append(address)
        key += x.shape, strides
    launch = cuda.launches.get(tuple(key))
    if launch is None:
        if len(cuda.launches) >= 1024:
            cuda.launches.clear()
        launch = cuda.launches[tuple(key)] = make([operand(cuda, *given) for given in arrays])
    launch(addresses, numbers, model)


def operand(cuda: Cuda, word: int, itemsize: int, stepped: bool, x: Any) -> Operand:
    """How an array lies in memory."""
    unit = itemsize if _arrays.is_torch(x) else 1
    strides = tuple(unit * step for step in cuda.where(x)[1])
    return Operand(word, itemsize, stepped, tuple(x.shape), strides)
