"""A call in plain terms as a canonical problem: fused by a backend, or composed around its scan."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from math import prod
from typing import Any, NamedTuple

from linscan import _arrays, _dispatch, _host, _profile
from linscan._by_address import ByAddress, by_address
from linscan._check import check_axis, check_memory, check_out
from linscan._layout import Layout, layout, operand, with_time
from linscan._problem import ACCUMULATE, EstimatorInputs, EstimatorProblem, Kind, ScanProblem
from linscan._protocol import Backend, Fused, Kernel
from linscan._tracked import cannot_follow
from linscan.rl._call import (
    OWN,
    Call,
    Estimator,
    Role,
    check_arguments,
    check_bounds,
    flat,
    look_at,
    outs,
    problem_of,
    promoted,
    role_of,
)
from linscan.rl._compose import compose
from linscan.rl._normalise import is_plain, rewriting_of
from linscan.rl._tracked import estimate_tracked


def estimate(call: Call) -> tuple[Any, ...]:
    """The results of a call, in the order of the estimator's outputs."""
    if _profile.active and _profile.counts():
        return _profile.timed(estimate, call.estimator.name, call)
    if call.differentiable or (_arrays.is_torch(call.rewards) and _arrays.hides_data()):
        return estimate_tracked(call)
    plan, plain, arrays = plan_estimate(call)
    return plan.run(plain, arrays, call)


class Array(NamedTuple):
    """How an operand becomes one of the :class:`EstimatorInputs`."""

    field: int
    """Which one."""
    view: tuple[int, int, int]
    """Its three dimensions."""
    cast: str | None
    """The dtype to bring it to; None if it has that already."""
    copy: tuple[int, ...] | None
    """The shape to expand it to in memory, where its axes do not merge; None if they do."""


class EstimatorPlan(NamedTuple):
    """All that a call's signature decides, so that a second such call decides nothing."""

    estimator: Estimator
    backend: Backend
    passed_over: dict[str, str]
    problem: EstimatorProblem
    fused: Fused | None
    declined: str
    """Why there is no fused pass."""
    shape: tuple[int, ...]
    block: tuple[int, int, int]
    """The same in three dimensions."""
    arrays: tuple[Array, ...]
    """Those of the :class:`EstimatorInputs` that are arrays."""
    numbers: tuple[int, ...]
    """Which of them are numbers."""
    options: tuple[int, ...]
    """Which of them are options."""
    blank: list[Any]
    """Operands none of which is there."""
    out_copies: bool
    wrap: Callable[[Any], Any] | None
    """Makes a NumPy array one of the caller's, after a fused pass over CPU memory; else None."""
    by_address: ByAddress | None
    """The fused pass for a call whose arrays are passed as they are; else None."""

    def explain(self) -> Kernel:
        """What would run."""
        if self.fused is not None:
            return self.backend.explain(self.problem)
        p = self.problem
        kernel = self.backend.explain(
            ScanProblem(
                p.outer,
                p.time,
                p.inner,
                ACCUMULATE[p.dtype],
                _composed_kind(p),
                reverse=True,
                reset=p.terminated or p.truncated,
                chunk_size=p.chunk_size,
            )
        )
        return kernel._replace(name=f"{kernel.name}, between elementwise passes ({self.declined})")

    def run(self, call: Call, arrays: tuple[Any, ...], given: Call) -> tuple[Any, ...]:
        """The results for a call that has the plan's signature.

        ``arrays`` are the call's own; ``given`` is what it was before it was put in plain terms.
        """
        if self.by_address is not None:
            if call.out is None:
                return tuple(self.by_address.fresh(arrays, call.gamma, call.lam))
            # An operand of a rewritten call may be a copy, whose address says nothing about `out`.
            if call is given:
                out = call.out if len(self.estimator.outputs) > 1 else (call.out,)
                check, own = partial(self._check_out, call), arrays[: len(self.arrays)]
                self.by_address.into(out, own, check, call.gamma, call.lam)
                return tuple(out)
        out = None if call.out is None else self._check_out(given)
        wrap, block, operands = self.wrap, self.block, self.blank.copy()
        fields = flat(call)
        for field in self.numbers:
            number = float(fields[1 + field])
            if field >= OWN:
                check_bounds(self.estimator.own[field - OWN], number)
            operands[field] = number
        for x, (field, view, cast, copy) in zip(arrays, self.arrays, strict=False):
            if wrap is not None:
                x = _host.view(x)
            if cast is not None:
                x = _arrays.native(x, cast)
            if copy is not None:
                x = _arrays.expanded(x, copy)
            operands[field] = x.reshape(view)
        if call.own is not None:
            for field in self.options:
                operands[field] = fields[1 + field]
            operands[OWN:] = [tuple(operands[OWN:])]
        inputs = EstimatorInputs._make(operands)

        if self.fused is None:
            with _no_grad(call.rewards):
                composed = compose(self.estimator, self.problem, self.backend.name, inputs)
            results = [x.reshape(self.shape) for x in composed]
        elif out is None or self.out_copies:
            count, dtype = len(self.estimator.outputs), self.problem.out_dtype
            if wrap is None:
                fresh = [_arrays.empty(block, call.rewards, dtype) for _ in range(count)]
            else:
                fresh = _host.empty(block, dtype, count)
            self.fused(inputs, fresh)
            shape = self.shape
            results = [x.reshape(shape) for x in fresh]
            if wrap is not None:
                results = list(map(wrap, results))
        else:
            targets = out if wrap is None else map(_host.view, out)
            self.fused(inputs, [x.reshape(block) for x in targets])
            for x in out:
                _host.written(x)
            return out
        if out is None:
            return tuple(results)
        for x, result in zip(out, results, strict=True):
            x[...] = result
        return out

    def name(self, field: int) -> str:
        """What the estimator calls one of the operands."""
        if field >= OWN:
            return self.estimator.own[field - OWN].name
        name = EstimatorInputs._fields[field]
        return self.estimator.names.get(name, name)

    def _check_out(self, given: Call) -> tuple[Any, ...]:
        out = outs(given)
        others: dict[str, Any] = {}
        for field, x in enumerate(flat(given)[1 : 1 + OWN + len(given.own or ())]):
            if not (x is None or type(x) is float) and hasattr(x, "shape"):
                others[self.name(field)] = x
        for label, x in out.items():
            check_memory(label, x, others)
            others[label] = x
        return tuple(out.values())


