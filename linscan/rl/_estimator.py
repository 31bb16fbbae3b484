"""What every estimator shares: its arguments checked, its canonical problem built and run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

import numpy as np

from linscan import _arrays, _dispatch, _packed
from linscan._check import (
    binary,
    check_axis,
    check_broadcast,
    check_options,
    check_out,
    check_same_place,
    first_true,
    looks_at_data,
    refuse_nan,
)
from linscan._layout import Layout, kind_of, layout, operand, with_time
from linscan._problem import ACCUMULATE, EstimatorInputs, EstimatorProblem, Kind, ScanProblem
from linscan._protocol import Backend, Fused, Kernel
from linscan._scan import plan_scan
from linscan.rl._trace import Trace


class Estimator(NamedTuple):
    """An estimator: the names of its results, and the mathematics around the scan."""

    name: Any
    outputs: tuple[str, ...]
    compose: Callable[[EstimatorInputs, Trace], tuple[Any, ...]]
    """From the inputs to (a, b) and from x to the results, in array-API terms."""


class Call(NamedTuple):
    """Everything a caller can say to an estimator; the fields are named like the parameters."""

    estimator: Estimator
    rewards: Any
    values: Any = None
    gamma: Any = None
    lam: Any = None
    next_values: Any = None
    last_values: Any = None
    truncation_values: Any = None
    on_missing_bootstrap: str | None = None
    terminated: Any = None
    truncated: Any = None
    mask: Any = None
    lengths: Any = None
    cu_seqlens: Any = None
    axis: int = -1
    masked: Any = "zero"
    masked_reward: str = "drop"
    lam_returns: Any = None
    out: Any = None
    out_dtype: Any = None
    backend: str = "auto"
    chunk_size: int | None = None
    check: Any = "auto"


LIKE_REWARDS = ("values", "next_values", "truncation_values")
FLAGS = ("terminated", "truncated", "mask")
DECAYS = ("gamma", "lam", "lam_returns")
DATA = ("rewards", *LIKE_REWARDS, "last_values")
"""What promotes to the dtype of the results."""
GAMMA = EstimatorInputs._fields.index("gamma")
"""The first of the decays among the inputs."""


def estimate(call: Call) -> tuple[Any, ...]:
    """The results of a call, in the order of the estimator's outputs."""
    plan, call = plan_estimate(call)
    return plan.run(call)


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
    arrays: tuple[Array, ...]
    """Those of the :class:`EstimatorInputs` that are arrays."""
    out_copies: bool
    detaches: bool

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

    def run(self, call: Call) -> tuple[Any, ...]:
        """The results for a call that has the plan's signature."""
        out = None if call.out is None else self._check_out(call)
        operands = [
            call.rewards,
            call.values,
            call.next_values,
            call.last_values,
            call.terminated,
            call.truncated,
            call.truncation_values,
            call.mask,
            call.gamma,
            call.lam,
            call.lam_returns,
        ]
        for field, view, cast, copy in self.arrays:
            x = operands[field]
            if self.detaches:
                x = x.detach()
            if cast is not None:
                x = _arrays.native(x, cast)
            if copy is not None:
                x = _arrays.expanded(x, copy)
            operands[field] = x.reshape(view)
        for index in range(GAMMA, len(operands)):
            if type(operands[index]) is int:
                operands[index] = float(operands[index])
        inputs = EstimatorInputs(*operands)
        block = (self.problem.outer, self.problem.time, self.problem.inner)
        targets = None
        if out is not None and not self.out_copies:
            targets = tuple(x.reshape(block) for x in out)
        if self.fused is not None:
            results = self.fused(inputs, targets)
        else:
            results = self._compose(inputs, targets, block)
        if out is None:
            shape = self.shape
            return tuple(x.reshape(shape) for x in results)
        if targets is None:
            for x, result in zip(out, results, strict=True):
                x[...] = result.reshape(self.shape)
        return tuple(out)

    def _check_out(self, call: Call) -> tuple[Any, ...]:
        names = self.estimator.outputs
        out = (call.out,) if len(names) == 1 else call.out
        if not isinstance(out, (tuple, list)) or len(out) != len(names):
            raise TypeError(f"out must be a tuple of {len(names)} arrays: {', '.join(names)}")
        inputs = {name: getattr(call, name) for name in (*DATA, *FLAGS, *DECAYS)}
        for name, x in zip(names, out, strict=True):
            label = "out" if len(names) == 1 else f"out[{names.index(name)}] ({name})"
            check_out(label, x, self.shape, self.problem.out_dtype, inputs)
            inputs = {**inputs, f"the out of {name}": x}
        return tuple(out)

    def _compose(
        self, inputs: EstimatorInputs, out: tuple[Any, ...] | None, block: tuple[int, int, int]
    ) -> tuple[Any, ...]:
        """Elementwise maps around the backend's scan."""
        p, xp = self.problem, _arrays.namespace(inputs.rewards)
        if 0 in block:
            count = len(self.estimator.outputs)
            return out or (_arrays.empty(block, inputs.rewards, p.out_dtype),) * count
        work = ACCUMULATE[p.dtype]
        for x in (inputs.gamma, inputs.lam, inputs.lam_returns):
            if x is not None and not _arrays.is_scalar(x) and _arrays.dtype_name(x) == "float64":
                work = "float64"
        inputs = EstimatorInputs(
            *(
                x
                if x is None or _arrays.is_scalar(x) or _arrays.dtype_name(x) == "bool"
                else _arrays.native(x, work)
                for x in inputs
            )
        )

        def scan(a: Any, b: Any, initial: Any = None, reset: Any = None) -> Any:
            b = xp.broadcast_to(b, block)
            state = None if initial is None else initial[:, 0]
            plan = plan_scan(
                a, b, state, 1, True, reset, False, None, self.backend.name, p.chunk_size, "off"
            )
            return plan.run(a, b, state, reset, None, "off")[0]

        with ExitStack() as stack:
            stack.enter_context(np.errstate(all="ignore"))
            stack.enter_context(_no_grad(inputs.rewards))
            results = self.estimator.compose(inputs, Trace(p, inputs, scan))
            results = tuple(_arrays.native(x, p.out_dtype) for x in results)
            if out is None:
                return results
            for target, x in zip(out, results, strict=True):
                target[...] = x
            return out


