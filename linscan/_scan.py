"""``scan``: the arguments checked once, the canonical problem built, a backend called."""

from __future__ import annotations

import sys
from typing import Any, Literal, NamedTuple

import numpy as np

from linscan import _arrays, _dispatch, _packed
from linscan._arrays import is_scalar
from linscan._layout import Layout, in_the_way, layout, operand
from linscan._problem import Kind, ScanProblem
from linscan._protocol import Backend, BackendUnsupported, Kernel

Check = Literal["auto", "full", "off"]


def scan(
    a: Any,
    b: Any,
    initial: Any = None,
    *,
    axis: int = -1,
    reverse: bool = False,
    reset: Any = None,
    cu_seqlens: Any = None,
    return_final: bool = False,
    out: Any = None,
    backend: str = "auto",
    chunk_size: int | None = None,
    check: Check = "auto",
) -> Any:
    r"""Solve the first-order linear recurrence along one axis.

    ::

        xₜ = aₜ · xₜ₋₁ + bₜ,    t = 0, 1, …, T-1,    x₋₁ = initial       (forward)
        xₜ = aₜ · xₜ₊₁ + bₜ,    t = T-1, …, 1, 0,    x_T = initial       (reverse)

    A reset *selects* the past away, ``xₜ = bₜ``: whatever it held, NaN and infinity included,
    does not cross, and aₜ is not read.  Elsewhere the arithmetic is that of the loop, so 0 · inf is
    NaN.

    Args:
        a: The multipliers: a Python number, or an array that broadcasts with ``b`` (one per row,
            one per step, or one per element; never expanded in memory).  0, 1, negative and
            ``|a| > 1`` are all legal.
        b: The inputs, of any rank ≥ 1 and any strides.  The result has the shape that ``a`` and
            ``b`` broadcast to.
        initial: The state before the first step, shaped like the result without ``axis`` (with
            ``cu_seqlens``: segments first, then the other axes).  None is exactly zero, and then
            the first multiplier is not read.
        axis: The time axis of the result.
        reverse: Run from the last step to the first.
        reset: Bool, broadcast to the result: where true, the past is selected away.
        cu_seqlens: Integer offsets, n + 1 of them, of n sequences packed along ``axis``; each is
            scanned by itself.  Empty sequences are legal.
        return_final: Also return the state after the last step; for T = 0, it is ``initial`` or 0.
        out: Where to write the result: an array of its shape and dtype, of any strides, that shares
            no memory with an input.  ``out=b`` is the one exception and means in place.
        backend: ``"auto"``, or the name of one in :func:`linscan.backends`.
        chunk_size: The chunk length, for backends that cut time into chunks: memory against
            parallelism.  The others ignore it, and :func:`linscan.explain` says so.
        check: ``"auto"`` also checks the data of CPU arrays (a numeric ``reset`` holds 0 and 1,
            ``cu_seqlens`` rises from 0 to T); ``"full"`` checks on every device, and refuses NaN;
            ``"off"`` checks shapes, dtypes and devices only.

    Returns:
        ``x``, or ``(x, final)`` with ``return_final``: fresh and contiguous, of the library and
        device of the inputs.  float16, bfloat16, float32, float64, complex64 and complex128 stay
        what they are and mix as their library mixes them; integers and bools become its default
        float.  16-bit types are accumulated in float32 and rounded once.

    Raises:
        TypeError: Arrays of several libraries or devices, or of an unsupported dtype.
        ValueError: Shapes that do not fit, data that a check refuses, an unknown backend.
        BackendUnavailable: The backend named cannot run on this machine.
        BackendUnsupported: The backend named cannot do this, or gradients were asked for.

    Source:
        Blelloch, "Prefix sums and their applications" (1990), section 1.4.1.

    >>> linscan.scan(0.5, np.array([1.0, 1.0, 1.0]))
    array([1.  , 1.5 , 1.75])
    >>> linscan.scan(np.array([2.0, 3.0]), np.array([1.0, 1.0]), reverse=True)
    array([3., 1.])
    """
    a, b, initial, reset, out = _operands(a, b, initial, reset, out)
    if cu_seqlens is not None:
        x, final = _scan_packed(
            a, b, initial, axis, reverse, reset, cu_seqlens, out, backend, chunk_size, check
        )
    else:
        plan = plan_scan(
            a, b, initial, axis, reverse, reset, return_final, out, backend, chunk_size, check
        )
        x, final = plan.run(a, b, initial, reset, out, check)
    return (x, final) if return_final else x


