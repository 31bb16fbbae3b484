"""CPU memory: NumPy views of other libraries' arrays, addresses, results that are cheap to make."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from math import prod
from operator import call, methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan._problem import ACCUMULATE
from linscan._protocol import Strides

PAGE = 4096
LARGE = 1 << 22
"""From this many bytes on, results come from a page-aligned block, for which NumPy asks the system
for huge pages: page faults would cost more than the scan."""
HUGE_PAGE = 1 << 21
VERY_LARGE = 16 * HUGE_PAGE
"""From this many bytes on, the block consists of huge pages alone."""

NO_MEMORY = "has no memory: its storage is released, or never was there"

STORAGE = {name: np.dtype(name) for name in (*ACCUMULATE, "bool") if name != "bfloat16"}
"""What NumPy stores a dtype as."""
STORAGE["bfloat16"] = np.dtype("uint16")  # NumPy has none: its bits travel, and the problem says so


def is_cpu_array(x: Any) -> bool:
    """Whether ``x`` is a NumPy array or a torch tensor in CPU memory."""
    if isinstance(x, np.ndarray):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor) and x.device.type == "cpu"


def seen(x: Any) -> Any:
    """``x`` as a NumPy array over the same memory where torch offers one; else ``x`` itself.

    It offers none of tensors on devices, of those that require gradients, of dtypes that NumPy
    lacks, and of lazily conjugated or negated ones.
    """
    if x is None or type(x) is np.ndarray:
        return x
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and x.is_cpu:
        try:
            return x.numpy()
        except (RuntimeError, TypeError):
            return x
    return x


def view(x: Any) -> Any:
    """``x``, in CPU memory, as a NumPy array; what is not an array passes through.

    Only a lazily conjugated or negated tensor is copied.
    """
    if type(x) is np.ndarray:
        return x
    if has_address(x) and x.numel() and not x.data_ptr():
        raise ValueError(f"a tensor of shape {tuple(x.shape)} {NO_MEMORY}")
    x = seen(x)
    if isinstance(x, np.ndarray):
        return np.asarray(x)
    if x is None or isinstance(x, (np.generic, int, float, complex)):
        return x
    torch = sys.modules["torch"]
    x = x.detach().resolve_conj().resolve_neg()
    if x.dtype is torch.bfloat16:
        return x.view(torch.int16).numpy().view(np.uint16)
    return x.numpy()


_HEAD = object.__basicsize__
_word_at = ctypes.c_size_t.from_address


def _in_the_object(x: NDArray[Any]) -> int:
    """What ``x.ctypes.data`` says, but quicker: read from NumPy's C structure."""
    at: int = _word_at(id(x) + _HEAD).value
    return at


def _by_interface(x: NDArray[Any]) -> int:
    at: int = x.__array_interface__["data"][0]
    return at


def _quickest() -> Callable[[NDArray[Any]], int]:
    probe = np.empty(1)
    if sys.implementation.name == "cpython" and _in_the_object(probe) == _by_interface(probe):
        return _in_the_object
    return _by_interface


address: Callable[[NDArray[Any]], int] = _quickest()
"""Where the memory of a NumPy array begins."""


def address_of(kind: type) -> Callable[[Any], int]:
    """The same for arrays of a kind, tensors or NumPy's own."""
    return address if kind is np.ndarray else methodcaller("data_ptr")


def has_address(x: Any) -> bool:
    """Whether an address says all about where the contents of ``x`` are.

    It is not of subclasses, of tensors on devices, or of lazily conjugated and negated ones.
    """
    if type(x) is np.ndarray:
        return True
    torch = sys.modules.get("torch")
    if torch is None or type(x) is not torch.Tensor:
        return False
    return x.is_cpu and not (x.is_conj() or x.is_neg())


def strides(x: NDArray[Any]) -> Strides:
    """The strides of a three-dimensional array."""
    outer, time, inner = [0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)]
    return outer, time, inner


def span(x: NDArray[Any]) -> tuple[int, int]:
    """Where the memory of an array begins and ends, counted from its address."""
    steps = [s * (n - 1) for n, s in zip(x.shape, x.strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + x.itemsize


def contiguous(shape: tuple[int, int, int], dtype: str) -> tuple[Strides, tuple[int, int]]:
    """The strides and the span of a fresh array."""
    size = STORAGE[dtype].itemsize
    outer, time, inner = (0 if n == 1 else size * prod(shape[k + 1 :]) for k, n in enumerate(shape))
    return (outer, time, inner), (0, size * prod(shape))


def maker(model: Any, shape: tuple[int, ...], dtype: str, count: int) -> Callable[[], list[Any]]:
    """What makes ``count`` fresh arrays of ``model``'s library, as :func:`empty` does."""
    large = prod(shape) * STORAGE[dtype].itemsize * count >= LARGE
    make: Callable[[], Any]
    if isinstance(model, np.ndarray):
        if large:
            return lambda: empty(shape, dtype, count)
        make = partial(np.empty, shape, STORAGE[dtype])
    else:
        if large:
            wrap = wrapper(model, dtype)
            return lambda: list(map(wrap, empty(shape, dtype, count)))
        torch = sys.modules["torch"]
        # quicker than torch.empty
        steps = [prod(shape[i + 1 :]) for i in range(len(shape))]
        make = partial(
            torch.empty_strided, shape, steps, dtype=getattr(torch, dtype), device=model.device
        )
    makers = (make,) * count
    return lambda: list(map(call, makers))


def is_writeable(out: Any) -> bool:
    """Whether an array that has an address raises no doubt that it may be written."""
    if type(out) is np.ndarray:
        return out.flags.writeable
    return not (out.requires_grad or out.is_inference())


def written(out: Any) -> None:
    """Tell torch that a tensor was written through a view of its memory, as autograd must know."""
    torch = None if type(out) is np.ndarray else sys.modules.get("torch")
    if torch is not None and isinstance(out, torch.Tensor):
        torch.autograd.graph.increment_version(out)


def wrapper(model: Any, dtype: str) -> Callable[[NDArray[Any]], Any]:
    """What makes a NumPy array one of ``model``'s library over the same memory."""
    if isinstance(model, np.ndarray):
        return np.asarray
    torch = sys.modules["torch"]
    if dtype == "bfloat16":
        return lambda x: torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    from_numpy: Callable[[NDArray[Any]], Any] = torch.from_numpy
    return from_numpy


def like(x: NDArray[Any], model: Any, dtype: str) -> Any:
    """``x`` as an array of ``model``'s library over the same memory."""
    return wrapper(model, dtype)(x)


def empty(shape: tuple[int, ...], dtype: str, count: int = 1) -> list[NDArray[Any]]:
    """``count`` uninitialised arrays, each C-contiguous."""
    kind = STORAGE[dtype]
    n = prod(shape)
    if n * kind.itemsize * count < LARGE:
        return [np.empty(shape, kind) for _ in range(count)]
    pitch = -(-n * kind.itemsize // PAGE) * PAGE
    page = PAGE if pitch * count < VERY_LARGE else HUGE_PAGE
    block = np.empty((pitch * count // page + 2) * page, np.uint8)
    start = -address(block) % page
    pages = block[start : start + pitch * count].view(kind)
    return [x[:n].reshape(shape) for x in pages.reshape(count, -1)]
