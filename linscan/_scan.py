"""``scan``: the arguments checked once, the canonical problem built, a backend called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from linscan import _arrays, _dispatch, _host, _profile, _tracked
from linscan._arrays import is_scalar, is_torch
from linscan._by_address import ByAddress, by_address
from linscan._call import ScanCall
from linscan._check import (
    Check,
    binary,
    check_axis,
    check_broadcast,
    check_memory,
    check_out,
    check_same_place,
    looks_at_data,
)
from linscan._host import is_cpu_array, written
from linscan._layout import Layout, in_the_way, kind_of, layout, operand, with_time
from linscan._packed import pack
from linscan._problem import Kind, ScanProblem
from linscan._protocol import Backend, Bind, Kernel
from linscan._signature import look
from linscan._tracked import is_tracked, solve_tracked


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
        float.  16-bit types are accumulated in float32 and rounded once.  The same call gives the
        same bits, on any number of threads.

        Of torch tensors that require gradients it is differentiable with respect to ``a``, ``b``
        and ``initial``, in reverse mode any number of times, and once in forward mode; resets and
        the borders of sequences cut gradients exactly.  ``a`` and the result are kept for the way
        back.  ``out`` is refused then.

    Raises:
        TypeError: Arrays of several libraries or devices, or of an unsupported dtype.
        ValueError: Shapes that do not fit, data that a check refuses, an unknown backend.
        BackendUnavailable: The backend named cannot run on this machine.
        BackendUnsupported: The backend named cannot do this, or computes no gradients.

    Source:
        Blelloch, "Prefix sums and their applications" (1990), section 1.4.1.

    >>> linscan.scan(0.5, np.array([1.0, 1.0, 1.0]))
    array([1.  , 1.5 , 1.75])
    >>> linscan.scan(np.array([2.0, 3.0]), np.array([1.0, 1.0]), reverse=True)
    array([3., 1.])
    """
    if _profile.active and _profile.counts():
        return _profile.timed(scan, "scan", **locals())
    call = ScanCall(
        a, b, initial, axis, reverse, reset, return_final, out, backend, chunk_size, check
    )
    if cu_seqlens is None:
        x, final = solve(call)
    else:
        call = call.checked()
        plain, packed = pack(call, cu_seqlens)
        x, final = packed.results(solve(plain)[0], call.out)
    return (x, final) if return_final else x


def plan_call(*, cu_seqlens: Any, **arguments: Any) -> ScanPlan:
    """What :func:`scan` would do with these arguments."""
    call = ScanCall(**arguments).checked()
    if cu_seqlens is not None:
        call, _ = pack(call, cu_seqlens)
    if not is_tracked(call.b, call.a, call.initial):
        return plan_scan(call)[0]
    chosen = _tracked.choose(call)
    plan, *_ = plan_scan(call._replace(backend=chosen.backend.name))
    return plan._replace(passed_over=chosen.passed_over)


def solve(call: ScanCall) -> tuple[Any, Any]:
    """``(x, final)`` of a call without packed sequences."""
    if not _arrays.is_plain(call.b):
        call = call.checked()
    if is_tracked(call.b, call.a, call.initial):
        return solve_tracked(call.checked())
    plan, call, arrays = plan_scan(call)
    return plan.run(call, arrays)


