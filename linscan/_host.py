"""CPU memory: NumPy views of other libraries' arrays, and large results that are cheap to touch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan._problem import ACCUMULATE

PAGE = 4096
LARGE = 1 << 22
"""From this many bytes on, results come from a page-aligned block, for which NumPy asks the system
for huge pages: page faults would cost more than the scan."""

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
    x = seen(x)
    if x is None or isinstance(x, (np.ndarray, np.generic, int, float, complex)):
        return x
    torch = sys.modules["torch"]
    x = x.detach().resolve_conj().resolve_neg()
    if x.dtype is torch.bfloat16:
        return x.view(torch.int16).numpy().view(np.uint16)
    return x.numpy()


def written(out: Any) -> None:
    """Tell torch that a tensor was written through a view of its memory, as autograd must know."""
    torch = sys.modules.get("torch")
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
    block = np.empty(pitch * count + PAGE, np.uint8)
    start = -block.ctypes.data % PAGE
    pages = block[start : start + pitch * count].view(kind)
    return [x[:n].reshape(shape) for x in pages.reshape(count, -1)]