WEIGHTS = EstimatorInputs._fields.index("gamma")
EMPTY: list[Any] = [*[None] * OWN, ()]
_plans: dict[Any, EstimatorPlan] = {}
_rewritings: dict[Any, Callable[[Call], Call]] = {}


def plan_estimate(call: Call) -> tuple[EstimatorPlan, Call, tuple[Any, ...]]:
    """The plan of such a call, made once for each signature; the call in the plan's terms.

    A plan deals in arrays, bool flags and masks.  A call that speaks of anything else (lists,
    numeric flags, lengths, packed sequences, a value too many) is rewritten first.  The arrays of
    the result come a second time, in a tuple.
    """
    if call.out_dtype is not None and not isinstance(call.out_dtype, str):
        call = call._replace(out_dtype=_arrays.dtype_of("out_dtype", call.out_dtype))
    key, arrays = look_at(call)
    plan = _plans.get(key)
    if plan is None:
        rewriting = _rewritings.get(key)
        if rewriting is None and not is_plain(call):
            rewriting = rewriting_of(call)
            _keep(_rewritings, key, rewriting)
        if rewriting is not None:
            call = rewriting(call)
            key, arrays = look_at(call)
            plan = _plans.get(key)
    if plan is None:
        check_arguments(call)
        plan = _plan(call)
        _keep(_plans, key, plan)
    return plan, call, arrays


def _keep(kept: dict[Any, Any], key: Any, x: Any) -> None:
    if len(kept) >= 1024:
        kept.clear()
    kept[key] = x