def _operands(a: Any, b: Any, initial: Any, reset: Any, out: Any) -> tuple[Any, ...]:
    """Everything that is not a Python number or None as an array of one library."""
    if not is_scalar(a):
        a = _arrays.as_array("a", a)
    if is_scalar(b):
        if is_scalar(a):
            raise ValueError("a and b are both numbers: a scan needs an axis of time")
        zero_rank = _arrays.empty((), a, _arrays.promote([a, b]))
        zero_rank[...] = b
        b = zero_rank
    else:
        b = _arrays.as_array("b", b)
    if _arrays.is_torch(b) and isinstance(a, np.generic):
        a = a.item()
    if initial is not None:
        initial = _number_like("initial", initial, b)
    if reset is not None:
        reset = _number_like("reset", reset, b)
    if out is not None:
        out = _arrays.as_array("out", out)
    return a, b, initial, reset, out


def _number_like(name: str, x: Any, model: Any) -> Any:
    """An array as it is; a Python number as one of rank 0 in the model's library."""
    if isinstance(x, np.generic) and _arrays.is_torch(model):
        x = x.item()
    if not is_scalar(x):
        return _arrays.as_array(name, x)
    is_flag = isinstance(x, bool)
    number = _arrays.empty((), model, "bool" if is_flag else _arrays.promote([model, x]))
    number[...] = x
    return number


class ScanPlan(NamedTuple):
    """All that a call's signature decides, so that a second such call decides nothing."""

    backend: Backend
    passed_over: dict[str, str]
    problem: ScanProblem
    layout: Layout
    axis: int
    state_shape: tuple[int, ...]
    casts: bool
    copies: frozenset[str]
    """Operands that are expanded in memory first: small ones, or in the way of large blocks."""
    differentiates: bool

    def explain(self) -> Kernel:
        """What would run."""
        return self.backend.explain(self.problem)

    def run(
        self, a: Any, b: Any, initial: Any, reset: Any, out: Any, check: Check
    ) -> tuple[Any, Any]:
        """The scan of operands that have the plan's signature."""
        problem, whole = self.problem, self.layout
        if self.differentiates:
            _refuse_gradients()
        if out is not None:
            inputs = {"a": a, "b": None if out is b else b, "initial": initial, "reset": reset}
            if is_scalar(a):
                del inputs["a"]
            _arrays.check_out("out", out, whole.shape, problem.dtype, inputs)
        target = out
        if problem.a == "scalar":
            a = a if is_scalar(a) else a.item()
        elif self.casts:
            a = _arrays.native(a, problem.dtype)
        if self.casts:
            b = _arrays.native(b, problem.dtype)
        if initial is not None:
            initial = _arrays.native(initial, problem.dtype)
            initial = _with_time(initial, len(whole.shape), self.axis)
        if reset is not None:
            reset = _arrays.binary(
                "reset", reset, check == "full" or (check == "auto" and _on_cpu(reset))
            )
        if check == "full":
            _refuse_nan(a, b, initial, reset)
        if self.copies:
            a, b, initial, reset, target = self._copy(a, b, initial, reset, out)
        if whole.loops:
            x, final = self._blocks(a, b, initial, reset, target)
        else:
            view = whole.view
            x, final = self.backend.scan(
                problem,
                a if problem.a == "scalar" else view(a),
                view(b),
                None if initial is None else view(initial),
                None if reset is None else view(reset),
                None if target is None else view(target),
            )
            x = x.reshape(whole.shape)
        if out is None:
            out = x
        elif target is None:
            out[...] = x
        return out, None if final is None else final.reshape(self.state_shape)

    def _blocks(self, a: Any, b: Any, initial: Any, reset: Any, out: Any) -> tuple[Any, Any]:
        """One backend call per block, into one result."""
        problem, whole = self.problem, self.layout
        x = _arrays.empty(whole.shape, b, problem.dtype) if out is None else out
        final = None
        if problem.final:
            state = tuple(1 if i == self.axis else n for i, n in enumerate(whole.shape))
            final = _arrays.empty(state, b, problem.dtype)
        for index in whole.indices():

            def view(operand: Any, index: dict[int, int] = index) -> Any:
                return None if operand is None else whole.view(operand, index)

            _, last = self.backend.scan(
                problem,
                a if problem.a == "scalar" else view(a),
                view(b),
                view(initial),
                view(reset),
                view(x),
            )
            if final is not None:
                view(final)[...] = last
        return x, final

    def _copy(self, a: Any, b: Any, initial: Any, reset: Any, out: Any) -> tuple[Any, ...]:
        shape = self.layout.shape
        state = tuple(1 if i == self.axis else n for i, n in enumerate(shape))

        def expanded(name: str, x: Any) -> Any:
            if name not in self.copies:
                return x
            timeless = name == "initial" or (name == "a" and self.problem.a == "row")
            copy = _arrays.empty(state if timeless else shape, b, _arrays.dtype_name(x))
            copy[...] = x
            return copy

        return (
            expanded("a", a),
            expanded("b", b),
            expanded("initial", initial),
            expanded("reset", reset),
            None if "out" in self.copies else out,
        )


