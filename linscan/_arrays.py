"""Array libraries, as far as the front-end must know them: nothing here imports one."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from linscan import _host
from linscan._problem import ACCUMULATE


def is_scalar(x: Any) -> bool:
    """Whether ``x`` is a Python number, which is weak in promotion; NumPy's scalars are not."""
    return isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)


def is_torch(x: Any) -> bool:
    """Whether ``x`` is a torch tensor."""
    if type(x) is np.ndarray:  # far quicker than to ask torch
        return False
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def hides_data() -> bool:
    """Whether tensors have no data to be looked at: in a graph, or under a transformation."""
    torch = sys.modules["torch"]
    return bool(torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def is_cupy(x: Any) -> bool:
    """Whether ``x`` is a CuPy array."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(x, cupy.ndarray)


def is_plain(x: Any) -> bool:
    """Whether ``x`` is an array that :func:`as_array` would leave as it is."""
    if type(x) is np.ndarray:
        return True
    return is_torch(x) and x.layout is sys.modules["torch"].strided and not x.is_nested


def as_array(name: str, x: Any) -> Any:
    """``x`` as an array: lists go through NumPy, arrays pass; anything else is a TypeError."""
    if is_plain(x):
        return x
    if is_torch(x) and x.is_nested:
        raise TypeError(
            f"{name} must be a dense tensor, not a nested one: pad it, or concatenate its parts "
            "and pass cu_seqlens="
        )
    if is_torch(x):
        raise TypeError(f"{name} must be a dense tensor, not {x.layout}: pass {name}.to_dense()")
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, and linscan does not read its mask: pass {name}.filled() "
            "(and, to an estimator, mask=)"
        )
    if isinstance(x, (list, tuple)):
        try:
            return np.asarray(x)
        except ValueError:
            raise ValueError(
                f"{name} is a list of parts that differ in shape: pad them, or concatenate them "
                "and pass cu_seqlens="
            ) from None
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    if all(hasattr(x, attribute) for attribute in ("dtype", "shape", "strides", "__dlpack__")):
        return x
    raise TypeError(
        f"{name} must be a NumPy array, a torch tensor or a CuPy array, not "
        f"{type(x).__module__}.{type(x).__qualname__}"
    )


def target(name: str, x: Any) -> Any:
    """An array to write into; a list, which NumPy would copy, is a TypeError."""
    if isinstance(x, (list, tuple, np.generic)):
        raise TypeError(f"{name} must be an array, not {type(x).__name__}")
    return as_array(name, x)


def default_float() -> Any:
    """What torch makes of integers and bools."""
    return sys.modules["torch"].get_default_dtype()


def real(name: str, x: Any) -> float:
    """A Python number as a float; ValueError if it is too large for one."""
    try:
        return float(x)
    except OverflowError:
        raise ValueError(f"{name} is too large for a float") from None


def place(x: Any) -> str:
    """The library and the device of an array, for comparing and for messages."""
    if isinstance(x, np.ndarray):
        return "a NumPy array"
    if is_torch(x):
        return f"a torch tensor on {x.device}"
    return f"{type(x).__module__}.{type(x).__qualname__} on {x.device}"


def dtype_name(x: Any) -> str:
    """``float32`` and the like; NumPy's byte order is not part of the name."""
    return str(x.dtype).removeprefix("torch.") if is_torch(x) else str(np.dtype(x.dtype).name)


def dtype_of(name: str, dtype: Any) -> str:
    """The name of a dtype given as a name, a NumPy dtype or a torch dtype."""
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        raise TypeError(f"{name} must be a dtype, not {dtype!r}") from None


def is_number_dtype(name: str) -> bool:
    """Whether a dtype can be promoted to one that a scan works in."""
    return name in ACCUMULATE or name == "bool" or name.removeprefix("u").startswith("int")


def promote(**named: Any) -> str:
    """The dtype an operation on these arrays and Python numbers has in their own library.

    None is not counted.  Integers and bools become the library's default float.
    """
    operands = [x for x in named.values() if x is not None]
    for name, x in named.items():
        if not (x is None or is_scalar(x) or is_number_dtype(dtype_name(x))):
            raise TypeError(
                f"{name} has dtype {x.dtype}, which is not supported; use one of "
                f"{', '.join(ACCUMULATE)}, or integers or bools, which become the default float"
            )
    if any(map(is_torch, operands)):
        torch = sys.modules["torch"]
        result: Any = 0
        for x in operands:
            if not is_scalar(x):
                x = torch.empty((1,) * min(x.ndim, 1), dtype=x.dtype, device="meta")
            result = result + x
        dtype = result.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            dtype = default_float()
        return str(dtype).removeprefix("torch.")
    kinds = [x if is_scalar(x) else x.dtype for x in operands]
    if "bfloat16" in map(str, kinds):  # of ml_dtypes, for which NumPy takes no number as weak
        kinds = [x for x in kinds if not isinstance(x, (int, float))]
    name = str(np.result_type(*kinds).name)
    return name if name in ACCUMULATE else "float64"


def native(x: Any, dtype: str) -> Any:
    """``x`` in that dtype and in native byte order; ``x`` itself if it is already."""
    if is_torch(x):
        return x.to(getattr(sys.modules["torch"], dtype))
    if not needs_cast(x, dtype):
        return x
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def namespace(x: Any) -> Any:
    """The array-API namespace of ``x``."""
    if is_torch(x):
        from array_api_compat import torch

        return torch
    from array_api_compat import array_namespace

    return array_namespace(x)


def quiet(x: Any) -> AbstractContextManager[Any]:
    """No warnings about what ``x`` holds; torch has none."""
    return nullcontext() if is_torch(x) else np.errstate(all="ignore")


def put(x: Any, steps: Any, values: Any) -> Any:
    """A fresh ``x`` with those values at some steps of its first axis."""
    if is_torch(x):
        return x.index_put((steps,), values)
    x[steps] = values
    return x


def empty(shape: tuple[int, ...], model: Any, dtype: str) -> Any:
    """A fresh uninitialised array of ``model``'s library and device."""
    if _host.is_cpu_array(model) and not (is_torch(model) and hides_data()):
        return _host.like(_host.empty(shape, dtype)[0], model, dtype)
    if is_torch(model):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=model.device)
    if is_cupy(model):
        with model.device:  # CuPy's own empty goes to whichever is current
            return sys.modules["cupy"].empty(shape, dtype)
    return namespace(model).empty(shape, dtype=dtype)


