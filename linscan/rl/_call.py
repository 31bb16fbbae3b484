"""What a caller can say to an estimator, and which of it does not go together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf, prod
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from linscan import _arrays
from linscan._check import (
    check_axis,
    check_broadcast,
    check_options,
    check_same_place,
    integer,
    one_of,
)
from linscan._layout import kind_of
from linscan._problem import ACCUMULATE, EstimatorInputs, EstimatorProblem, Kind
from linscan._signature import look
from linscan.rl._trace import Trace

Role = Literal["data", "flag", "weight", "ids", "option"]
"""Data promote to the dtype of the results; weights are numbers or arrays that do not."""


class Own(NamedTuple):
    """A parameter that other estimators do not have."""

    name: str
    role: Role
    least: float = -inf
    most: float = inf
    """Between which a number must be."""
    words: tuple[str, ...] = ()
    """What an option can be; without words, it is an integer."""


class Estimator(NamedTuple):
    """An estimator: its parameters and results, and the mathematics around the scan."""

    name: str
    outputs: tuple[str, ...]
    compose: Callable[[EstimatorInputs, Trace], tuple[Any, ...]]
    """From the inputs to (a, b) and from x to the results, in array-API terms."""
    needs: tuple[str, ...] = ()
    """Parameters that are not None."""
    own: tuple[Own, ...] = ()
    """In the order of ``EstimatorInputs.own``."""
    names: Mapping[str, str] = MappingProxyType({})
    """What it calls fields of a :class:`Call`, where that is another name."""
    bootstraps: bool = True
    """Whether it reads the value of what follows a step."""
    check: Callable[[Call], None] | None = None
    """Raises for what does not go together in this estimator alone."""


class Call(NamedTuple):
    """All that a caller can say to an estimator; the fields are named like the parameters.

    The operands come first, in the order of :class:`EstimatorInputs`.
    """

    estimator: Estimator
    rewards: Any
    values: Any = None
    next_values: Any = None
    last_values: Any = None
    terminated: Any = None
    truncated: Any = None
    truncation_values: Any = None
    mask: Any = None
    gamma: Any = None
    lam: Any = None
    lam_returns: Any = None
    on_missing_bootstrap: str | None = None
    lengths: Any = None
    cu_seqlens: Any = None
    axis: int = -1
    masked: Any = "zero"
    masked_reward: str = "drop"
    out: Any = None
    out_dtype: Any = None
    backend: str = "auto"
    chunk_size: int | None = None
    check: Any = "auto"
    differentiable: bool = False
    own: tuple[Any, ...] | None = None
    """The parameters that the estimator alone has."""

    def name(self, field: str) -> str:
        """What the estimator calls a field."""
        return self.estimator.names.get(field, field)

    def operands(self, role: Role) -> Iterator[tuple[str, Any]]:
        """Those of one role that are not None, by the estimator's names."""
        for field in ROLES[role]:
            if (x := getattr(self, field)) is not None:
                yield self.name(field), x
        for own, x in zip(self.estimator.own, self.own or (), strict=True):
            if own.role == role and x is not None:
                yield own.name, x

    def with_own(self, change: Callable[[Own, Any], Any]) -> Call:
        """The same with each of the estimator's own parameters changed, but those that are None."""
        if self.own is None:
            return self
        pairs = zip(self.estimator.own, self.own, strict=True)
        return self._replace(own=tuple([x if x is None else change(own, x) for own, x in pairs]))


OWN = EstimatorInputs._fields.index("own")
"""The first operand of the result of :func:`flat` that an estimator alone has."""


def flat(call: Call) -> tuple[Any, ...]:
    """The fields of a call, with what the estimator alone has right after the other operands."""
    if call.own is None:
        return call
    fields: tuple[Any, ...] = call
    return (*fields[: 1 + OWN], *call.own, *fields[1 + OWN : -1])


def look_at(call: Call) -> tuple[Any, tuple[Any, ...]]:
    """What a plan may depend on, and the arrays."""
    fields = call if call.own is None else flat(call)
    return look(call.estimator.name, call.backend, fields[1:])