_plans: dict[Any, ScanPlan] = {}


def plan_scan(
    a: Any,
    b: Any,
    initial: Any,
    axis: int,
    reverse: bool,
    reset: Any,
    return_final: bool,
    out: Any,
    backend: str,
    chunk_size: int | None,
    check: Check,
) -> ScanPlan:
    """The plan of such a call: made once for each signature."""
    signature = _arrays.signature
    backend = _dispatch.resolve(backend)
    key = (
        signature(a),
        signature(b),
        signature(initial),
        signature(reset),
        signature(out),
        axis,
        reverse,
        return_final,
        backend,
        chunk_size,
        check,
    )
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= 1024:
            _plans.clear()
        plan = _plans[key] = _plan(
            a, b, initial, axis, reverse, reset, return_final, out, backend, chunk_size, check
        )
    return plan


def _plan(
    a: Any,
    b: Any,
    initial: Any,
    axis: int,
    reverse: bool,
    reset: Any,
    return_final: bool,
    out: Any,
    backend: str,
    chunk_size: int | None,
    check: Check,
) -> ScanPlan:
    scalar = is_scalar(a)
    check_options(chunk_size, check)
    _arrays.check_same_place(a=None if scalar else a, b=b, initial=initial, reset=reset, out=out)
    operands = [x for x in (a, b, initial) if x is not None]
    dtype = _arrays.promote(operands)
    casts = any(
        _arrays.dtype_name(x) != dtype or not getattr(x.dtype, "isnative", True)
        for x in operands
        if not is_scalar(x)
    )

    shape = tuple(b.shape)
    if not scalar:
        try:
            shape = np.broadcast_shapes(tuple(a.shape), shape)
        except ValueError:
            raise ValueError(
                f"a has shape {tuple(a.shape)} and b has shape {shape}: they do not broadcast"
            ) from None
    rank = len(shape)
    if rank == 0:
        raise ValueError("b has rank 0: a scan needs an axis of time")
    axis = check_axis(axis, rank, "the result")
    time = shape[axis]
    rest = shape[:axis] + shape[axis + 1 :]
    if reset is not None:
        check_broadcast("reset", reset, shape, "the result")
    if initial is not None:
        check_broadcast("initial", initial, rest, "the result without its time axis")
        initial = _with_time(initial, rank, axis)

    if not scalar and a.ndim == 0 and _on_cpu(a):
        scalar = True
    kind: Kind = "scalar" if scalar else _kind(operand(a, rank).shape, axis)
    named = {"a": None if scalar else a, "b": b, "initial": initial, "reset": reset, "out": out}
    steps = {name: operand(x, rank) for name, x in named.items() if x is not None}
    timeless = {name for name in steps if name == "initial" or (name == "a" and kind == "row")}
    main = {name: x for name, x in steps.items() if name not in timeless}
    whole = layout(shape, axis, list(main.values()))
    copies = {
        name
        for name, obstructs in zip(main, in_the_way(whole, list(main.values())), strict=True)
        if obstructs
    }
    if copies:
        whole = Layout(shape, axis, ())
    state = tuple(1 if i == axis else n for i, n in enumerate(shape))
    copies |= {
        name
        for name in timeless
        if not set(layout(state, axis, [steps[name]]).loops) <= set(whole.loops)
    }

    outer, _, inner = whole.block
    problem = ScanProblem(
        outer=outer,
        time=time,
        inner=inner,
        dtype=dtype,
        a=kind,
        reverse=bool(reverse),
        reset=reset is not None,
        initial=initial is not None,
        final=bool(return_final),
        chunk_size=chunk_size,
    )
    arrays = [x for x in named.values() if x is not None]
    chosen = _dispatch.choose(backend, arrays, lambda candidate: candidate.supports(problem))
    return ScanPlan(
        backend=chosen.backend,
        passed_over=chosen.passed_over,
        problem=problem,
        layout=whole,
        axis=axis,
        state_shape=rest,
        casts=casts,
        copies=frozenset(copies),
        differentiates=any(getattr(x, "requires_grad", False) for x in arrays),
    )


