"""A scan as torch differentiates it: one operation, whatever engine computes it.

An engine is a backend's ``scan`` on torch tensors, registered under the backend's name.  It knows
nothing of gradients: they are calls of the same operation (see ``_derivatives``), so that every
order and every mode of differentiation follows.

The operation exists twice.  In eager mode it is a :class:`torch.autograd.Function`, with reverse
mode, forward mode and vmap.  In a graph (``torch.compile``, ``torch.export``) it is
``torch.ops.linscan.scan``, which Dynamo can record; it has no forward mode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import Function

from linscan import _host
from linscan._problem import Kind, ScanProblem
from linscan._protocol import Backward
from linscan_torch._derivatives import (
    Calls,
    Gradient,
    Way,
    carried,
    conj,
    entering,
    multiplier_gradient,
    reduced,
    state_gradient,
    wide,
)


class Engine(NamedTuple):
    """What computes: without gradients, on plain tensors."""

    scan: Callable[..., tuple[Any, Any]]
    backward: Backward | None


ENGINES: dict[str, Engine] = {}


def register(
    name: str, scan: Callable[..., tuple[Any, Any]], backward: Backward | None = None
) -> Callable[..., Tensor]:
    """Make a backend's ``scan`` an engine; returns :func:`differentiable` on it.

    ``backward`` is :data:`linscan._protocol.Backward`.
    """
    ENGINES[name] = Engine(scan, backward)
    return partial(differentiable, name)


def differentiable(
    engine: str,
    a: Any,
    b: Tensor,
    initial: Gradient,
    reset: Gradient,
    reverse: bool,
    chunk_size: int | None,
) -> Tensor:
    """A scan of ``(outer, time, inner)``, sizes of 1 broadcasting, that autograd can follow."""
    multiplier, number = (a, 0.0) if isinstance(a, Tensor) else (None, a)
    return EAGER.scan(
        multiplier, b, initial, reset, Way(engine, number, reverse, False, chunk_size)
    )


# ---------------------------------------------------------------------------- without gradients


@lru_cache(1024)
def _problem(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    a: torch.Size | None,
    reverse: bool,
    reset: bool,
    initial: bool,
    chunk_size: int | None,
) -> ScanProblem:
    kind: Kind = "full"
    if a is None:
        kind = "scalar"
    elif a[1] == 1:
        kind = "row"
    elif a[0] == a[2] == 1:
        kind = "step"
    name = str(dtype).removeprefix("torch.")
    return ScanProblem(*shape, name, kind, reverse, reset, initial, chunk_size=chunk_size)


def _described(a: Gradient, x: Tensor, initial: Gradient, reset: Gradient, way: Way) -> ScanProblem:
    return _problem(
        tuple(x.shape),
        x.dtype,
        None if a is None else a.shape,
        way.reverse,
        reset is not None,
        initial is not None,
        way.chunk_size,
    )


def _shape(a: Gradient, b: Tensor) -> tuple[int, ...]:
    """Of the result."""
    if a is None:
        return tuple(b.shape)
    return tuple(m if n == 1 else n for m, n in zip(a.shape, b.shape, strict=True))


def _empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    if like.device.type == "cpu":
        name = str(like.dtype).removeprefix("torch.")
        x: Tensor = _host.like(_host.empty(shape, name)[0], like, name)
        return x
    return like.new_empty(shape)


def _scan(a: Gradient, b: Tensor, initial: Gradient, reset: Gradient, way: Way) -> Tensor:
    """The operation itself, by the engine."""
    engine = ENGINES[way.engine]
    shape = _shape(a, b)
    b = b if tuple(b.shape) == shape else b.expand(shape)
    if not way.leaving:
        problem = _described(a, b, initial, reset, way)
        x, _ = engine.scan(problem, way.number if a is None else a, b, initial, reset, None)
        plain: Tensor = x
        return plain
    x = _empty(shape, b)
    if x.numel():
        first, b, out = way.first(b), way.targets(b), way.targets(x)
        way.first(x).copy_(first)
        a = None if a is None else way.between(a)
        reset = None if reset is None else way.between(reset)
        problem = _described(a, b, first, reset, way)
        if out.numel():
            engine.scan(problem, way.number if a is None else a, b, first, reset, out)
    return x


def _adjoint(
    a: Tensor, x: Tensor, initial: Gradient, g: Tensor, reset: Gradient, way: Way
) -> tuple[Tensor, Tensor]:
    """``(λ, ∂a)``: in one pass if the engine has one, else in two."""
    backward = ENGINES[way.engine].backward
    if backward is not None and x.numel():
        problem = _described(a, x, initial, reset, way)
        both = backward(problem, a, x, initial, g, reset)
        if both is not None:
            return both
    lam = _scan(conj(a), g, None, reset, way.adjoint)
    product = _empty(tuple(lam.shape), wide(lam[:0]))
    torch.mul(wide(way.targets(lam)), conj(wide(way.sources(x))), out=way.targets(product))
    if initial is None:
        way.first(product).zero_()
    else:
        way.first(product).copy_(entering(way, wide(lam), conj(wide(initial)), None))
    if reset is not None:
        product.masked_fill_(reset, 0)
    return lam, reduced(product, a.shape).to(lam.dtype)


# ------------------------------------------------------------------ derivatives, by either of two


def _remember_scan(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, initial, reset, *way = inputs
    ctx.way, ctx.shape = Way(*way), b.shape
    ctx.save_for_backward(a, output if ctx.needs_input_grad[0] else None, initial, reset)
    ctx.set_materialize_grads(False)


def _scan_gradients(calls: Calls, ctx: Any, g: Gradient) -> tuple[Gradient, ...]:
    """Of the scan's inputs."""
    others = (None,) * (1 + len(Way._fields))
    if g is None:
        return None, None, None, *others
    a, x, initial, reset = ctx.saved_tensors
    needs_a, needs_b, needs_initial, *_ = ctx.needs_input_grad
    way: Way = ctx.way
    grad_a = None
    if needs_a and not way.leaving:
        lam, grad_a = calls.adjoint(a, x, initial, g, reset, way)
    else:
        lam = calls.scan(None if a is None else conj(a), g, None, reset, way.adjoint)
        if a is not None and needs_a:
            grad_a = multiplier_gradient(way, lam, x, None, reset, a.shape)
    return (
        grad_a,
        reduced(lam, ctx.shape) if needs_b else None,
        state_gradient(way, a, lam, reset, initial) if needs_initial else None,
        *others,
    )


