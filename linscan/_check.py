"""What is refused, and in which words."""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np

from linscan import _host
from linscan._arrays import (
    broadcast,
    dtype_name,
    hides_data,
    is_number_dtype,
    is_scalar,
    is_torch,
    namespace,
    place,
)

Check = Literal["auto", "full", "off"]


def looks_at_data(check: Check, x: Any) -> bool:
    """Whether a check of that kind reads what ``x`` holds.

    Never on a device, unless full; never where nothing may look: in a graph, under vmap.
    """
    if check == "off" or (is_torch(x) and hides_data()):
        return False
    return check == "full" or _host.is_cpu_array(x)


def integer(name: str, x: Any) -> int:
    """An integer, of Python or of NumPy, as one of Python; anything else is a TypeError."""
    if type(x) is int:
        return x
    if isinstance(x, bool) or not isinstance(x, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, not {x!r}")
    return int(x)


def boolean(name: str, x: Any) -> bool:
    """A bool, of Python or of NumPy, as one of Python; anything else is a TypeError."""
    if not isinstance(x, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {x!r}")
    return bool(x)


def check_options(axis: int, chunk_size: int | None, check: Check) -> tuple[int, int | None]:
    """The first two as Python's integers; what is none of what it may be is refused by name."""
    axis = integer("axis", axis)
    if chunk_size is not None:
        chunk_size = integer("chunk_size", chunk_size)
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1, not {chunk_size}")
    one_of("check", check, ("auto", "full", "off"))
    return axis, chunk_size


def one_of(name: str, value: Any, allowed: tuple[str | None, ...]) -> None:
    """ValueError unless the value is one of these."""
    if not (value is None or isinstance(value, str)) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def check_axis(axis: int, rank: int, of: str) -> int:
    """The axis counted from the front; ValueError if there is no such axis."""
    axis = integer("axis", axis)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range: {of} has rank {rank}")
    return axis % rank


def check_broadcast(name: str, x: Any, shape: tuple[int, ...], of: str) -> None:
    """ValueError unless ``x`` broadcasts to ``shape`` without enlarging it."""
    if broadcast(tuple(x.shape), shape) == shape:
        return
    raise ValueError(
        f"{name} has shape {tuple(x.shape)}, which does not broadcast to {shape}, the shape of {of}"
    )


def check_same_place(**arrays: Any) -> None:
    """TypeError unless every array is of the same library and on the same device."""
    given = {name: place(x) for name, x in arrays.items() if x is not None}
    if len(set(given.values())) > 1:
        listed = ", ".join(f"{name} is {where}" for name, where in given.items())
        raise TypeError(f"all arrays must be of one library and on one device, but {listed}")


def check_out(name: str, out: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Raise unless ``out`` can take the result: its shape and dtype, each element once.

    Looks at nothing but what a plan may depend on.
    """
    if tuple(out.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(out.shape)}, but the result has shape {shape}")
    if dtype_name(out) != dtype or not getattr(out.dtype, "isnative", True):
        raise TypeError(f"{name} has dtype {out.dtype}, but the result has dtype {dtype}")
    if is_torch(out) and hides_data():
        return
    if _host.is_cpu_array(out) and _overlaps_itself(_host.view(out)):
        raise ValueError(f"{name} overlaps itself: several of its elements share memory")


def check_memory(name: str, out: Any, inputs: dict[str, Any]) -> None:
    """Raise unless ``out`` may be written: it is writeable, and shares no memory with an input."""
    if is_torch(out):
        _check_tensor_out(name, out)
    if _host.is_cpu_array(out):
        memory = _host.view(out)
        if not memory.flags.writeable:
            raise ValueError(f"{name} is read-only")
        for other, x in inputs.items():
            if not (x is None or is_scalar(x)) and np.shares_memory(memory, _host.view(x)):
                raise ValueError(f"{name} shares memory with {other}: it needs memory of its own")


def _check_tensor_out(name: str, out: Any) -> None:
    torch = sys.modules["torch"]
    if out.is_conj() or out.is_neg():
        raise ValueError(f"{name} is a lazy conjugate: pass the tensor that it is a view of")
    if out.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires grad: pass a tensor that does not")
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(f"{name} is an inference tensor: write to it in inference mode only")


def _overlaps_itself(x: np.ndarray[Any, Any]) -> bool:
    """Whether elements share memory: they may, unless each axis steps over the finer ones."""
    if x.flags.forc:
        return False
    extent = x.itemsize
    for step, n in sorted((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
        if step < extent:
            return True
        extent += step * (n - 1)
    return False


def at(name: str, position: tuple[int, ...]) -> str:
    """``name[0, 1]``, for messages; the name alone at rank 0."""
    return f"{name}[{', '.join(map(str, position))}]" if position else name


def first_true(condition: Any) -> tuple[int, ...] | None:
    """The index of the first true element, or None."""
    xp = namespace(condition)
    if not bool(xp.any(condition)):
        return None
    first = int(xp.argmax(xp.reshape(xp.astype(condition, xp.uint8), (-1,))))
    return tuple(map(int, np.unravel_index(first, tuple(condition.shape))))


def binary(name: str, x: Any, check: bool) -> Any:
    """A flag or mask as bool; ValueError with the first position that holds neither 0 nor 1."""
    dtype = dtype_name(x)
    if dtype == "bool":
        return x
    if not is_number_dtype(dtype) or "complex" in dtype:
        raise TypeError(f"{name} must be bool, or numbers that are 0 or 1, not {x.dtype}")
    flags = x != 0
    if check:
        bad = first_true(flags != x)
        if bad is not None:
            raise ValueError(
                f"{name} must be 0 or 1 everywhere, but {at(name, bad)} is {x[bad].item()}"
            )
    return flags


def refuse_nan(name: str, x: Any, where: Any = None) -> None:
    """ValueError with the first position, among those where it is read, that holds NaN."""
    if x is None:
        return
    if is_scalar(x):
        if x != x:
            raise ValueError(f"{name} is NaN (check='full')")
        return
    bad = x != x
    position = first_true(bad if where is None else bad & where)
    if position is not None:
        own = position[len(position) - x.ndim :]
        position = tuple(0 if n == 1 else i for i, n in zip(own, x.shape, strict=True))
        raise ValueError(f"{at(name, position)} is NaN (check='full')")
