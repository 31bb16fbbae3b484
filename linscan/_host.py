"""CPU memory: NumPy views of other libraries' arrays, and large results that are cheap to touch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE = 4096
LARGE = 1 << 20
"""From this many bytes on, results come from one page-aligned block, for which NumPy asks the
system for huge pages: page faults would cost more than the scan."""

STORAGE = {"bfloat16": "uint16"}
"""NumPy has no bfloat16: its bits travel as uint16, and the problem says what they are."""


def is_cpu_array(x: Any) -> bool:
    """Whether ``x`` is a NumPy array or a torch tensor in CPU memory."""
    if isinstance(x, np.ndarray):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor) and x.device.type == "cpu"


def view(x: Any) -> Any:
    """``x`` as a NumPy array over the same memory; what is not an array passes through."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return x
    x = x.detach()
    if x.dtype is torch.bfloat16:
        return x.view(torch.int16).numpy().view(np.uint16)
    return x.resolve_conj().resolve_neg().numpy() if x.is_complex() or x.is_neg() else x.numpy()


def like(x: NDArray[Any], model: Any, dtype: str) -> Any:
    """``x`` as an array of ``model``'s library over the same memory."""
    if isinstance(model, np.ndarray):
        return x
    torch = sys.modules["torch"]
    if dtype == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def empty(shape: tuple[int, ...], dtype: str, count: int = 1) -> list[NDArray[Any]]:
    """``count`` uninitialised arrays, C-contiguous, from one block when they are large."""
    kind = np.dtype(STORAGE.get(dtype, dtype))
    size = kind.itemsize
    for n in shape:
        size *= n
    if size * count < LARGE:
        return [np.empty(shape, kind) for _ in range(count)]
    pitch = -(-size // PAGE) * PAGE
    block = np.empty(pitch * count + PAGE, np.uint8)
    start = -block.ctypes.data % PAGE
    return [np.ndarray(shape, kind, buffer=block, offset=start + i * pitch) for i in range(count)]