def call_of(estimator: Estimator, **arguments: Any) -> Call:
    """A call, from the parameters of the public function of an estimator."""
    fields = {own: field for field, own in estimator.names.items()}
    owned = [own.name for own in estimator.own]
    given = {fields.get(name, name): x for name, x in arguments.items() if name not in owned}
    own = tuple([arguments[name] for name in owned])
    return Call(estimator, **given, own=own or None)


LIKE_REWARDS = ("values", "next_values", "truncation_values")
FLAGS = ("terminated", "truncated", "mask")
DECAYS = ("gamma", "lam", "lam_returns")
DATA = ("rewards", *LIKE_REWARDS, "last_values")
"""What promotes to the dtype of the results."""
ROLES: dict[Role, tuple[str, ...]] = {
    "data": DATA,
    "flag": FLAGS,
    "weight": DECAYS,
    "ids": (),
    "option": (),
}
"""The fields of a call that are operands, by what they are."""


def role_of(field: str) -> Role:
    """What a field that is an operand is."""
    return next(role for role, fields in ROLES.items() if field in fields)


def promoted(call: Call) -> str:
    """The dtype of rewards and values together."""
    return _arrays.promote(**dict(call.operands("data")))


def outs(call: Call) -> dict[str, Any]:
    """The arrays to write into, by what messages call them."""
    names = call.estimator.outputs
    if len(names) == 1:
        return {"out": call.out}
    if not isinstance(call.out, (tuple, list)) or len(call.out) != len(names):
        raise TypeError(f"out must be a tuple of {len(names)} arrays: {', '.join(names)}")
    return {
        f"out[{i}] ({name})": x for i, (name, x) in enumerate(zip(names, call.out, strict=True))
    }


def check_arguments(call: Call) -> None:
    """Raise for arguments that do not go together, or do not fit; looks at no data."""
    estimator, has_values = call.estimator, call.values is not None
    name, label = estimator.name, call.name
    check_options(call.axis, call.chunk_size, call.check)
    one_of("masked", call.masked, ("zero", "carry"))
    one_of("masked_reward", call.masked_reward, ("drop", "raise", "to_previous_valid"))
    one_of("on_missing_bootstrap", call.on_missing_bootstrap, (None, "zero", "current_value"))
    data, flags, ids = (dict(call.operands(role)) for role in ("data", "flag", "ids"))
    check_same_place(**data, **flags, **ids)
    rewards, rank = label("rewards"), call.rewards.ndim
    if rank == 0:
        raise ValueError(f"{rewards} has rank 0: an estimator needs an axis of time")
    axis = check_axis(call.axis, rank, rewards)
    shape = tuple(call.rewards.shape)
    longer = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
    rest = (*shape[:axis], *shape[axis + 1 :])

    for n, x in data.items():
        if "complex" in _arrays.dtype_name(x):
            raise TypeError(f"{n} has dtype {x.dtype}, but {name} is defined for real numbers")
    for n in LIKE_REWARDS:
        x = getattr(call, n)
        if x is None or tuple(x.shape) == shape:
            continue
        if n != "values" or label(n) != n:
            raise ValueError(
                f"{label(n)} has shape {tuple(x.shape)}, but {rewards} has shape {shape}"
            )
        if tuple(x.shape) != longer:
            raise ValueError(
                f"values has shape {tuple(x.shape)}, but rewards has shape {shape}: values must "
                f"have that shape, or {longer} with the bootstrap at the end"
            )
    for n, x in (*flags.items(), *ids.items()):
        check_broadcast(n, x, shape, rewards)
        aligned = (1,) * (rank - x.ndim) + tuple(x.shape)
        if aligned[axis] == 1 < shape[axis] and prod(aligned) > 1:
            raise ValueError(
                f"{n} has shape {tuple(x.shape)}, without the time axis of {rewards}, {shape}: it "
                "says the same of every step; if that is meant, broadcast it first"
            )
    for n, x in ids.items():
        if not _arrays.dtype_name(x).removeprefix("u").startswith("int"):
            raise TypeError(f"{n} must be integers, not {x.dtype}")
    _check_missing(call)
    for n, x in call.operands("weight"):
        if _arrays.is_scalar(x):
            continue
        check_same_place(**{rewards: call.rewards, n: x})
        if "complex" in _arrays.dtype_name(x) or not _arrays.is_number_dtype(_arrays.dtype_name(x)):
            raise TypeError(f"{n} must be real numbers, not {x.dtype}")
        check_broadcast(n, x, shape, rewards)
    check_own(call)

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
        check_broadcast("lengths", call.lengths, rest, f"{rewards} without its time axis")

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
    missing = call.truncation_values is call.next_values is call.on_missing_bootstrap is None
    if call.truncated is not None and missing and estimator.bootstraps:
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
    if call.out_dtype == "bfloat16" and isinstance(call.rewards, np.ndarray):
        raise TypeError("out_dtype is bfloat16, which NumPy does not have")
    if call.out is not None:
        for n, x in outs(call).items():
            check_same_place(**{rewards: call.rewards, n: _arrays.target(n, x)})


