"""What the plan of a call may depend on: all about its arguments but the contents of arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any

import numpy as np

from linscan import _dispatch
from linscan._arrays import default_float


class Pattern:
    """What the types of some arguments say: which are arrays, and which count by their value."""

    def __init__(self, types: tuple[type, ...]) -> None:
        kinds = list(enumerate(types))
        by_value = [i for i, kind in kinds if issubclass(kind, (str, int))]
        by_type = [i for i, kind in kinds if kind is NoneType or _is_number(kind)]
        arrays = [i for i, _ in kinds if i not in (*by_value, *by_type)]
        self.values = itemgetter(*by_value) if by_value else len
        self.arrays = itemgetter(*arrays, 0, 0)  # two more, for it makes no tuple of just one
        self.signatures = [_of_type(types[i]) for i in arrays]
        self.all_numpy = all(types[i] is np.ndarray for i in arrays)


def _is_number(kind: type) -> bool:
    """Whether it is float or complex, but none of NumPy's."""
    return issubclass(kind, (float, complex)) and not issubclass(kind, np.generic)


_patterns: dict[tuple[type, ...], Pattern] = {}


def look(name: str, backend: str, arguments: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The signature of a call, and the arrays in it.

    Two calls of one signature are both refused, or both do the same to whatever the arrays and the
    floats among their arguments are.
    """
    types = tuple(map(type, arguments))
    pattern = _patterns.get(types)
    if pattern is None:
        pattern = _patterns[types] = Pattern(types)
    key = name, _dispatch.resolve(backend), pattern, pattern.values(arguments)
    arrays = pattern.arrays(arguments)[:-2]
    if pattern.all_numpy:
        return (*key, *map(_of_numpy, arrays)), arrays
    seen = [of(x) for of, x in zip(pattern.signatures, arrays, strict=True)]
    return (*key, *seen), arrays


def _of_type(kind: type) -> Callable[[Any], Any]:
    """What makes all about an array but its address and its contents."""
    if kind is np.ndarray:
        return _of_numpy
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        return _of_torch()
    return _of_sequence if issubclass(kind, (tuple, list)) else _of_other


_of_numpy = attrgetter("dtype", "shape", "strides")


@cache
def _of_torch() -> Callable[[Any], Any]:
    torch = sys.modules["torch"]
    real = {torch.float16, torch.bfloat16, torch.float32, torch.float64}

    def of(x: Any) -> Any:
        try:
            dtype = x.dtype
            seen = dtype, x.shape, x.stride(), x.is_cpu or x.device, x.is_neg()
        except RuntimeError:
            return x.layout
        # Only complex numbers are conjugated lazily, and only others than these become floats.
        return seen if dtype in real else (*seen, x.is_conj(), default_float())

    return of


def _of_sequence(x: Any) -> Any:
    if not (x and hasattr(x[0], "shape")):  # numbers, maybe very many; or what will be refused
        return type(x)
    return tuple([(type(y), _of_type(type(y))(y)) for y in x])


def _of_other(x: Any) -> Any:
    known = [getattr(x, name, None) for name in ("dtype", "shape", "strides")]
    if any(y is None for y in known):  # not an array that has a plan
        return type(x)
    return type(x), str(getattr(x, "device", None)), *known
