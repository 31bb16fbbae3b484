"""The chunk scan in plain torch operations.

A tile of n·C steps is cut into n chunks of C, which become the columns of wide vectors, so that
one operation does one step of every chunk:

    s, p   each chunk from a zero state, and the product of its multipliers      C steps
    X      the state after each chunk, X[n] = p[n]·X[n-1] + s[n]                 this scan again
    x      each chunk from X[n-1], by the recurrence itself                      C steps

The results are always those of the last line: a product of multipliers reaches them through X
only, no NaN runs backwards in time, and no matrix product asks for full precision.

Equal multipliers make equal rounding errors in p, which add up along X.  So X is corrected once:
the chunks are run from X, and what they miss of X at their ends, carried on by p, is added to it.
Then X is as exact as the loop's states.

A product can overflow, or meet an infinity, where the loop would not.  On CPUs a tile in which a
state is not finite is done again by the loop.  On other devices that question would make the host
wait: there an overflowing p times a zero state is zero, as in the loop, and times any other state
it is infinite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linscan._problem import ScanProblem
from linscan_torch import CHUNK_SIZE

WIDE_ON_CPU, WIDE = 1 << 16, 1 << 18
"""How long the vectors get: long enough to hide the cost of an operation, or to fill a device."""
FEW = 4
"""Fewer chunks than this side by side are not worth the extra passes."""


@dataclass(frozen=True)
class Way:
    """How to go through the steps."""

    reverse: bool
    chunk: int
    wide: int
    remote: bool
    """Results are on a device that the host would have to wait for: none is looked at."""
    products: bool = False
    """The multipliers are products of multipliers: one that overflowed times zero is zero."""

    def tiles(self, time: int, rows: int) -> Iterator[tuple[slice, int]]:
        """Steps to do next, and into how many chunks to cut them."""
        done = 0
        while done < time:
            n = min(self.wide // rows, (time - done) // self.chunk)
            n = n if n >= FEW else 1
            length = min(n * self.chunk, time - done)
            yield self.steps(time, done, length), n
            done += length

    def steps(self, time: int, done: int, length: int) -> slice:
        """The ``length`` steps after those done."""
        lo = time - done - length if self.reverse else done
        return slice(lo, lo + length)

    def order(self, steps: int) -> range:
        """The steps as they follow one another."""
        return range(steps - 1, -1, -1) if self.reverse else range(steps)

    def before(self, state: Tensor, states: Tensor) -> Tensor:
        """Of consecutive states, and the one before them all: those without the last."""
        if self.reverse:
            return torch.cat([states[:, 1:], state], dim=1)
        return torch.cat([state, states[:, :-1]], dim=1)


class Operands(NamedTuple):
    """All ``(outer, time, inner)``; sizes of 1 broadcast, but for the time of any and all of x."""

    a: Tensor
    b: Tensor
    reset: Tensor | None
    x: Tensor

    def steps(self, steps: slice) -> Operands:
        """Those steps."""
        a, b, reset, x = self
        cut = None if reset is None else reset[:, steps]
        return Operands(a[:, steps], b[:, steps], cut, x[:, steps])

    def rows(self, rows: tuple[slice, slice]) -> Operands:
        """Those rows."""
        a, b, reset, x = self
        cut = None if reset is None else _rows(reset, rows)
        return Operands(_rows(a, rows), _rows(b, rows), cut, _rows(x, rows))


def is_remote(x: Tensor) -> bool:
    """Whether the host would have to wait for ``x``."""
    return x.device.type != "cpu"


@torch.no_grad()
def scan(
    problem: ScanProblem, a: Any, b: Tensor, initial: Tensor | None, reset: Any, out: Any
) -> tuple[Tensor, Tensor | None]:
    """``Backend.scan`` for torch tensors."""
    outer, time, inner = shape = (problem.outer, problem.time, problem.inner)
    dtype: torch.dtype = getattr(torch, problem.accumulate)
    x = torch.empty(shape, dtype=b.dtype, device=b.device) if out is None else out
    if not isinstance(a, Tensor):
        a = torch.full((1, 1, 1), a, dtype=dtype, device=b.device)
    reset = None if reset is None else reset.expand(-1, time, -1)
    all_steps = Operands(a.expand(-1, time, -1), b.expand(shape), reset, x)
    state = torch.zeros((outer, 1, inner), dtype=dtype, device=b.device)
    remote = is_remote(b)
    wide = WIDE if remote else WIDE_ON_CPU
    way = Way(problem.reverse, problem.chunk_size or CHUNK_SIZE, wide, remote)

    if initial is not None:
        state.copy_(initial)
    elif time:
        first = all_steps.steps(way.steps(time, 0, 1))
        state.copy_(first.b)
        first.x.copy_(first.b)
        all_steps = all_steps.steps(way.steps(time, 1, time - 1))
    for rows in _blocks(outer, inner, wide):
        _scan(all_steps.rows(rows), _rows(state, rows), way)
    return x, state.to(b.dtype, copy=True) if problem.final else None


def _scan(operands: Operands, state: Tensor, way: Way) -> None:
    """Scan ``b`` into ``x`` from ``state``, which is left at the last one."""
    for steps, n in way.tiles(operands.b.shape[1], state.numel()):
        a, b, reset, x = there = operands.steps(steps)
        tile = Tile(
            _columns(a, n, state.dtype),
            _fold(b, n).to(state.dtype, memory_format=torch.contiguous_format, copy=True),
            None if reset is None else _columns(reset, n, torch.bool),
            way,
        )
        before = state if n == 1 else tile.states_before(state)
        if before is None:
            _scan(there, state, replace(way, wide=0))
        else:
            last = tile.run(before, tile.b)
            _fold(x, n).copy_(tile.b)
            state.copy_(last[:, way.steps(n, n - 1, 1)])


@dataclass(frozen=True)
class Tile:
    """Steps cut into n chunks of C: ``(C, outer, n, inner)``, where sizes of 1 broadcast."""

    a: Tensor
    b: Tensor
    reset: Tensor | None
    way: Way

    def run(self, state: Tensor, out: Tensor) -> Tensor:
        """The recurrence in every chunk, from ``state``; returns the state at their ends."""
        for i in self.way.order(len(self.b)):
            a, b = self.a[i], self.b[i]
            cut = None if self.reset is None else self.reset[i]
            if self.way.products and self.way.remote:
                cut = state == 0 if cut is None else cut | (state == 0)
            if cut is None:
                state = torch.addcmul(b, a, state, out=out[i])
            else:
                state = torch.where(cut, b, torch.addcmul(b, a, state), out=out[i])
        return state

    def states_before(self, state: Tensor) -> Tensor | None:
        """The state before each chunk; None if one is not finite, where that can be seen."""
        zeros = torch.zeros_like(self.b[0])
        discard = torch.empty_like(zeros).expand_as(self.b)
        way = replace(self.way, chunk=CHUNK_SIZE, products=True)

        states = self.run(zeros, discard).clone()
        p = self.a.prod(0).expand(-1, states.shape[1], -1)
        cut = None if self.reset is None else self.reset.any(0).expand(-1, states.shape[1], -1)
        _scan(Operands(p, states, cut, states), state.clone(), way)
        before = way.before(state, states)
        if self.way.products:
            return before

        missed = self.run(before, discard) - states
        finite = missed.isfinite()
        if self.way.remote:
            missed = torch.where(finite, missed, 0)
        elif not finite.all():
            return None
        _scan(Operands(p, missed, cut, missed), torch.zeros_like(state), way)
        return before + way.before(torch.zeros_like(state), missed)


def _fold(v: Tensor, n: int) -> Tensor:
    """``(outer, n * C, inner)`` as ``(C, outer, n, inner)``."""
    return v.view(v.shape[0], n, -1, v.shape[2]).permute(2, 0, 1, 3)


def _columns(v: Tensor, n: int, dtype: torch.dtype) -> Tensor:
    """A contiguous copy of ``_fold(v, n)``; of what is constant in time only one step of it."""
    if v.stride(1) == 0:
        return v[None, :, :1].to(dtype).expand(v.shape[1] // n, -1, -1, -1)
    return _fold(v, n).to(dtype, memory_format=torch.contiguous_format, copy=True)


def _blocks(outer: int, inner: int, rows: int) -> Iterator[tuple[slice, slice]]:
    """The rows, in blocks of about so many."""
    across = max(1, min(inner, rows))
    down = max(1, rows // across)
    for o in range(0, outer, down):
        for i in range(0, inner, across):
            yield slice(o, o + down), slice(i, i + across)


def _rows(v: Tensor, rows: tuple[slice, slice]) -> Tensor:
    """Those rows of ``v``; a size of 1 broadcasts and is kept."""
    down, across = rows
    return v[down if v.shape[0] > 1 else slice(None), :, across if v.shape[2] > 1 else slice(None)]
