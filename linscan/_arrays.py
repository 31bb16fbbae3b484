"""Array libraries, as far as the front-end must know them: nothing here imports one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from linscan import _host
from linscan._problem import ACCUMULATE


def is_scalar(x: Any) -> bool:
    """Whether ``x`` is a Python number, which is weak in promotion; NumPy's scalars are not."""
    return isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)


def is_torch(x: Any) -> bool:
    """Whether ``x`` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def as_array(name: str, x: Any) -> Any:
    """``x`` as an array: lists go through NumPy, arrays pass; anything else is a TypeError."""
    if type(x) is np.ndarray:
        return x
    if is_torch(x):
        if x.layout is not sys.modules["torch"].strided:
            raise TypeError(
                f"{name} must be a dense tensor, not {x.layout}: pass {name}.to_dense()"
            )
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, and linscan does not read its mask: pass {name}.filled() "
            "(and, to an estimator, mask=)"
        )
    if isinstance(x, (list, tuple, np.ndarray, np.generic)):
        return np.asarray(x)
    if hasattr(x, "dtype") and hasattr(x, "shape") and hasattr(x, "__dlpack__"):
        return x
    raise TypeError(f"{name} must be an array, not {type(x).__module__}.{type(x).__qualname__}")


def signature(x: Any) -> Any:
    """What a plan may depend on: everything about an array but its address and its contents."""
    if type(x) is np.ndarray:
        return x.dtype, x.shape, x.strides
    if is_torch(x):
        return x.dtype, x.shape, x.stride(), x.device, x.requires_grad
    if x is None or is_scalar(x):
        return type(x)
    if hasattr(x, "dtype"):
        return type(x), x.dtype, tuple(x.shape), x.strides, x.device
    return type(x)


def place(x: Any) -> str:
    """The library and the device of an array, for comparing and for messages."""
    if isinstance(x, np.ndarray):
        return "a NumPy array"
    if is_torch(x):
        return f"a torch tensor on {x.device}"
    return f"{type(x).__module__}.{type(x).__qualname__} on {x.device}"


def check_same_place(**arrays: Any) -> None:
    """TypeError unless every array is of the same library and on the same device."""
    given = {name: place(x) for name, x in arrays.items() if x is not None}
    if len(set(given.values())) > 1:
        listed = ", ".join(f"{name} is {where}" for name, where in given.items())
        raise TypeError(f"all arrays must be of one library and on one device, but {listed}")


def dtype_name(x: Any) -> str:
    """``float32`` and the like; NumPy's byte order is not part of the name."""
    return str(x.dtype).removeprefix("torch.") if is_torch(x) else str(np.dtype(x.dtype).name)


def is_number_dtype(name: str) -> bool:
    """Whether a dtype can be promoted to one that a scan works in."""
    return name in ACCUMULATE or name == "bool" or name.removeprefix("u").startswith("int")


def promote(operands: Sequence[Any]) -> str:
    """The dtype an operation on these arrays and Python numbers has in their own library.

    Integers and bools become the library's default float.
    """
    arrays = [x for x in operands if not is_scalar(x)]
    for x in arrays:
        if not is_number_dtype(dtype_name(x)):
            raise TypeError(
                f"dtype {dtype_name(x)} is not supported; use one of {', '.join(ACCUMULATE)}, "
                "or integers or bools, which become the default float"
            )
    if is_torch(arrays[0]):
        torch = sys.modules["torch"]
        result = operands[0]
        for x in operands[1:]:
            shape = (1,) if any(getattr(y, "ndim", 0) for y in (result, x)) else ()
            result = torch.empty(shape, dtype=torch.result_type(result, x), device="meta")
        dtype = result.dtype if not is_scalar(result) else torch.get_default_dtype()
        if not (dtype.is_floating_point or dtype.is_complex):
            dtype = torch.get_default_dtype()
        return str(dtype).removeprefix("torch.")
    name = str(np.result_type(*(x if is_scalar(x) else x.dtype for x in operands)).name)
    return name if name in ACCUMULATE else "float64"


def native(x: Any, dtype: str) -> Any:
    """``x`` in that dtype and in native byte order; ``x`` itself if it is already."""
    if is_torch(x):
        return x.to(getattr(sys.modules["torch"], dtype))
    if dtype_name(x) == dtype and x.dtype.isnative:
        return x
    return x.astype(dtype)


def namespace(x: Any) -> Any:
    """The array-API namespace of ``x``."""
    from array_api_compat import array_namespace

    return array_namespace(x)


def empty(shape: tuple[int, ...], model: Any, dtype: str) -> Any:
    """A fresh uninitialised array of ``model``'s library and device."""
    if _host.is_cpu_array(model):
        return _host.like(_host.empty(shape, dtype)[0], model, dtype)
    if is_torch(model):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=model.device)
    return namespace(model).empty(shape, dtype=dtype)


def check_out(
    name: str, out: Any, shape: tuple[int, ...], dtype: str, inputs: dict[str, Any]
) -> None:
    """Raise unless ``out`` can take the result: its shape, dtype, and memory of its own."""
    if tuple(out.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(out.shape)}, but the result has shape {shape}")
    if dtype_name(out) != dtype or not getattr(out.dtype, "isnative", True):
        raise TypeError(f"{name} has dtype {out.dtype}, but the result has dtype {dtype}")
    if _host.is_cpu_array(out):
        memory = _host.view(out)
        if not memory.flags.writeable:
            raise ValueError(f"{name} is read-only")
        if any(s == 0 and n > 1 for n, s in zip(memory.shape, memory.strides, strict=True)):
            raise ValueError(f"{name} overlaps itself: several of its elements share memory")
        for other, x in inputs.items():
            if x is not None and np.shares_memory(memory, _host.view(x)):
                raise ValueError(f"{name} shares memory with {other}: inputs are never written")


def first_true(condition: Any) -> tuple[int, ...] | None:
    """The index of the first true element, or None."""
    found = np.argwhere(_host.view(condition))
    return tuple(int(i) for i in found[0]) if len(found) else None


def binary(name: str, x: Any, check: bool) -> Any:
    """A flag or mask as bool; ValueError with the first position that holds neither 0 nor 1."""
    if dtype_name(x) == "bool":
        return x
    if not is_number_dtype(dtype_name(x)) or "complex" in dtype_name(x):
        raise TypeError(f"{name} must be bool, or numbers that are 0 or 1, not {x.dtype}")
    if check:
        bad = first_true((x != 0) & (x != 1))
        if bad is not None:
            raise ValueError(
                f"{name} must be 0 or 1 everywhere, but {name}[{', '.join(map(str, bad))}] "
                f"is {x[bad]}"
            )
    return x != 0