class ScanPlan(NamedTuple):
    """All that a call's signature decides, so that a second such call decides nothing."""

    backend: Backend
    passed_over: dict[str, str]
    problem: ScanProblem
    layout: Layout
    axis: int
    views: tuple[tuple[int, int, int], ...]
    """What a, b, initial, reset and out are reshaped to, where there is one block."""
    state_shape: tuple[int, ...]
    casts: bool
    copies: frozenset[str]
    """Operands that are expanded in memory first: states, or those that leave tiny blocks."""
    arrays: tuple[int, ...]
    """Which of a, b, initial, reset and out are arrays."""
    wrap: Callable[[Any], Any] | None
    """Makes a NumPy array one of the caller's, where the backend is given views; else None."""
    by_address: ByAddress | None
    """The scan for a call whose arrays are passed as they are; else None."""

    def explain(self) -> Kernel:
        """What would run."""
        return self.backend.explain(self.problem)

    def run(self, call: ScanCall, arrays: tuple[Any, ...]) -> tuple[Any, Any]:
        """``(x, final)`` of a call that has the plan's signature; ``arrays`` are its own."""
        if self.by_address is not None:
            return self._run_by_address(self.by_address, call, arrays)
        given, problem, whole, wrap = call.out, self.problem, self.layout, self.wrap
        if given is not None:
            check_memory("out", given, call.inputs)
        operands = [call.a, call.b, call.initial, call.reset, given]
        if wrap is not None:
            for k in self.arrays:
                operands[k] = _host.view(operands[k])
        a, b, initial, reset, out = operands
        if problem.a == "scalar":
            a = a if is_scalar(a) else a.item()
        elif self.casts:
            a = _arrays.native(a, problem.dtype)
        if self.casts:
            b = _arrays.native(b, problem.dtype)
        if initial is not None:
            initial = with_time(_arrays.native(initial, problem.dtype), len(whole.shape), self.axis)
        if reset is not None:
            reset = binary("reset", reset, looks_at_data(call.check, reset))
        if call.check == "full":
            read = call._replace(a=a, b=b, initial=operands[2])
            read.refuse_nan(whole.shape, self.axis, reset)
        target = out
        if self.copies:
            a, b, initial, reset, target = self._expand(a, b, initial, reset, out)
        if whole.loops:
            x, final = self._blocks(a, b, initial, reset, target)
        else:
            views = self.views
            x, final = self.backend.scan(
                problem,
                a if problem.a == "scalar" else a.reshape(views[0]),
                b.reshape(views[1]),
                None if initial is None else initial.reshape(views[2]),
                None if reset is None else reset.reshape(views[3]),
                None if target is None else target.reshape(views[4]),
            )
        if target is None:
            x = x.reshape(whole.shape)
        if final is not None:
            final = final.reshape(self.state_shape)
            final = final if wrap is None else wrap(final)
        if given is None:
            return x if wrap is None else wrap(x), final
        if target is None:
            out[...] = x
        written(given)
        return given, final

    def _run_by_address(
        self, by_address: ByAddress, call: ScanCall, arrays: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        a, out = call.a, call.out
        if out is None:
            return by_address.fresh(arrays, a, False)[0], None
        in_place, check = out is call.b, partial(check_memory, "out", out, call.inputs)
        own = "b" if in_place else None
        by_address.into((out,), arrays[:-1], check, a, in_place, in_place_of=own)
        return out, None

    def _blocks(self, a: Any, b: Any, initial: Any, reset: Any, out: Any) -> tuple[Any, Any]:
        """One backend call per block, into one result."""
        problem, whole = self.problem, self.layout
        x = _arrays.empty(whole.shape, b, problem.dtype) if out is None else out
        state = whole.state
        final = _arrays.empty(state, b, problem.dtype) if problem.final else None
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

    def _expand(self, a: Any, b: Any, initial: Any, reset: Any, out: Any) -> tuple[Any, ...]:
        whole, state = self.layout.shape, self.layout.state

        def expanded(name: str, x: Any, shape: tuple[int, ...]) -> Any:
            return _arrays.expanded(x, shape) if name in self.copies else x

        return (
            expanded("a", a, state if self.problem.a == "row" else whole),
            expanded("b", b, whole),
            expanded("initial", initial, state),
            expanded("reset", reset, whole),
            None if "out" in self.copies else out,
        )


_plans: dict[Any, ScanPlan] = {}


def plan_scan(call: ScanCall) -> tuple[ScanPlan, ScanCall, tuple[Any, ...]]:
    """The plan of a call without packed sequences, made once for each signature.

    The call is checked unless one of its signature has been.  It is returned in the plan's terms,
    and so are its arrays.
    """
    key, arrays = look("scan", call.backend, call)
    plan = _plans.get(key)
    if plan is None:
        call = call.checked()
        key, arrays = look("scan", call.backend, call)
        plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= 1024:
            _plans.clear()
        plan = _plans[key] = _plan(call)
    return plan, call, arrays


def _plan(call: ScanCall) -> ScanPlan:
    a, b, initial, reset, out = call.a, call.b, call.initial, call.reset, call.out
    named = {
        "a": None if is_scalar(a) else a,
        "b": b,
        "initial": initial,
        "reset": reset,
        "out": out,
    }
    check_same_place(**named)
    promoting = [x for x in (a, b, initial) if x is not None]
    dtype = _arrays.promote(a=a, b=b, initial=initial)
    shape = _arrays.broadcast_shape(a, b)
    rank = len(shape)
    axis = check_axis(call.axis, rank, "the result")
    rest = shape[:axis] + shape[axis + 1 :]
    if reset is not None:
        check_broadcast("reset", reset, shape, "the result")
    if initial is not None:
        check_broadcast("initial", initial, rest, "the result without its time axis")
        named["initial"] = with_time(initial, rank, axis)
    if out is not None:
        check_out("out", out, shape, dtype)

    kind: Kind = "scalar"
    if not is_scalar(a):
        kind = kind_of(operand(a, rank).shape, axis)
        if a.ndim == 0 and is_cpu_array(a):
            kind, named["a"] = "scalar", None
    steps = {name: operand(x, rank) for name, x in named.items() if x is not None}
    states = {name for name in steps if name == "initial" or (name == "a" and kind == "row")}
    main = [x for name, x in steps.items() if name not in states]
    whole = layout(shape, axis, main)
    blocking = in_the_way(whole, main)
    copies = {
        name for name, x in steps.items() if name not in states and any(x is y for y in blocking)
    }
    if copies:
        whole = Layout(shape, axis, ())
    state = whole.state
    for name in states:
        if not set(layout(state, axis, [steps[name]]).loops) <= set(whole.loops):
            copies.add(name)

    outer, time, inner = whole.block
    problem = ScanProblem(
        outer=outer,
        time=time,
        inner=inner,
        dtype=dtype,
        a=kind,
        reverse=call.reverse,
        reset=reset is not None,
        initial=initial is not None,
        final=call.return_final,
        chunk_size=call.chunk_size,
    )
    arrays = [x for x in named.values() if x is not None]
    backend = _dispatch.resolve(call.backend)
    chosen = _dispatch.choose(backend, arrays, lambda candidate: candidate.supports(problem))
    wrap = None
    if is_torch(b):
        memory = [_host.seen(x.detach()) for x in arrays]
        if all(type(x) is np.ndarray and chosen.backend.owns(x) for x in memory):
            wrap = _host.wrapper(b, dtype)

    def view(name: str) -> tuple[int, int, int]:
        if name not in steps:
            return (1, 1, 1)
        if name in copies:
            return whole.fold(state if name in states else shape)
        return whole.fold(steps[name].shape)

    casts = any(not is_scalar(x) and _arrays.needs_cast(x, dtype) for x in promoting)
    bound = None
    bind: Bind | None = getattr(chosen.backend, "bind", None)
    if (
        bind is not None
        and 0 not in shape
        and (is_scalar(a) or kind != "scalar")
        and (reset is None or _arrays.dtype_name(reset) == "bool")
        and not (casts or copies or whole.loops or call.return_final or call.check == "full")
    ):
        operands = {name: (named[name], view(name)) for name in steps if name != "out"}
        bound = by_address(
            partial(bind, problem, fresh=out is None),
            operands,
            {} if out is None else {"out": out},
            shape,
            whole.block,
            dtype,
            ("the result",),
        )

    return ScanPlan(
        backend=chosen.backend,
        passed_over=chosen.passed_over,
        problem=problem,
        layout=whole,
        axis=axis,
        views=tuple(map(view, named)),
        state_shape=rest,
        casts=casts,
        copies=frozenset(copies),
        arrays=tuple(
            k for k, x in enumerate((a, b, initial, reset, out)) if not (x is None or is_scalar(x))
        ),
        wrap=wrap,
        by_address=bound,
    )