_plans: dict[Any, EstimatorPlan] = {}


def plan_estimate(call: Call) -> tuple[EstimatorPlan, Call]:
    """The plan of such a call, made once for each signature, and the call in the plan's terms.

    A plan deals in arrays, bool flags and masks.  A call that speaks of anything else (lists,
    numeric flags, lengths, packed sequences, a value too many) is rewritten first.
    """
    if call.out_dtype is not None and not isinstance(call.out_dtype, str):
        call = call._replace(out_dtype=_arrays.dtype_of(call.out_dtype))
    key = _signature(call)
    plan = _plans.get(key)
    if plan is None and not _is_plain(call):
        call = _normalise(call)
        key = _signature(call)
        plan = _plans.get(key)
    if plan is None:
        _check_arguments(call)
        if len(_plans) >= 1024:
            _plans.clear()
        plan = _plans[key] = _plan(call)
    return plan, call


_BY_VALUE = frozenset((type(None), str, int, Estimator))


def _signature(call: Call) -> Any:
    """What a plan may depend on."""
    backend = _dispatch.resolve(call.backend)
    return (backend, *[x if type(x) in _BY_VALUE else _arrays.signature(x) for x in call])


def _is_plain(call: Call) -> bool:
    """Whether a plan has words for everything that a call says."""
    data = (getattr(call, name) for name in DATA)
    flags = (getattr(call, name) for name in FLAGS)
    decays = (getattr(call, name) for name in DECAYS)
    return (
        all(x is None or type(x) is np.ndarray or _arrays.is_torch(x) for x in data)
        and all(
            x is None or str(getattr(x, "dtype", None)) in ("bool", "torch.bool") for x in flags
        )
        and all(x is None or type(x) in (int, float) or getattr(x, "ndim", 0) for x in decays)
        and call.lengths is None
        and call.cu_seqlens is None
        and (call.masked_reward == "drop" or call.mask is None)
        and (call.on_missing_bootstrap != "zero" or call.truncated is None)
        and call.check != "full"
        and (call.values is None or call.values.shape == call.rewards.shape)
    )