def _scan_packed(
    a: Any,
    b: Any,
    initial: Any,
    axis: int,
    reverse: bool,
    reset: Any,
    cu_seqlens: Any,
    out: Any,
    backend: str,
    chunk_size: int | None,
    check: Check,
) -> tuple[Any, Any]:
    """Segments are cut by resets; an initial state joins the first input of its segment."""
    check_options(chunk_size, check)
    shape = tuple(b.shape) if is_scalar(a) else np.broadcast_shapes(a.shape, b.shape)
    if not shape:
        raise ValueError("b has rank 0: a scan needs an axis of time")
    axis = check_axis(axis, len(shape), "the result")
    rest = shape[:axis] + shape[axis + 1 :]
    on_cpu = _on_cpu(b)
    parts = _packed.segments(
        cu_seqlens, shape[axis], b, check == "full" or (check == "auto" and on_cpu)
    )
    begins = parts.last if reverse else parts.first
    xp = _arrays.namespace(b)
    dtype = _arrays.promote([x for x in (a, b, initial) if x is not None])
    accumulate = {"float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)

    user_reset = None
    if reset is not None:
        check_broadcast("reset", reset, shape, "the result")
        user_reset = _arrays.binary("reset", reset, check == "full" or (check == "auto" and on_cpu))
    marks = _packed.along(axis, begins, xp.broadcast_to(b, shape))
    cuts = marks if user_reset is None else marks | user_reset

    state = None
    if initial is not None:
        check_broadcast("initial", initial, (parts.count, *rest), "(segments, the other axes)")
        state = xp.broadcast_to(_arrays.native(initial, accumulate), (parts.count, *rest))
        folded = _arrays.empty(shape, b, accumulate)
        folded[...] = b
        first = xp.moveaxis(folded, axis, 0)
        multiplier = a
        if not is_scalar(a):
            multiplier = xp.moveaxis(xp.broadcast_to(a, shape), axis, 0)[begins]
            multiplier = _arrays.native(multiplier, accumulate)
        with np.errstate(all="ignore"):
            joined = multiplier * state[parts.number] + first[begins]
        if user_reset is not None:
            kept = xp.moveaxis(xp.broadcast_to(user_reset, shape), axis, 0)[begins]
            joined = xp.where(kept, first[begins], joined)
        first[begins] = joined
        source, a_source = folded, a if is_scalar(a) else _arrays.native(a, accumulate)
    else:
        source, a_source = b, a

    direct = out if initial is None or accumulate == dtype else None
    if out is not None:
        inputs = {"a": None if is_scalar(a) else a, "initial": initial, "reset": reset}
        inputs["b"] = None if out is b else b
        _arrays.check_out("out", out, shape, dtype, inputs)
    plan = plan_scan(
        a_source, source, None, axis, reverse, cuts, False, direct, backend, chunk_size, check
    )
    x, _ = plan.run(a_source, source, None, cuts, direct, check)
    final = _arrays.empty((parts.count, *rest), b, accumulate)
    final[...] = 0 if state is None else state
    final[parts.number] = xp.moveaxis(x, axis, 0)[parts.first if reverse else parts.last]
    if out is not None and direct is None:
        out[...] = _arrays.native(x, dtype)
        return out, _arrays.native(final, dtype)
    return _arrays.native(x, dtype), _arrays.native(final, dtype)


def check_options(chunk_size: int | None, check: str) -> None:
    """ValueError or TypeError for a chunk size below 1 or an unknown kind of check."""
    if chunk_size is not None:
        if isinstance(chunk_size, bool) or not isinstance(chunk_size, (int, np.integer)):
            raise TypeError(f"chunk_size must be an integer or None, not {chunk_size!r}")
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1, not {chunk_size}")
    if check not in ("auto", "full", "off"):
        raise ValueError(f"check must be 'auto', 'full' or 'off', not {check!r}")


def check_axis(axis: int, rank: int, of: str) -> int:
    """The axis counted from the front; ValueError if there is no such axis."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise TypeError(f"axis must be an integer, not {axis!r}")
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range: {of} has rank {rank}")
    return int(axis) % rank


def check_broadcast(name: str, x: Any, shape: tuple[int, ...], of: str) -> None:
    """ValueError unless ``x`` broadcasts to ``shape`` without enlarging it."""
    try:
        if np.broadcast_shapes(tuple(x.shape), shape) == shape:
            return
    except ValueError:
        pass
    raise ValueError(
        f"{name} has shape {tuple(x.shape)}, which does not broadcast to {shape}, the shape of {of}"
    )


def _kind(shape: tuple[int, ...], axis: int) -> Kind:
    if shape[axis] == 1:
        return "row"
    return "step" if all(n == 1 for i, n in enumerate(shape) if i != axis) else "full"


def _with_time(x: Any, rank: int, axis: int) -> Any:
    """A state, shaped like the result without time, with an axis of size 1 for it."""
    shape = (1,) * (rank - 1 - x.ndim) + tuple(x.shape)
    return x.reshape((*shape[:axis], 1, *shape[axis:]))


def _on_cpu(x: Any) -> bool:
    return isinstance(x, np.ndarray) or (_arrays.is_torch(x) and x.device.type == "cpu")


def _refuse_gradients() -> None:
    if sys.modules["torch"].is_grad_enabled():
        raise BackendUnsupported(
            "an input requires grad, and this version of linscan computes no gradients: "
            "call it under torch.no_grad(), or pass x.detach()"
        )


def _refuse_nan(a: Any, b: Any, initial: Any, reset: Any) -> None:
    for name, x in (("a", a), ("b", b), ("initial", initial)):
        if x is None or is_scalar(x):
            continue
        bad = x != x
        if name == "a" and reset is not None:
            bad = bad & ~reset
        position = _arrays.first_true(bad)
        if position is not None:
            raise ValueError(f"{name}[{', '.join(map(str, position))}] is NaN (check='full')")
