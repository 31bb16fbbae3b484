"""Scans that torch follows: under autograd, in forward mode, in ``torch.func``, in a graph.

Here every step is an operation of torch's own, around a backend's differentiable scan, and nothing
looks at what a tensor holds.  The same lines run in eager mode and under Dynamo, which records
them: so sizes may be symbols, and the backend is looked up in a function that Dynamo calls instead
of tracing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, NamedTuple

from linscan import _arrays, _dispatch
from linscan._arrays import hides_data, is_scalar
from linscan._call import ScanCall
from linscan._check import (
    binary,
    check_axis,
    check_broadcast,
    check_out,
    check_same_place,
    looks_at_data,
)
from linscan._dispatch import Choice
from linscan._layout import with_time
from linscan._problem import ACCUMULATE, ScanProblem
from linscan._protocol import Backend
from linscan._signature import look

Shape = tuple[int, ...]


def in_graph() -> bool:
    """Whether Dynamo, or export, records what happens."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


def is_tracked(b: Any, *others: Any) -> bool:
    """Whether torch follows what is done to these."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(b, torch.Tensor):
        return False
    dual = torch.autograd.forward_ad._current_level >= 0
    return dual or hides_data() or requires_grad(b, *others)


def requires_grad(*operands: Any) -> bool:
    """Whether autograd follows what is done to these."""
    return sys.modules["torch"].is_grad_enabled() and any(
        getattr(x, "requires_grad", False) for x in operands
    )


def engine(name: str, device: str, dtype: str) -> str:
    """The name of the backend that a call gets, ready to be called by ``_differentiable``."""
    return _engine(name, device, dtype)[0].backend.name


engine._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo calls it


@cache
def _engine(name: str, device: str, dtype: str) -> tuple[Choice, Callable[..., Any]]:
    torch = sys.modules["torch"]
    model = torch.empty(0, dtype=getattr(torch, dtype), device=device)
    problem = ScanProblem(1, 1, 1, dtype, "full")
    choice = _dispatch.choose(
        name, [model], lambda backend: cannot_follow(backend) or backend.supports(problem)
    )
    backend: Any = choice.backend
    return choice, backend.differentiable()


def cannot_follow(backend: Backend) -> str | None:
    """Why torch cannot follow what a backend does, or None."""
    if hasattr(backend, "differentiable"):
        return None
    return "it computes no gradients, and joins no graph"


def choose(call: ScanCall) -> Choice:
    """The backend that a call gets, and why not those that come before it."""
    name = _dispatch.resolve(call.backend)
    plan = _plan(call, name)
    return _engine(name, call.b.device.type, plan.work)[0]


def _differentiable(
    backend: str, device: str, a: Any, b: Any, initial: Any, reset: Any, reverse: bool, chunks: Any
) -> Any:
    """A backend's scan with gradients: where it is recorded, the operation of that name."""
    if not in_graph():
        return _engine(backend, device, _arrays.dtype_name(b))[1](
            a, b, initial, reset, reverse, chunks
        )
    multiplier, number = (None, a) if is_scalar(a) else (a, 0.0)
    operation = sys.modules["torch"].ops.linscan.scan
    return operation(multiplier, b, initial, reset, backend, number, reverse, False, chunks)


def fold(x: Any, shape: Shape, axis: int) -> Any:
    """An operand of a result of that shape as ``(outer, time, inner)``; sizes of 1 broadcast."""
    own = (1,) * (len(shape) - x.ndim) + tuple(x.shape)

    def group(axes: slice) -> Shape:
        return own[axes] if all(n == 1 for n in own[axes]) else shape[axes]

    outer, inner = group(slice(axis)), group(slice(axis + 1, None))
    every = (*outer, own[axis], *inner)
    if every != own:
        x = x.reshape(own).expand(every)
    return x.reshape(prod(outer), own[axis], prod(inner))


class TrackedPlan(NamedTuple):
    """What the arguments decide, once they have been checked."""

    backend: str
    dtype: str
    work: str
    """The dtype to scan in: wider than 16 bits where a number must not be rounded to them."""
    shape: Shape
    axis: int


_plans: dict[Any, TrackedPlan] = {}


def solve_tracked(call: ScanCall) -> tuple[Any, Any]:
    """``(x, final)`` of a call without packed sequences."""
    if in_graph():
        plan = _plan(call, _dispatch.resolve_in_graph(call.backend))
    else:
        key, _ = look("scan", call.backend, call)
        found = _plans.get(key)
        if found is None:
            if len(_plans) >= 1024:
                _plans.clear()
            found = _plans[key] = _plan(call, _dispatch.resolve(call.backend))
        plan = found
    return _run(plan, call)


def _plan(call: ScanCall, backend: str) -> TrackedPlan:
    a, b, initial, reset = call.a, call.b, call.initial, call.reset
    named = {"b": b, "initial": initial, "reset": reset, "out": call.out}
    if not is_scalar(a):
        named["a"] = a
    check_same_place(**named)
    dtype = work = _arrays.promote(a=a, b=b, initial=initial)
    if not is_scalar(a) and a.ndim == 0:
        work = ACCUMULATE[dtype]
    shape = _arrays.broadcast_shape(a, b)
    axis = check_axis(call.axis, len(shape), "the result")
    if reset is not None:
        check_broadcast("reset", reset, shape, "the result")
    if initial is not None:
        rest = shape[:axis] + shape[axis + 1 :]
        check_broadcast("initial", initial, rest, "the result without its time axis")
    if call.out is not None:
        check_out("out", call.out, shape, dtype)
        if not in_graph() or requires_grad(a, b, initial):
            raise ValueError(
                "out= is written without a trace, and gradients need one: leave out= away, or "
                "call under torch.no_grad()"
            )
    name = engine(backend, b.device.type, work)
    return TrackedPlan(name, dtype, work, shape, axis)


def _run(plan: TrackedPlan, call: ScanCall) -> tuple[Any, Any]:
    backend, dtype, work, shape, axis = plan
    a, b, initial, reset = call.a, call.b, call.initial, call.reset
    if reset is not None:
        reset = binary("reset", reset, looks_at_data(call.check, reset))
    if call.check == "full" and not hides_data():
        call.refuse_nan(shape, axis, reset)
    time = shape[axis]
    if initial is not None:
        initial = with_time(_arrays.native(initial, work), len(shape), axis)
    x = _differentiable(
        backend,
        b.device.type,
        a if is_scalar(a) else fold(_arrays.native(a, work), shape, axis),
        fold(_arrays.native(b, work), shape, axis),
        None if initial is None else fold(initial, shape, axis),
        None if reset is None else fold(reset, shape, axis),
        call.reverse,
        call.chunk_size,
    )
    x = _arrays.native(x, dtype).reshape(shape)
    if call.out is not None:
        call.out.copy_(x)
        x = call.out
    if not call.return_final:
        return x, None
    if time:
        return x, x.select(axis, 0 if call.reverse else time - 1).clone()
    rest = shape[:axis] + shape[axis + 1 :]
    if initial is None:
        return x, x.new_zeros(rest)
    return x, _arrays.native(initial, dtype).squeeze(axis).expand(rest).clone()
