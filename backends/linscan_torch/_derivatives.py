"""The derivatives of a scan: calls of the scan, and products of neighbouring steps.

``x[t] = a[t]·x[s] + b[t]``, where s is the step before t, and ``x[s]`` the initial state at the
first step.  For a gradient g of x, of any order the same few formulas:

    λ[s] = conj(a[t])·λ[t] + g[s]       a scan the other way, whose multipliers *leave* a step
    ∂b = λ       ∂a[t] = λ[t]·conj(x[s])       ∂initial = conj(a[0])·λ[0]
    dx[t] = a[t]·dx[s] + db[t] + da[t]·x[s]

At a reset nothing passes, by selection: no product is formed of what it cuts off.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Gradient = Tensor | None
"""None is zero."""


class Way(NamedTuple):
    """All of a scan but its operands, which are ``(outer, time, inner)``; sizes of 1 broadcast."""

    engine: str
    number: complex
    """The multiplier, where it is no tensor."""
    reverse: bool
    leaving: bool = False
    """``a[s]`` multiplies the state that leaves step s, not ``a[t]`` what enters t; so does the
    reset.  No initial state then."""
    chunk_size: int | None = None

    @property
    def adjoint(self) -> Way:
        """From the last step to the first, with the same multipliers between the same steps."""
        number = self.number.conjugate()
        return Way(self.engine, number, not self.reverse, not self.leaving, self.chunk_size)

    def first(self, v: Tensor) -> Tensor:
        """The first step."""
        return v[:, -1:] if self.reverse else v[:, :1]

    def sources(self, v: Tensor) -> Tensor:
        """All steps but the last."""
        return v[:, 1:] if self.reverse else v[:, :-1]

    def targets(self, v: Tensor) -> Tensor:
        """All steps but the first."""
        return v[:, :-1] if self.reverse else v[:, 1:]

    def between(self, v: Tensor) -> Tensor:
        """The multipliers, or resets, between one step and the next."""
        if v.shape[1] == 1:
            return v
        return self.sources(v) if self.leaving else self.targets(v)

    def join(self, first: Tensor, targets: Tensor) -> Tensor:
        """The inverse of ``first`` and ``targets``."""
        return torch.cat((targets, first) if self.reverse else (first, targets), dim=1)


class Calls(Protocol):
    """The two differentiable operations."""

    def scan(
        self, a: Gradient, b: Tensor, initial: Gradient, reset: Gradient, way: Way
    ) -> Tensor: ...

    def adjoint(
        self, a: Tensor, x: Tensor, initial: Gradient, g: Tensor, reset: Gradient, way: Way
    ) -> tuple[Tensor, Tensor]: ...


def conj(v: Tensor) -> Tensor:
    """The complex conjugate, in memory: where a graph runs, torch may overlook a lazy one."""
    return v.conj_physical() if v.is_complex() else v


def reduced(v: Tensor, shape: torch.Size) -> Tensor:
    """The sum over the axes along which that shape broadcasts."""
    axes = [i for i in range(3) if shape[i] == 1 and v.shape[i] != 1]
    return v.sum(axes, keepdim=True) if axes else v


def wide(v: Tensor) -> Tensor:
    """16-bit numbers in float32, in which they are summed."""
    return v.float() if v.dtype in (torch.float16, torch.bfloat16) else v


def cut(v: Tensor, reset: Gradient) -> Tensor:
    """Zero at a reset, whatever stands there."""
    return v if reset is None else torch.where(reset, 0, v)


def carried(way: Way, c: Tensor, x: Tensor, initial: Gradient, reset: Gradient) -> Tensor:
    """``c[t]·x[s]``: what multipliers c bring to each step."""
    first = torch.zeros_like(way.first(x))
    if initial is not None:
        first = entering(way, c, initial, reset).expand_as(first)
    product = way.between(c) * way.sources(x)
    return way.join(first, cut(product, None if reset is None else way.between(reset)))


def entering(way: Way, c: Tensor, state: Tensor, reset: Gradient) -> Tensor:
    """``c[0]·state``: what a multiplier brings to the first step."""
    return cut(way.first(c) * state, None if reset is None else way.first(reset))


def multiplier_gradient(
    way: Way, lam: Tensor, x: Tensor, initial: Gradient, reset: Gradient, shape: torch.Size
) -> Tensor:
    """``∂a[t] = λ[t]·conj(x[s])``, summed to the shape of ``a``."""
    product = wide(way.targets(lam)) * conj(wide(way.sources(x)))
    product = cut(product, None if reset is None else way.between(reset))
    edge = torch.zeros_like(way.first(lam), dtype=product.dtype)
    if way.leaving:
        product = way._replace(reverse=not way.reverse).join(edge, product)
    else:
        if initial is not None:
            edge = entering(way, wide(lam), conj(wide(initial)), reset)
        product = way.join(edge, product)
    return reduced(product, shape).to(lam.dtype)


def state_gradient(way: Way, a: Gradient, lam: Tensor, reset: Gradient, initial: Tensor) -> Tensor:
    """``∂initial = conj(a[0])·λ[0]``."""
    multiplier = way.number.conjugate() if a is None else conj(wide(way.first(a)))
    product = multiplier * wide(way.first(lam))
    product = cut(product, None if reset is None else way.first(reset))
    return reduced(product, initial.shape).to(lam.dtype)
