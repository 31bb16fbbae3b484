"""From any rank and any axis to ``(outer, time, inner)``, without copying.

The axes before time merge into one when every operand steps through them with a single stride,
and so do those after it.  Where they do not merge, the problem is cut along them into blocks that
do; where that would make many tiny blocks, the operands in the way are copied instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from linscan._problem import Kind

Shape = tuple[int, ...]

MANY_BLOCKS = 64
TINY_BLOCK = 1 << 14


class Operand(NamedTuple):
    """An array's shape, aligned to the result's rank, and its strides, 0 where it broadcasts."""

    shape: Shape
    strides: Shape


class Layout(NamedTuple):
    """``shape`` seen as blocks of ``(outer, time, inner)``; one block when ``loops`` is empty."""

    shape: Shape
    axis: int
    loops: tuple[int, ...]

    @property
    def block(self) -> tuple[int, int, int]:
        """The size of each block."""
        return self.fold(self.shape)

    def fold(self, shape: Shape) -> tuple[int, int, int]:
        """What a shape of the result's rank becomes inside one block."""
        kept = [1 if i in self.loops else n for i, n in enumerate(shape)]
        return prod(kept[: self.axis]), kept[self.axis], prod(kept[self.axis + 1 :])

    @property
    def state(self) -> Shape:
        """The shape of a state: one step."""
        return tuple(1 if i == self.axis else n for i, n in enumerate(self.shape))

    def indices(self) -> Iterator[dict[int, int]]:
        """The index of each block along the axes looped over."""
        for index in product(*(range(self.shape[i]) for i in self.loops)):
            yield dict(zip(self.loops, index, strict=True))

    def view(self, x: Any, index: dict[int, int] | None = None) -> Any:
        """The part of an operand that belongs to one block, three-dimensional."""
        shape = (1,) * (len(self.shape) - x.ndim) + tuple(x.shape)
        if index:
            x = x.reshape(shape)
            where = tuple(
                slice(None) if i not in index else slice(k := min(index[i], n - 1), k + 1)
                for i, n in enumerate(shape)
            )
            x = x[where]
        return x.reshape(self.fold(shape))


def operand(x: Any, rank: int) -> Operand:
    """How an array steps through the axes of a result of that rank."""
    shape = tuple(x.shape)
    strides = x.stride() if hasattr(x, "stride") else x.strides
    pad = (0,) * (rank - len(shape))
    return Operand(
        (1,) * len(pad) + shape,
        pad + tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True)),
    )


def layout(shape: Shape, axis: int, operands: Sequence[Operand]) -> Layout:
    """The largest blocks in which every operand merges."""

    def merge(i: int, j: int) -> bool:
        """Whether axis i and the next one, j, step as one in every operand."""
        return all(
            (x.strides[i] == x.strides[j] * shape[j] or 0 in shape)
            and (x.shape[i] == 1) == (x.shape[j] == 1)
            for x in operands
        )

    def loops(axes: range) -> list[int]:
        """The axes that stay outside when the last ones have merged."""
        outside = [i for i in axes if shape[i] != 1]
        while len(outside) > 1 and merge(*outside[-2:]):
            outside.pop()
        return outside[:-1]

    return Layout(shape, axis, (*loops(range(axis)), *loops(range(axis + 1, len(shape)))))


def in_the_way(whole: Layout, operands: Sequence[Operand]) -> list[Operand]:
    """The operands to copy, so that one block remains: none, unless the blocks are tiny."""
    count = prod(whole.shape[i] for i in whole.loops)
    if count < MANY_BLOCKS or prod(whole.block) > TINY_BLOCK:
        return []
    return [x for x in operands if layout(whole.shape, whole.axis, [x]).loops]


def kind_of(shape: Shape, axis: int) -> Kind:
    """What multipliers of that shape (aligned to the result's rank) are: rows, steps, or both."""
    if shape[axis] == 1:
        return "row"
    return "step" if all(n == 1 for i, n in enumerate(shape) if i != axis) else "full"


def with_time(x: Any, rank: int, axis: int) -> Any:
    """A state, shaped like the result without time, with an axis of size 1 for it."""
    shape = (1,) * (rank - 1 - x.ndim) + tuple(x.shape)
    return x.reshape((*shape[:axis], 1, *shape[axis:]))