def _plan(call: Call) -> EstimatorPlan:
    """The plan of a call that is plain and whose arguments have been checked."""
    shape = tuple(call.rewards.shape)
    axis = check_axis(call.axis, len(shape), "rewards")
    dtype = promoted(call)

    given: list[tuple[str, Role, Any]] = []
    for name in EstimatorInputs._fields[:OWN]:
        given.append((name, role_of(name), getattr(call, name)))
    for own, x in zip(call.estimator.own, call.own or (), strict=True):
        given.append((own.name, own.role, x))
    operands = {
        field: operand(with_time(x, len(shape), axis) if name == "last_values" else x, len(shape))
        for field, (name, role, x) in enumerate(given)
        if not (x is None or role == "option" or _arrays.is_scalar(x))
    }
    for name, x in call.operands("weight"):
        if _arrays.is_scalar(x):
            _arrays.real(name, x)
    whole = Layout(shape, axis, ())

    out = {} if call.out is None else outs(call)
    for label, x in out.items():
        check_out(label, x, shape, call.out_dtype or dtype)
    out_copies = any(layout(shape, axis, [operand(x, len(shape))]).loops for x in out.values())
    problem = problem_of(call, axis, whole.block, dtype, fresh=call.out is None or out_copies)
    outer, time, inner = whole.block
    composed = ScanProblem(
        outer, time, inner, ACCUMULATE[dtype], _composed_kind(problem), reverse=True
    )
    placed = [x for role in ("data", "flag") for _, x in call.operands(role)]

    def supports(backend: Backend) -> str | None:
        return (call.differentiable and cannot_follow(backend)) or backend.supports(composed)

    chosen = _dispatch.choose(_dispatch.resolve(call.backend), placed, supports)
    prepare = chosen.backend.fused.get(call.estimator.name)
    fused = "it has no fused pass" if prepare is None else prepare(problem)
    if call.differentiable:
        fused = "gradients are those of its parts"
    wrap = None
    if not isinstance(fused, str) and _host.is_cpu_array(call.rewards):
        wrap = _host.wrapper(call.rewards, problem.out_dtype)

    def array(field: int) -> Array:
        (name, role, x), steps = given[field], operands[field]
        wanted = dtype if role == "data" else None
        if role == "weight":
            has = _arrays.dtype_name(x)
            wanted = has if has in ("float32", "float64") else "float32"
        cast = wanted if wanted is not None and _arrays.needs_cast(x, wanted) else None
        view, copy = whole.fold(steps.shape), None
        full = tuple(1 if i == axis and steps.shape[i] == 1 else n for i, n in enumerate(shape))
        if layout(full, axis, [steps]).loops:
            view = whole.fold(full)
            copy = full if name != "last_values" else (*shape[:axis], *shape[axis + 1 :])
        return Array(field, view, cast, copy)

    arrays = tuple(map(array, operands))

    bound = None
    bind = getattr(fused, "bind", None)
    as_is = all(x.cast is None and x.copy is None and x.field < WEIGHTS for x in arrays)
    if bind is not None and wrap is not None and as_is and not out_copies and prod(shape):
        bound = by_address(
            bind,
            {given[x.field][0]: (given[x.field][2], x.view) for x in arrays},
            out,
            shape,
            whole.block,
            problem.out_dtype,
            call.estimator.outputs,
        )

    return EstimatorPlan(
        estimator=call.estimator,
        backend=chosen.backend,
        passed_over=chosen.passed_over,
        problem=problem,
        fused=None if isinstance(fused, str) else fused,
        declined=fused if isinstance(fused, str) else "",
        shape=shape,
        block=whole.block,
        arrays=arrays,
        numbers=tuple(
            i for i, (_, role, x) in enumerate(given) if role != "option" and _arrays.is_scalar(x)
        ),
        options=tuple(i for i, (_, role, _) in enumerate(given) if role == "option"),
        blank=EMPTY if call.own is None else [None] * len(given),
        out_copies=out_copies,
        wrap=wrap,
        by_address=bound,
    )


def _composed_kind(p: EstimatorProblem) -> Kind:
    """What the multipliers are on the composed path."""
    kinds = {p.gamma} | ({p.lam} if p.lam else set())
    if p.mask or "full" in kinds or {"row", "step"} <= kinds:
        return "full"
    return "step" if "step" in kinds else "row" if "row" in kinds else "scalar"


def _no_grad(x: Any) -> AbstractContextManager[Any]:
    if _arrays.is_torch(x):
        context: AbstractContextManager[Any] = sys.modules["torch"].no_grad()
        return context
    return ExitStack()
