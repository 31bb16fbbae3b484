"""Triton's interpreter, made fast enough to run the laws.

It scans and reduces element by element, one Python call each, and prepares its language anew at
every call of a function.  Here tiles are scanned and reduced as a whole, in a tree, as devices do:
so the combining functions are also put to the test of associativity, which the interpreter's own
order, that of the loop, leaves out.  And what devices round once, it rounds once, as they do.
"""

from __future__ import annotations

import functools
import os
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np


def interpreting() -> bool:
    """Whether Triton is installed, and its interpreter asked for."""
    return find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET", "0").lower() in (
        "1",
        "true",
        "on",
        "yes",
        "y",
    )


def affordable(usual: int, interpreted: int) -> int:
    """How much of something a law is tried on: the interpreter takes a thousand times as long."""
    return interpreted if interpreting() else usual


@functools.cache
def quicken() -> None:
    """Do so for the rest of the process."""
    tl: Any = import_module("triton.language")
    interpreter: Any = import_module("triton.runtime.interpreter")

    def combine(op: Any, first: list[Any], then: list[Any], given: Any) -> list[Any]:
        """Earlier and later arrays, combined element by element."""
        tensors = (
            op.to_tensor(x, t.dtype) for x, t in zip((*first, *then), (*given, *given), strict=True)
        )
        result = op.combine_fn.fn(*tensors)
        return [x.handle.data for x in (result if isinstance(result, tuple) else (result,))]

    def scan(op: Any, given: Any) -> list[Any]:
        data = [x.handle.data for x in given]
        shape = data[0].shape
        step = np.arange(shape[op.axis]).reshape(
            [-1 if i == op.axis else 1 for i in range(len(shape))]
        )
        distance = 1
        while distance < shape[op.axis]:
            earlier = [np.roll(x, distance, op.axis) for x in data]
            joined = combine(op, earlier, data, given)
            data = [np.where(step < distance, x, y) for x, y in zip(data, joined, strict=True)]
            distance *= 2
        return [
            op.to_tensor(np.ascontiguousarray(x), t.dtype) for x, t in zip(data, given, strict=True)
        ]

    def reduce(op: Any, given: Any) -> list[Any]:
        axis, rank = op.axis, given[0].handle.data.ndim
        data = [x.handle.data for x in given]
        data = [x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0) for x in data]
        while len(data[0]) > 1:
            data = combine(op, [x[0::2] for x in data], [x[1::2] for x in data], given)
        data = [x[0] for x in data]
        if op.keep_dims:
            data = [
                np.reshape(x, (1,) * rank) if axis is None else np.expand_dims(x, axis)
                for x in data
            ]
        return [op.to_tensor(x, t.dtype) for x, t in zip(data, given, strict=True)]

    patch = interpreter._patch_lang

    def patch_all(fn: Any) -> Any:
        """Prepare all of the language, whatever part of it a kernel's module knows."""
        scope = patch(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
        scope.set_attr(tl.core.tensor, "__index__", lambda x: int(x.handle.data.squeeze()))
        return scope

    truncate = interpreter.InterpreterBuilder.create_fp_trunc

    def round_bfloat16(builder: Any, x: Any, dtype: Any) -> Any:
        """As devices do, and the interpreter does not: to the nearest, ties to even."""
        if (x.dtype.scalar, dtype.scalar) != (tl.float32, tl.bfloat16):
            return truncate(builder, x, dtype)
        bits = np.ascontiguousarray(x.data).view(np.uint32)
        nearest = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
        kept = np.where(np.isnan(x.data), (bits >> 16) | 64, nearest)
        return interpreter.TensorHandle(kept.astype(np.uint16), dtype.scalar)

    def fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
        """Multiply and add, rounding once (but for rare ties), as old interpreters do not."""
        return interpreter.TensorHandle(fma(x.data, y.data, z.data), z.dtype.scalar)

    semantic: Any = import_module("triton.language.semantic").TritonSemantic
    core, broadcast = tl.core, semantic.broadcast_impl_value
    make_type, type_of_tuple = core.block_type.__init__, core._type_for_tuple_values
    type_of_numpy = interpreter._get_np_dtype
    types: dict[Any, dict[str, Any]] = {}
    types_of_numpy: dict[str, Any] = {}

    def broadcast_what_differs(self: Any, x: Any, y: Any) -> Any:
        """Most operands have one shape already, which takes long to find out."""
        if x.handle.data.shape == y.handle.data.shape and x.type.is_block() == y.type.is_block():
            return x, y
        return broadcast(self, x, y)

    def type_once(self: Any, element: Any, shape: Any) -> None:
        """Every operation makes types, of which there are few."""
        key = str(element), tuple([getattr(n, "value", n) for n in shape])
        if key not in types:
            make_type(self, element, shape)
            types[key] = dict(vars(self))
        vars(self).update(types[key])

    @functools.cache
    def type_of_shape(*sizes: int) -> Any:
        return type_of_tuple([core.constexpr(n) for n in sizes])

    def type_of_tuple_once(values: Any, fields: Any = None) -> Any:
        """Most tuples are shapes."""
        sizes = [x.value if type(x) is core.constexpr else None for x in values]
        if fields is None and set(map(type, sizes)) <= {int}:
            return type_of_shape(*sizes)
        return type_of_tuple(values, fields)

    def type_of_numpy_once(element: Any) -> Any:
        """Looked up by its name."""
        name = str(element)
        if name not in types_of_numpy:
            types_of_numpy[name] = type_of_numpy(element)
        return types_of_numpy[name]

    semantic.broadcast_impl_value = broadcast_what_differs
    interpreter._get_np_dtype = type_of_numpy_once
    core.block_type.__init__ = type_once
    core._type_for_tuple_values = type_of_tuple_once
    run = interpreter.GridExecutor.__call__

    def run_silently(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Devices do not warn of what overflows."""
        with np.errstate(all="ignore"):
            return run(self, *args, **kwargs)

    interpreter.GridExecutor.__call__ = run_silently
    interpreter.InterpreterBuilder.create_fp_trunc = round_bfloat16
    if not hasattr(interpreter._interpreter, "fma_fp64"):
        interpreter.InterpreterBuilder.create_fma = fused
    interpreter._patch_lang = patch_all
    interpreter.InterpretedFunction.__call__ = lambda self, *args, **kwargs: self.rewrite()(
        *args, **kwargs
    )
    interpreter.ScanOps.generic_scan = scan
    interpreter.ReduceOps.generic_reduce = reduce


def fma(x: Any, y: Any, z: Any) -> Any:
    """``x * y + z`` with the product exact: in float64 if that holds it, else in two parts."""
    if x.dtype != np.float64:
        return (x.astype(np.float64) * y + z).astype(x.dtype)
    product = x * y
    (a, b), (c, d) = _halves(x), _halves(y)
    low = ((a * c - product) + a * d + b * c) + b * d
    total = product + z
    back = total - product
    low = low + ((product - (total - back)) + (z - back))
    return np.where(np.isfinite(low), total + low, total)


def _halves(x: Any) -> tuple[Any, Any]:
    """Two numbers of 26 bits, whose sum is x."""
    shifted = x * 134217729.0
    high = shifted - (shifted - x)
    return high, x - high