def _check_missing(call: Call) -> None:
    """Raise for a parameter that is None, and must not be."""
    given = {own.name: x for own, x in zip(call.estimator.own, call.own or (), strict=True)}
    for n in call.estimator.needs:
        if (given[n] if n in given else getattr(call, n)) is not None:
            continue
        if n in DATA:
            raise ValueError(f"{call.name(n)} is None, and {call.estimator.name} needs it")
        raise TypeError(f"{n} must be a real number or an array of them, not None")
    if call.estimator.name == "td_lambda" and call.values is call.next_values is None:
        raise ValueError("values is missing: pass values, or next_values")


def check_bounds(own: Own, x: Any) -> None:
    """Raise for a number out of range."""
    if own.least <= x <= own.most:
        return
    bounds = f"at least {own.least:g}"
    if own.most < inf:
        bounds = f"between {own.least:g} and {own.most:g}"
    raise ValueError(f"{own.name} must be {bounds}, not {x!r}")


def check_own(call: Call) -> None:
    """Raise for a number out of range, an option that is none, or what does not go together."""
    for own, x in zip(call.estimator.own, call.own or (), strict=True):
        if own.words:
            one_of(own.name, x, own.words)
        elif own.role == "option":
            integer(own.name, x)
        if _arrays.is_scalar(x):
            check_bounds(own, x)
    if call.estimator.check is not None:
        call.estimator.check(call)


def problem_of(
    call: Call, axis: int, block: tuple[int, int, int], dtype: str, *, fresh: bool
) -> EstimatorProblem:
    """A call in plain terms, without its operands; ``fresh``: into memory that nobody has used."""
    rank = call.rewards.ndim

    def kind(x: Any) -> Kind | None:
        if x is None or _arrays.is_scalar(x):
            return None if x is None else "scalar"
        return kind_of((1,) * (rank - x.ndim) + tuple(x.shape), axis)

    own = zip(call.estimator.own, call.own or (), strict=True)

    truncation: Any = None
    if call.truncated is not None and call.next_values is None:
        truncation = "current_value" if call.truncation_values is None else "values"
    outer, time, inner = block
    return EstimatorProblem(
        estimator=call.estimator.name,
        outer=outer,
        time=time,
        inner=inner,
        dtype=dtype,
        out_dtype=call.out_dtype or dtype,
        gamma=kind(call.gamma) or "scalar",
        lam=kind(call.lam),
        lam_returns=kind(call.lam_returns),
        values=call.values is not None,
        next_values=call.next_values is not None,
        last_values=call.last_values is not None,
        terminated=call.terminated is not None,
        truncated=call.truncated is not None,
        truncation=truncation,
        mask=call.mask is not None,
        masked=call.masked,
        fresh=fresh,
        chunk_size=call.chunk_size,
        own=tuple([x if own.role == "option" else kind(x) for own, x in own]),
    )
