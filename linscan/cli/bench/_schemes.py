"""The three schemes for ``x[t] = a[t]·x[t-1] + b[t]`` in array operations, linscan's rivals.

They take ``b`` as ``[rows, time]``, of NumPy or torch, and ``a`` as a number or as an array like
``b``.  With ``reverse`` the recurrence runs from the end: ``x[t] = a[t]·x[t+1] + b[t]``.  Beyond
the ends the state is 0.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def library(x: Any) -> Any:
    """NumPy or torch; the schemes use what both know by one name."""
    return np if isinstance(x, np.ndarray) else sys.modules["torch"]


def serial(a: Any, b: Any, reverse: bool) -> Any:
    """One step after the other."""
    time = b.shape[-1]
    x, state = library(b).empty_like(b), 0
    for t in reversed(range(time)) if reverse else range(time):
        multiplier = a if isinstance(a, float) else a[..., t]
        x[..., t] = state = multiplier * state + b[..., t]
    return x


def matrix(a: Any, b: Any, reverse: bool) -> Any:
    """The recurrence unrolled, ``x = b W``: a product with a triangular matrix."""
    if isinstance(a, float):
        return b @ powers(a, b, b.shape[-1], reverse)
    return (b[..., None, :] @ products(a, reverse))[..., 0, :]


def matrix_bytes(rows: int, time: int, itemsize: int, constant: bool) -> int:
    """What ``matrix`` needs beyond its inputs and its result.

    Constant ``a``: the matrix and the 8-byte distances it is made from.  Else a matrix for each
    row, twice: before and after its triangle is cut out.
    """
    return time * time * (8 + itemsize if constant else 2 * rows * itemsize)


def chunk(a: Any, b: Any, reverse: bool, size: int) -> Any:
    """Chunks of ``size`` steps, scanned side by side from a state of 0, then joined in a loop.

    Within a chunk a constant ``a`` takes a product with the matrix of its powers; any other takes
    the steps themselves, each for all chunks at once.
    """
    time = b.shape[-1]
    chunks = cut(b, size, fill=0)
    if isinstance(a, float):
        local = chunks @ powers(a, b, size, reverse)
        decay = a * powers(a, b, size, reverse)[-1 if reverse else 0]
        decays = library(b).broadcast_to(decay, local.shape)
    else:
        multipliers = cut(a, size, fill=1)
        local = serial(multipliers, chunks, reverse)
        decays = cumulative(multipliers, reverse)

    count = local.shape[1]
    edge = slice(0, 1) if reverse else slice(size - 1, size)
    state = 0 * local[:, 0, edge]
    for n in reversed(range(count)) if reverse else range(count):
        local[:, n] += decays[:, n] * state
        state = local[:, n, edge]
    return local.reshape(-1, count * size)[:, :time]


def powers(a: float, b: Any, size: int, reverse: bool) -> Any:
    """``W[k, t] = a^(t-k)``, what input k has become at step t; 0 where it comes too late."""
    xp = library(b)
    step = xp.arange(size, device=b.device)
    distance = step[:, None] - step if reverse else step - step[:, None]
    power = a ** xp.arange(size, dtype=xp.float64, device=b.device)
    later = xp.zeros(size - 1, dtype=xp.float64, device=b.device)
    return xp.asarray(xp.concatenate((power, later)), dtype=b.dtype)[distance]


def products(a: Any, reverse: bool) -> Any:
    """``W[…, k, t]``, the product of the multipliers between input k and step t."""
    xp = library(a)
    if reverse:
        return xp.flip(products(xp.flip(a, (-1,)), False), (-2, -1))
    step = xp.arange(a.shape[-1], device=a.device)
    later = step > step[:, None]
    product = xp.cumprod(xp.where(later, a[..., None, :], 1), -1)
    return xp.where(step >= step[:, None], product, 0)


def cumulative(a: Any, reverse: bool) -> Any:
    """What a state before the first step has become at step t."""
    xp = library(a)
    return xp.flip(xp.cumprod(xp.flip(a, (-1,)), -1), (-1,)) if reverse else xp.cumprod(a, -1)


def cut(x: Any, size: int, fill: float) -> Any:
    """``[rows, time]`` as ``[rows, chunks, size]``, with steps put after the last one."""
    xp = library(x)
    rows, time = x.shape
    padding = xp.full((rows, -time % size), fill, dtype=x.dtype, device=x.device)
    return xp.concatenate((x, padding), -1).reshape(rows, -1, size)