def _remember_adjoint(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    a, x, initial, _, reset, *way = inputs
    ctx.way = Way(*way)
    ctx.save_for_backward(a, x, initial, reset, output[0])
    ctx.set_materialize_grads(False)


def _adjoint_gradients(
    calls: Calls, ctx: Any, g_lam: Gradient, g_grad_a: Gradient
) -> tuple[Gradient, ...]:
    """Of the adjoint's inputs."""
    a, x, initial, reset, lam = ctx.saved_tensors
    way: Way = ctx.way
    grad_x = grad_initial = None
    into_lam = g_lam
    if g_grad_a is not None:
        brought = carried(way, g_grad_a, x, initial, reset)
        into_lam = brought if g_lam is None else g_lam + brought
        grad_x = carried(way.adjoint, conj(g_grad_a), lam, None, reset)
        if initial is not None:
            grad_initial = state_gradient(way, g_grad_a, lam, reset, initial)
    grad_a = grad_g = None
    if into_lam is not None:
        grad_g = calls.scan(a, into_lam, None, reset, way)
        grad_a = multiplier_gradient(way, lam, grad_g, None, reset, a.shape)
    return grad_a, grad_x, grad_initial, grad_g, None, *(None,) * len(Way._fields)


class _Fold:
    """A mapped axis, of that size, as more rows of the outer one."""

    def __init__(self, size: int, operands: tuple[Gradient, ...], dims: tuple[Any, ...]) -> None:
        self.size = size
        pairs = zip(operands, dims, strict=False)
        self.outer = max(self.outer_of(x, dim) for x, dim in pairs if x is not None)

    @staticmethod
    def outer_of(x: Tensor, dim: int | None) -> int:
        """The size of the outer axis of each."""
        return x.shape[0] if dim is None else x.movedim(dim, 0).shape[1]

    def __call__(self, x: Gradient, dim: int | None) -> Any:
        """An operand, left alone where it broadcasts along both."""
        return x if x is None or (dim is None and x.shape[0] == 1) else self.every(x, dim)

    def every(self, x: Tensor, dim: int | None) -> Tensor:
        """An operand with all its rows."""
        x = x[None] if dim is None else x.movedim(dim, 0)
        rest = x.shape[2:]
        return x.expand(self.size, self.outer, *rest).reshape(self.size * self.outer, *rest)

    def undo(self, x: Tensor) -> Tensor:
        """A result, mapped along its first axis."""
        return x.reshape(self.size, self.outer, *x.shape[1:])


def _mapped_scan(
    calls: Calls, info: Any, dims: tuple[Any, ...], *inputs: Any
) -> tuple[Tensor, int]:
    fold = _Fold(info.batch_size, inputs[:4], dims)
    a, b, initial, reset = map(fold, inputs[:4], dims)
    if dims[0] is None:
        b = fold.every(inputs[1], dims[1])
    return fold.undo(calls.scan(a, b, initial, reset, Way(*inputs[4:]))), 0


def _mapped_adjoint(
    calls: Calls, info: Any, dims: tuple[Any, ...], *inputs: Any
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    fold = _Fold(info.batch_size, inputs[:5], dims)
    _, _, initial, _, reset = map(fold, inputs[:5], dims)
    a, x, g = (fold.every(inputs[i], dims[i]) for i in (0, 1, 3))
    lam, grad_a = calls.adjoint(a, x, initial, g, reset, Way(*inputs[5:]))
    grad_a = fold.undo(grad_a)
    if fold.outer_of(inputs[0], dims[0]) == 1:
        grad_a = grad_a.sum(1, keepdim=True)
    return (fold.undo(lam), grad_a), (0, 0)


# ----------------------------------------------------------------------------------- eager mode


class _Scan(Function):
    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        a, b, initial, reset, *way = inputs
        return _scan(_plain(a), _plain(b), _plain(initial), reset, Way(*way))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _remember_scan(ctx, inputs, output)
        a, _, initial, reset, *_ = inputs
        ctx.save_for_forward(a, output, initial, reset)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return _scan_gradients(EAGER, ctx, *grad_outputs)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        da, db, dinitial, *_ = grad_inputs
        a, x, initial, reset = ctx.saved_tensors
        if a is not None:
            _refuse_nested_forward_mode()
        way: Way = ctx.way
        db = torch.zeros_like(x) if db is None else db
        if da is not None:
            db = db + carried(way, da, x, initial, reset)
        return EAGER.scan(a, db, dinitial, reset, way)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        return _mapped_scan(EAGER, info, in_dims, *inputs)


class _Adjoint(Function):
    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        a, x, initial, g, reset, *way = inputs
        return _adjoint(_plain(a), _plain(x), _plain(initial), _plain(g), reset, Way(*way))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _remember_adjoint(ctx, inputs, output)
        a, x, initial, _, reset, *_ = inputs
        ctx.save_for_forward(a, x, initial, reset, output[0])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return _adjoint_gradients(EAGER, ctx, *grad_outputs)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        _refuse_nested_forward_mode()
        da, dx, dinitial, dg, *_ = grad_inputs
        a, x, initial, reset, lam = ctx.saved_tensors
        way: Way = ctx.way
        dg = torch.zeros_like(lam) if dg is None else dg
        if da is not None:
            dg = dg + carried(way.adjoint, conj(da), lam, None, reset)
        dlam = EAGER.scan(conj(a), dg, None, reset, way.adjoint)
        dgrad_a = multiplier_gradient(way, dlam, x, initial, reset, a.shape)
        if dx is not None or dinitial is not None:
            dx = torch.zeros_like(x) if dx is None else dx
            dgrad_a = dgrad_a + multiplier_gradient(way, lam, dx, dinitial, reset, a.shape)
        return dlam, dgrad_a

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, tuple[int, int]]:
        return _mapped_adjoint(EAGER, info, in_dims, *inputs)


for _function in (_Scan, _Adjoint):
    # torch asks for it at every call; made each time, it would cost more than the rest of the call
    vars(_function.forward)["__signature__"] = signature(_function.forward)


def _refuse_nested_forward_mode() -> None:
    """Of what is saved for ``jvp``, torch loses the tangents of forward modes around this one."""
    levels = [each.key() for each in _functorch.get_interpreter_stack() or ()]
    if levels.count(_functorch.TransformType.Jvp) > 1:
        raise NotImplementedError(
            "forward mode within forward mode: torch would lose the outer derivative; use reverse "
            "mode for one of the two, as torch.func.hessian does"
        )


def _plain(x: Any) -> Any:
    return x.detach() if x is not None and x.requires_grad else x


class _Eager:
    def scan(self, a: Gradient, b: Tensor, initial: Gradient, reset: Gradient, way: Way) -> Tensor:
        x: Tensor = _Scan.apply(  # type: ignore[no-untyped-call]
            a, b, initial, reset, *way
        )
        return x

    def adjoint(
        self, a: Tensor, x: Tensor, initial: Gradient, g: Tensor, reset: Gradient, way: Way
    ) -> tuple[Tensor, Tensor]:
        both: tuple[Tensor, Tensor] = _Adjoint.apply(  # type: ignore[no-untyped-call]
            a, x, initial, g, reset, *way
        )
        return both


EAGER = _Eager()


# ------------------------------------------------------------------------------------- in graphs

_WAY = "str engine, Scalar number, bool reverse, bool leaving, int? chunk_size"


@torch.library.custom_op(
    "linscan::scan",
    mutates_args=(),
    schema=f"(Tensor? a, Tensor b, Tensor? initial, Tensor? reset, {_WAY}) -> Tensor",
)
def _scan_op(a: Gradient, b: Tensor, initial: Gradient, reset: Gradient, *way: Any) -> Tensor:
    return _scan(_resolved(a), _resolved(b), _resolved(initial), reset, Way(*way))


@torch.library.custom_op(
    "linscan::adjoint",
    mutates_args=(),
    schema=f"(Tensor a, Tensor x, Tensor? initial, Tensor g, Tensor? reset, {_WAY})"
    " -> (Tensor, Tensor)",
)
def _adjoint_op(
    a: Tensor, x: Tensor, initial: Gradient, g: Tensor, reset: Gradient, *way: Any
) -> tuple[Tensor, Tensor]:
    a, x, g = _resolved(a), _resolved(x), _resolved(g)
    return _adjoint(a, x, _resolved(initial), g, reset, Way(*way))


def _resolved(x: Any) -> Any:
    """With no lazy conjugation or negation, which torch may overlook where a graph runs."""
    return None if x is None else x.resolve_conj().resolve_neg()


@_scan_op.register_fake
def _(a: Gradient, b: Tensor, *others: Any) -> Tensor:
    return b.new_empty(_shape(a, b))


@_adjoint_op.register_fake
def _(a: Tensor, x: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), a.new_empty(a.shape)


class _Graph:
    def scan(self, a: Gradient, b: Tensor, initial: Gradient, reset: Gradient, way: Way) -> Tensor:
        x: Tensor = torch.ops.linscan.scan(a, b, initial, reset, *way)
        return x

    def adjoint(
        self, a: Tensor, x: Tensor, initial: Gradient, g: Tensor, reset: Gradient, way: Way
    ) -> tuple[Tensor, Tensor]:
        both: tuple[Tensor, Tensor] = torch.ops.linscan.adjoint(a, x, initial, g, reset, *way)
        return both


GRAPH = _Graph()

_scan_op.register_autograd(partial(_scan_gradients, GRAPH), setup_context=_remember_scan)
_adjoint_op.register_autograd(partial(_adjoint_gradients, GRAPH), setup_context=_remember_adjoint)
_scan_op.register_vmap(partial(_mapped_scan, GRAPH))
_adjoint_op.register_vmap(partial(_mapped_adjoint, GRAPH))