def _check_arguments(call: Call) -> None:
    """Raise for arguments that do not go together, or do not fit; looks at no data."""
    name, has_values = call.estimator.name, call.values is not None
    check_options(call.chunk_size, call.check)
    _one_of("masked", call.masked, ("zero", "carry"))
    _one_of("masked_reward", call.masked_reward, ("drop", "raise", "to_previous_valid"))
    _one_of("on_missing_bootstrap", call.on_missing_bootstrap, (None, "zero", "current_value"))
    check_same_place(**{n: getattr(call, n) for n in (*DATA, *FLAGS)})
    rank = call.rewards.ndim
    if rank == 0:
        raise ValueError("rewards has rank 0: an estimator needs an axis of time")
    axis = check_axis(call.axis, rank, "rewards")
    shape = tuple(call.rewards.shape)
    longer = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
    rest = (*shape[:axis], *shape[axis + 1 :])

    for x in (getattr(call, n) for n in DATA):
        if x is not None and "complex" in _arrays.dtype_name(x):
            raise TypeError(f"{name} is defined for real numbers, not {x.dtype}")
    for n in LIKE_REWARDS:
        x = getattr(call, n)
        if x is None or tuple(x.shape) == shape:
            continue
        if n != "values":
            raise ValueError(f"{n} has shape {tuple(x.shape)}, but rewards has shape {shape}")
        if tuple(x.shape) != longer:
            raise ValueError(
                f"values has shape {tuple(x.shape)}, but rewards has shape {shape}: values must "
                f"have that shape, or {longer} with the bootstrap at the end"
            )
    for n in FLAGS:
        if getattr(call, n) is not None:
            check_broadcast(n, getattr(call, n), shape, "rewards")
    for n in DECAYS:
        x = getattr(call, n)
        if x is None and (n == "gamma" or (n == "lam" and name != "discounted_returns")):
            raise TypeError(f"{n} must be a real number or an array of them, not None")
        if x is None or _arrays.is_scalar(x):
            continue
        check_same_place(rewards=call.rewards, **{n: x})
        if "complex" in _arrays.dtype_name(x) or not _arrays.is_number_dtype(_arrays.dtype_name(x)):
            raise TypeError(f"{n} must be real numbers, not {x.dtype}")
        check_broadcast(n, x, shape, "rewards")

    is_longer = has_values and tuple(call.values.shape) == longer
    sources = {
        "values with one step more than rewards": is_longer,
        "next_values": call.next_values is not None,
        "last_values": call.last_values is not None,
    }
    given = [source for source, there in sources.items() if there]
    if len(given) > 1:
        raise ValueError(f"the bootstrap has one source, but here are two: {' and '.join(given)}")
    if call.lengths is not None and call.cu_seqlens is not None:
        raise ValueError("lengths and cu_seqlens exclude each other: pass one of them")
    if call.cu_seqlens is not None and is_longer:
        raise ValueError(
            "with cu_seqlens, values has the length of rewards: pass the value after each "
            "segment as last_values, of shape (segments, the other axes)"
        )
    if call.last_values is not None and call.cu_seqlens is None:
        check_broadcast("last_values", call.last_values, rest, "rewards without its time axis")
    if call.lengths is not None:
        check_broadcast("lengths", call.lengths, rest, "rewards without its time axis")
    if not has_values and name == "td_lambda" and call.next_values is None:
        raise ValueError("values is missing: pass values, or next_values")

    if call.truncation_values is not None:
        if call.next_values is not None:
            raise ValueError(
                "next_values already holds the value after a truncated step: leave out "
                "truncation_values"
            )
        if call.truncated is None:
            raise ValueError("truncation_values is read only where truncated: pass truncated too")
    if call.on_missing_bootstrap == "current_value" and not has_values:
        raise ValueError("on_missing_bootstrap='current_value' needs values, and there are none")
    if call.truncated is not None and (
        call.truncation_values is call.next_values is call.on_missing_bootstrap is None
    ):
        choices = ["truncation_values=", "on_missing_bootstrap='zero'"]
        if name != "discounted_returns":
            choices.insert(1, "next_values=")
            choices.append("'current_value'")
        raise ValueError(
            "a truncated step bootstraps from the value of its final observation, which is not "
            f"given: pass {', '.join(choices[:-1])} or {choices[-1]}"
        )
    if call.out_dtype is not None and (
        call.out_dtype not in ACCUMULATE or "complex" in call.out_dtype
    ):
        raise TypeError(f"out_dtype must be a real floating dtype, not {call.out_dtype!r}")


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def _normalise(call: Call) -> Call:
    """The same call in the words of a plan: arrays, bool flags and masks."""
    call = _as_arrays(call)
    _check_arguments(call)
    rewards = call.rewards
    xp = _arrays.namespace(rewards)
    shape = tuple(rewards.shape)
    axis = check_axis(call.axis, len(shape), "rewards")
    time = shape[axis]
    rest = (*shape[:axis], *shape[axis + 1 :])
    check = looks_at_data(call.check, rewards)
    flags = {n: None if (x := getattr(call, n)) is None else binary(n, x, check) for n in FLAGS}
    call = call._replace(
        terminated=flags["terminated"], truncated=flags["truncated"], mask=flags["mask"]
    )
    if call.truncation_values is not None or call.next_values is not None:
        call = call._replace(on_missing_bootstrap=None)
    elif call.on_missing_bootstrap == "zero":
        call = call._replace(
            terminated=_either(call.terminated, call.truncated),
            truncated=None,
            on_missing_bootstrap=None,
        )

    mask, values, last_values = call.mask, call.values, call.last_values
    if call.lengths is not None:
        lengths = _lengths(call.lengths, rewards, axis, check)
        mask = _both(mask, _steps(xp, rewards, axis) < lengths)
        if values is not None and values.shape[axis] > time:
            there = _steps(xp, values, axis) == lengths
            picked = xp.where(there, values, 0)
            last_values = xp.sum(picked, axis=axis, keepdims=True, dtype=values.dtype).reshape(rest)
    if values is not None and values.shape[axis] > time:
        split = (slice(None),) * axis
        if last_values is None:
            last_values = values[(*split, slice(time, None))].reshape(rest)
        values = values[(*split, slice(time))]
    call = call._replace(mask=mask, values=values, last_values=last_values, lengths=None)
    if call.cu_seqlens is not None:
        call = _unpack(call, axis, check)

    call = call._replace(out_dtype=call.out_dtype or _promoted(call))
    if call.mask is not None and (call.masked_reward != "drop" or call.check == "full"):
        call = _masked_rewards(call, axis)
    if call.check == "full":
        _refuse_nan(call)
    return call._replace(masked_reward="drop", check="off" if call.check == "off" else "auto")


