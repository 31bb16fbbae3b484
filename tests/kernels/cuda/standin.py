"""CuPy without a device: its arrays over NumPy memory, and as much of the rest as linscan uses.

They are stricter than CuPy's own: nothing but ``asnumpy`` makes NumPy arrays of them, nothing but
``asarray`` and ``array`` takes NumPy arrays, and NumPy's functions do not take them.  Where CuPy is
installed, only functions and methods that it has are here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
OPERATORS = "lt le eq ne gt ge neg pos abs invert getitem len bool int float complex index"
METHODS = (
    "all any argmax argmin argsort astype clip copy cumprod cumsum diagonal dot fill flatten item "
    "max mean min nonzero prod ravel repeat reshape round sort squeeze std sum swapaxes take "
    "tobytes tolist transpose var view"
)
ATTRIBUTES = "T dtype flags imag itemsize nbytes ndim real shape size strides"
AS_IT_IS = "finfo iinfo isdtype issubdtype result_type"
"""Functions of dtypes."""


class ndarray:
    """Memory of a device, as it were."""

    __module__ = "cupy"
    __array_ufunc__ = None

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self._host = host

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError("this is an array on a device: pass it to asnumpy")

    def __setitem__(self, index: Any, x: Any) -> None:
        self._host[unwrapped(index)] = unwrapped(x)

    def __dlpack__(self, **options: Any) -> Any:
        return self._host.__dlpack__(**options)

    @property
    def data(self) -> Any:
        """Where it lies."""
        found = ModuleType("data")
        found.ptr = self._host.ctypes.data
        return found

    @property
    def device(self) -> Device:
        """The only one."""
        return Device()


class Device:
    """A device, which is current."""

    id = 0

    def __init__(self, index: int | None = 0) -> None:
        pass

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def __str__(self) -> str:
        return "<CUDA Device 0>"


def wrapped(x: Any) -> Any:
    """NumPy's arrays, and its numbers, as arrays of a device."""
    if isinstance(x, (np.ndarray, np.generic)):
        return ndarray(np.asarray(x))
    return type(x)(map(wrapped, x)) if type(x) in (tuple, list) else x


def host(x: Any) -> Any:
    """The memory of an array; what is none, itself."""
    return x._host if isinstance(x, ndarray) else x


def unwrapped(x: Any) -> Any:
    """The other way; NumPy's own arrays are refused."""
    if isinstance(x, ndarray):
        return x._host
    if isinstance(x, np.ndarray):
        raise TypeError("this is an array of NumPy: pass it to asarray")
    return type(x)(map(unwrapped, x)) if type(x) in (tuple, list) else x


def over(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy as one of arrays of a device."""

    def call(*args: Any, **options: Any) -> Any:
        options = {name: unwrapped(x) for name, x in options.items()}
        return wrapped(function(*map(unwrapped, args), **options))

    return call


class Stream:
    """A stream, which does all at once."""

    null: Stream

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def is_capturing(self) -> bool:
        """Whether what it is given becomes a graph."""
        return False


Stream.null = Stream()


def install(patch: pytest.MonkeyPatch, raw_module: Any) -> None:
    """Make it what ``import cupy`` finds; ``raw_module`` is its ``RawModule``."""
    try:
        known = importlib.import_module("cupy")
    except ImportError:
        known = np
    right = (f"r{name}" for name in ARITHMETIC.split())
    special = [f"__{name}__" for name in (*ARITHMETIC.split(), *OPERATORS.split(), *right)]
    for name in (*special, *METHODS.split()):
        if hasattr(known.ndarray, name):
            patch.setattr(ndarray, name, over(getattr(np.ndarray, name)), raising=False)
    for name in ATTRIBUTES.split():
        get = getattr(np.ndarray, name).__get__
        patch.setattr(ndarray, name, property(over(get)), raising=False)

    parts = {
        "cupy": {name: getattr(np, name) for name in dir(np) if hasattr(known, name)},
        "cupy.linalg": vars(np.linalg),
        "cupy.fft": vars(np.fft),
        "cupy.cuda": {"Device": Device, "Stream": Stream, "get_current_stream": Stream},
        "cupy.cuda.device": {"Device": Device},
        "cupy.cuda.runtime": {"getDevice": lambda: 0},
        "cupy.cuda.nvrtc": {"getVersion": lambda: (13, 0)},
    }
    parts["cupy"] = {
        name: over(x) if callable(x) and not isinstance(x, type) and name not in AS_IT_IS else x
        for name, x in parts["cupy"].items()
        if not (name.startswith("__") or isinstance(x, ModuleType))
    } | {
        "ndarray": ndarray,
        "array": lambda x, **options: ndarray(np.array(host(x), **options)),
        "asarray": lambda x, **options: ndarray(np.asarray(host(x), **options)),
        "asnumpy": lambda x: host(x).copy(),
        "is_available": lambda: True,
        "RawModule": raw_module,
    }
    for name in [name for name in sys.modules if name.startswith("array_api_compat.cupy")]:
        patch.delitem(sys.modules, name)
    for name, contents in parts.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(contents)
        patch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