def filled(shape: tuple[int, ...], value: Any, model: Any, dtype: str) -> Any:
    """A fresh array of ``model``'s library and device that holds ``value`` everywhere."""
    x = empty(shape, model, dtype)
    with quiet(x):
        x[...] = value
    return x


def expanded(x: Any, shape: tuple[int, ...]) -> Any:
    """A contiguous copy of ``x``, broadcast to that shape."""
    return filled(shape, x, x, dtype_name(x))


def along(axis: int, steps: Any, shape: tuple[int, ...], model: Any) -> Any:
    """A bool array that is true at those steps: full along the axis, of size 1 elsewhere.

    A step T, past the last one, is none.
    """
    marks = filled((shape[axis] + 1,), False, model, "bool")
    marks[steps] = True
    return marks[:-1].reshape(tuple(n if i == axis else 1 for i, n in enumerate(shape)))


def array_like(name: str, x: Any, model: Any) -> Any:
    """An array as it is; a number as an array of rank 0 in ``model``'s library."""
    if isinstance(x, np.generic) and is_torch(model):
        x = x.item()
    if is_scalar(x):
        return filled(
            (), x, model, "bool" if isinstance(x, bool) else promote(data=model, **{name: x})
        )
    return as_array(name, x)


def needs_cast(x: Any, dtype: str) -> bool:
    """Whether :func:`native` would make a copy."""
    return dtype_name(x) != dtype or not getattr(x.dtype, "isnative", True)


def moveaxis(x: Any, source: int, destination: int) -> Any:
    """The array with one axis elsewhere."""
    if is_torch(x):
        return x.movedim(source, destination)  # vmap has no rule for its moveaxis
    return namespace(x).moveaxis(x, source, destination)


def broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that two broadcast to, or None.  Their sizes may be symbols, of a graph."""
    rank = max(len(one), len(other))
    one, other = (1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other
    if not all(m == n or 1 in (m, n) for m, n in zip(one, other, strict=True)):
        return None
    return tuple([n if m == 1 else m for m, n in zip(one, other, strict=True)])


def broadcast_shape(a: Any, b: Any) -> tuple[int, ...]:
    """The shape of the result; ValueError if there is none, or if it has rank 0."""
    shape = tuple(b.shape)
    if not is_scalar(a):
        both = broadcast(tuple(a.shape), shape)
        if both is None:
            raise ValueError(
                f"a has shape {tuple(a.shape)} and b has shape {shape}: they do not broadcast"
            )
        shape = both
    if not shape:
        raise ValueError("b has rank 0: a scan needs an axis of time")
    return shape