def _as_arrays(call: Call) -> Call:
    """Lists and numbers as arrays of the library of ``rewards``."""
    rewards = _arrays.as_array("rewards", call.rewards)

    def array(name: str) -> Any:
        x = getattr(call, name)
        if x is None:
            return None
        return _arrays.array_like(name, x, rewards)

    def decay(name: str) -> Any:
        x = getattr(call, name)
        if x is None and name in ("lam_returns", "lam"):
            return None
        if isinstance(x, np.generic) or (getattr(x, "ndim", None) == 0 and hasattr(x, "item")):
            x = x.item()
        if _arrays.is_scalar(x):
            if isinstance(x, (bool, complex)):
                raise TypeError(f"{name} must be a real number or an array of them, not {x!r}")
            return float(x)
        return _arrays.as_array(name, x)

    return call._replace(
        rewards=rewards,
        **{name: array(name) for name in (*DATA[1:], *FLAGS)},
        **{name: decay(name) for name in DECAYS},
    )


def _either(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else x | y


def _both(x: Any, y: Any) -> Any:
    return y if x is None else x & y


def _steps(xp: Any, x: Any, axis: int) -> Any:
    """0, 1, 2, … along one axis."""
    steps = xp.arange(x.shape[axis], dtype=xp.int64, device=getattr(x, "device", None))
    return steps.reshape((-1, *(1,) * (x.ndim - axis - 1)))


def _lengths(lengths: Any, rewards: Any, axis: int, check: bool) -> Any:
    """Row lengths with a time axis of size 1; ValueError with the first one out of range."""
    xp, time = _arrays.namespace(rewards), rewards.shape[axis]
    lengths = _arrays.as_array("lengths", lengths)
    if not _arrays.dtype_name(lengths).removeprefix("u").startswith("int"):
        raise TypeError(f"lengths must be integers, not {lengths.dtype}")
    if _arrays.is_torch(rewards) and not _arrays.is_torch(lengths):
        lengths = xp.asarray(lengths, device=rewards.device)
    check_same_place(rewards=rewards, lengths=lengths)
    if check:
        bad = first_true((lengths < 0) | (lengths > time))
        if bad is not None:
            raise ValueError(
                f"lengths must be between 0 and {time}, the length of the time axis, but "
                f"lengths[{', '.join(map(str, bad))}] is {lengths[bad]}"
            )
    rest = (*rewards.shape[:axis], *rewards.shape[axis + 1 :])
    return xp.expand_dims(xp.broadcast_to(lengths, rest), axis=axis)


def _unpack(call: Call, axis: int, check: bool) -> Call:
    """The end of a segment as a flag: a termination, or a truncation that has a value."""
    rewards = call.rewards
    xp = _arrays.namespace(rewards)
    parts = _packed.segments(call.cu_seqlens, rewards.shape[axis], rewards, check)
    ends = _packed.along(axis, parts.last, tuple(rewards.shape), rewards)
    call = call._replace(cu_seqlens=None)
    if call.next_values is not None:
        return call._replace(truncated=_either(call.truncated, ends))
    only_packed = ends if call.truncated is None else ends & ~call.truncated
    if call.last_values is None:
        return call._replace(terminated=_either(call.terminated, only_packed))
    rest = (*rewards.shape[:axis], *rewards.shape[axis + 1 :])
    check_broadcast("last_values", call.last_values, (parts.total, *rest), "(segments, other axes)")
    following = xp.zeros_like(rewards, dtype=call.last_values.dtype)
    last_values = xp.broadcast_to(call.last_values, (parts.total, *rest))
    xp.moveaxis(following, axis, 0)[parts.last] = last_values[parts.number]
    if call.truncated is not None:
        truncation = call.truncation_values
        if call.on_missing_bootstrap == "current_value":
            truncation = _value_at_flags(call, axis)
        following = xp.where(only_packed, following, truncation)
    return call._replace(
        truncated=_either(call.truncated, ends),
        truncation_values=following,
        last_values=None,
        on_missing_bootstrap=None,
    )


def _value_at_flags(call: Call, axis: int) -> Any:
    """The value of the step that a flag acts on: on a masked step, the last valid one before it."""
    if call.mask is None:
        return call.values
    mask = _arrays.namespace(call.rewards).broadcast_to(call.mask, call.rewards.shape)
    return _scan_here(call, axis, call.values, mask, reverse=False)


def _masked_rewards(call: Call, axis: int) -> Call:
    """Rewards on masked steps refused, or added to the last valid step before them."""
    xp, rewards = _arrays.namespace(call.rewards), call.rewards
    mask = xp.broadcast_to(call.mask, rewards.shape)
    if call.masked_reward == "raise" or (call.masked_reward == "drop" and call.check == "full"):
        bad = first_true(~mask & (rewards != 0))
        if bad is None:
            return call
        raise ValueError(
            f"rewards[{', '.join(map(str, bad))}] is {rewards[bad]} on a masked step: move it to a "
            "valid step, or pass masked_reward='drop' or 'to_previous_valid'"
        )
    rewards = _arrays.native(rewards, ACCUMULATE[_promoted(call)])
    cut = _either(call.terminated, call.truncated)
    stop = mask if cut is None else mask | cut
    held = _scan_here(call, axis, xp.where(mask, 0, rewards), stop, reverse=True, a=1.0)
    after = xp.moveaxis(xp.zeros_like(held), axis, 0)
    after[:-1] = xp.moveaxis(held, axis, 0)[1:]
    after = xp.moveaxis(after, 0, axis)
    if cut is not None:
        after = xp.where(cut, 0, after)
    return call._replace(rewards=xp.where(mask, rewards + after, rewards))


def _scan_here(call: Call, axis: int, b: Any, stop: Any, *, reverse: bool, a: float = 1.0) -> Any:
    """``b`` where stopped; elsewhere what comes before, plus ``b`` there."""
    if not reverse:
        b = _arrays.namespace(b).where(stop, b, 0)
    b = _arrays.native(b, ACCUMULATE[_arrays.promote([b])])
    plan = plan_scan(
        a, b, None, axis, reverse, stop, False, None, call.backend, call.chunk_size, "off"
    )
    return plan.run(a, b, None, stop, None, "off")[0]


def _refuse_nan(call: Call) -> None:
    """ValueError for the first NaN at a valid step."""
    for name in ("rewards", *LIKE_REWARDS):
        where = call.mask
        if name == "truncation_values":
            where = _both(where, call.truncated) if call.truncated is not None else where
        refuse_nan(name, getattr(call, name), where)
    for name in ("last_values", *DECAYS):
        refuse_nan(name, getattr(call, name))


def _promoted(call: Call) -> str:
    """The dtype of rewards and values together."""
    return _arrays.promote([x for n in DATA if (x := getattr(call, n)) is not None])


def _plan(call: Call) -> EstimatorPlan:
    """The plan of a call that is plain and whose arguments have been checked."""
    shape = tuple(call.rewards.shape)
    axis = check_axis(call.axis, len(shape), "rewards")
    dtype = _promoted(call)

    fields = {name: getattr(call, name) for name in EstimatorInputs._fields}
    operands = {
        name: operand(with_time(x, len(shape), axis) if name == "last_values" else x, len(shape))
        for name, x in fields.items()
        if x is not None and not _arrays.is_scalar(x)
    }
    whole = Layout(shape, axis, ())

    def array(name: str) -> Array:
        x, steps = fields[name], operands[name]
        wanted = dtype if name in DATA else None
        if name in DECAYS:
            has = _arrays.dtype_name(x)
            wanted = has if has in ("float32", "float64") else "float32"
        cast = wanted if wanted is not None and _arrays.needs_cast(x, wanted) else None
        view, copy = whole.fold(steps.shape), None
        full = tuple(1 if i == axis and steps.shape[i] == 1 else n for i, n in enumerate(shape))
        if layout(full, axis, [steps]).loops:
            view = whole.fold(full)
            copy = full if name != "last_values" else (*shape[:axis], *shape[axis + 1 :])
        return Array(EstimatorInputs._fields.index(name), view, cast, copy)

    def kind(name: str) -> Kind | None:
        if fields[name] is None:
            return None
        return "scalar" if name not in operands else kind_of(operands[name].shape, axis)

    truncation: Any = None
    if call.truncated is not None and call.next_values is None:
        truncation = "current_value" if call.truncation_values is None else "values"
    outer, time, inner = whole.block
    problem = EstimatorProblem(
        estimator=call.estimator.name,
        outer=outer,
        time=time,
        inner=inner,
        dtype=dtype,
        out_dtype=call.out_dtype or dtype,
        gamma=kind("gamma") or "scalar",
        lam=kind("lam"),
        lam_returns=kind("lam_returns"),
        values=call.values is not None,
        next_values=call.next_values is not None,
        last_values=call.last_values is not None,
        terminated=call.terminated is not None,
        truncated=call.truncated is not None,
        truncation=truncation,
        mask=call.mask is not None,
        masked=call.masked,
        chunk_size=call.chunk_size,
    )
    composed = ScanProblem(
        outer, time, inner, ACCUMULATE[dtype], _composed_kind(problem), reverse=True
    )
    given = [x for n in (*DATA, *FLAGS) if (x := getattr(call, n)) is not None]
    chosen = _dispatch.choose(
        _dispatch.resolve(call.backend), given, lambda backend: backend.supports(composed)
    )
    prepare = chosen.backend.fused.get(call.estimator.name)
    fused = "it has no fused pass" if prepare is None else prepare(problem)
    return EstimatorPlan(
        estimator=call.estimator,
        backend=chosen.backend,
        passed_over=chosen.passed_over,
        problem=problem,
        fused=None if isinstance(fused, str) else fused,
        declined=fused if isinstance(fused, str) else "",
        shape=shape,
        arrays=tuple(map(array, operands)),
        out_copies=any(
            layout(shape, axis, [operand(x, len(shape))]).loops
            for x in (call.out if isinstance(call.out, (tuple, list)) else [call.out])
            if x is not None and tuple(x.shape) == shape
        ),
        detaches=any(getattr(x, "requires_grad", False) for x in fields.values()),
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
