"""What the plan of a call may depend on: all about its arguments but the contents of arrays."""

from __future__ import annotations

import sys
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any

import numpy as np

from linscan import _dispatch, _host
from linscan._arrays import default_float, is_torch


class Pattern:
    """What the types of some arguments say: which are arrays, and which count by their value."""

    def __init__(self, types: tuple[type, ...]) -> None:
        kinds = list(enumerate(types))
        by_value = [i for i, kind in kinds if issubclass(kind, (str, int))]
        by_type = [i for i, kind in kinds if kind in (float, complex, NoneType)]
        arrays = [i for i, _ in kinds if i not in (*by_value, *by_type)]
        self.values = itemgetter(*by_value) if by_value else len
        self.arrays = itemgetter(*arrays, 0, 0)  # two more, for it makes no tuple of just one
        self.all_numpy = all(types[i] is np.ndarray for i in arrays)


_patterns: dict[tuple[type, ...], Pattern] = {}


def look(name: str, backend: str, arguments: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The signature of a call, and the arrays in it, as NumPy arrays where that takes no copy.

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
    seen = tuple(map(_host.seen, arrays))
    default = default_float() if "torch" in sys.modules else None
    return (*key, default, *map(signature, seen)), seen


_of_numpy = attrgetter("dtype", "shape", "strides")


def signature(x: Any) -> Any:
    """All about one argument but its address and its contents."""
    kind = type(x)
    if kind is np.ndarray:
        return _of_numpy(x)
    if is_torch(x):
        try:
            own = x.dtype, x.shape, x.stride(), x.device, x.requires_grad
        except RuntimeError:
            return x.layout
        return own if x.dtype.is_floating_point else (*own, default_float())
    if isinstance(x, (tuple, list)):
        return tuple(map(signature, x)) if all(hasattr(y, "shape") for y in x) else kind
    known = [getattr(x, name, None) for name in ("dtype", "shape", "strides")]
    if any(y is None for y in known):  # not an array that has a plan
        return kind
    return kind, str(getattr(x, "device", None)), *known
