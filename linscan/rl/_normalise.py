"""Lists, numeric flags, lengths, packed sequences, rewards on masked steps: said in plain terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from linscan import _arrays, _packed
from linscan._call import ScanCall
from linscan._check import (
    at,
    binary,
    check_axis,
    check_broadcast,
    check_options,
    check_same_place,
    first_true,
    integer,
    looks_at_data,
    refuse_nan,
)
from linscan._problem import ACCUMULATE
from linscan._scan import solve
from linscan.rl._call import (
    DATA,
    DECAYS,
    FLAGS,
    LIKE_REWARDS,
    Call,
    Own,
    check_arguments,
    check_own,
    look_at,
    promoted,
)


def is_plain(call: Call) -> bool:
    """Whether a plan has words for everything that a call says."""
    is_plain_array = _arrays.is_plain
    data, flags, weights, ids, options = (
        [x for _, x in call.operands(role)] for role in ("data", "flag", "weight", "ids", "option")
    )
    return (
        call.rewards is not None
        and all(map(is_plain_array, (*data, *ids)))
        and all(is_plain_array(x) and _arrays.dtype_name(x) == "bool" for x in flags)
        and all(type(x) in (int, float) or (is_plain_array(x) and x.ndim > 0) for x in weights)
        and all(type(x) in (int, str) for x in options)
        and type(call.axis) is int
        and (call.chunk_size is None or type(call.chunk_size) is int)
        and call.lengths is None
        and call.cu_seqlens is None
        and (call.masked_reward == "drop" or call.mask is None)
        and (call.on_missing_bootstrap != "zero" or call.truncated is None)
        and call.check != "full"
        and (call.values is None or call.values.shape == call.rewards.shape)
    )


def rewriting_of(call: Call) -> Callable[[Call], Call]:
    """What makes plain calls of those with the signature of this one, which is not."""
    longer = _has_one_value_more(call)

    def shortly(call: Call) -> Call:
        call = as_terminations(with_bools(call))
        return without_last_value(call) if longer else call

    flags = [x for n in FLAGS if (x := getattr(call, n)) is not None]
    if call.check != "full" and all(_arrays.is_plain(x) for x in flags):
        rest = with_bools(call._replace(check="off", on_missing_bootstrap=None))
        if is_plain(without_last_value(rest) if longer else rest):
            check_arguments(call)
            return shortly
    return normalise


def with_bools(call: Call) -> Call:
    """The same call with flags and a mask of bools."""
    check = looks_at_data(call.check, call.rewards)
    terminated, truncated, mask = (
        None if (x := getattr(call, n)) is None else binary(n, x, check) for n in FLAGS
    )
    return call._replace(terminated=terminated, truncated=truncated, mask=mask)


def as_terminations(call: Call) -> Call:
    """The same call with truncated steps as terminated ones, where zero is to follow them."""
    if call.truncation_values is not None or call.next_values is not None:
        return call._replace(on_missing_bootstrap=None)
    if call.on_missing_bootstrap != "zero":
        return call
    flags = _either(call.terminated, call.truncated)
    return call._replace(terminated=flags, truncated=None, on_missing_bootstrap=None)


def _has_one_value_more(call: Call) -> bool:
    """Whether ``values`` have the shape of ``rewards`` but for one more step, and are the last."""
    rewards, values, axis = call.rewards, call.values, call.axis
    if call.last_values is not None or type(axis) is not int:
        return False
    if not (_arrays.is_plain(rewards) and _arrays.is_plain(values)):
        return False
    if values.ndim != rewards.ndim or not -rewards.ndim <= axis < rewards.ndim:
        return False
    return bool(values.shape[axis] == rewards.shape[axis] + 1)


def without_last_value(call: Call) -> Call:
    """The same call with a value more than steps as the last value."""
    axis = call.axis % call.rewards.ndim
    time, before = call.rewards.shape[axis], (slice(None),) * axis
    values, last = call.values[(*before, slice(time))], call.values[(*before, time)]
    return call._replace(values=values, last_values=last)


def normalise(call: Call) -> Call:
    """The same call in the words of a plan: arrays, bool flags and masks."""
    with _arrays.quiet(call.rewards):
        return _normalised(call)


def _normalised(call: Call) -> Call:
    axis, chunk_size = check_options(call.axis, call.chunk_size, call.check)
    call = _as_arrays(call._replace(axis=axis, chunk_size=chunk_size))
    dtype = _checked(call)
    call = as_terminations(with_bools(call))
    rewards = call.rewards
    shape = tuple(rewards.shape)
    axis = check_axis(call.axis, len(shape), "rewards")
    time = shape[axis]
    rest = (*shape[:axis], *shape[axis + 1 :])
    check = looks_at_data(call.check, rewards)
    values, last_values, mask = call.values, call.last_values, call.mask
    longer = values if values is not None and values.shape[axis] > time else None
    if call.lengths is not None:
        xp = _arrays.namespace(rewards)
        lengths = _lengths(call.lengths, rewards, axis, check)
        mask = _both(mask, _steps(xp, rewards, axis) < lengths)
        if longer is not None:
            there = _steps(xp, longer, axis) == lengths
            picked = xp.where(there, longer, 0)
            last_values = xp.sum(picked, axis=axis, keepdims=True, dtype=longer.dtype).reshape(rest)
    if longer is not None:
        split = (slice(None),) * axis
        if last_values is None:
            last_values = longer[(*split, slice(time, None))].reshape(rest)
        values = longer[(*split, slice(time))]
    call = call._replace(
        values=values,
        last_values=last_values,
        mask=mask,
        lengths=None,
        out_dtype=call.out_dtype or dtype,
    ).with_own(lambda own, x: binary(own.name, x, check) if own.role == "flag" else x)
    if call.cu_seqlens is not None:
        call = _unpack(call, axis, check)
    if call.mask is not None and (call.masked_reward != "drop" or call.check == "full"):
        call = _masked_rewards(call, axis)
    if call.check == "full" and looks_at_data("full", rewards):
        _refuse_nan(call)
    return call._replace(masked_reward="drop", check="off" if call.check == "off" else "auto")


_results: dict[Any, str] = {}


def _checked(call: Call) -> str:
    """The dtype of the results of a call whose arguments go together: found once per signature."""
    if _arrays.is_torch(call.rewards) and _arrays.hides_data():
        check_arguments(call)
        return promoted(call)
    key, _ = look_at(call)
    dtype = _results.get(key)
    if dtype is not None:
        check_own(call)  # numbers, which are no part of a signature
        return dtype
    check_arguments(call)
    if len(_results) >= 1024:
        _results.clear()
    dtype = _results[key] = promoted(call)
    return dtype


def _as_arrays(call: Call) -> Call:
    """Lists and numbers as arrays of the library of ``rewards``."""
    rewards = _arrays.as_array(call.name("rewards"), call.rewards)

    def array(name: str, x: Any, steps: bool) -> Any:
        if x is None:
            return None
        if isinstance(x, np.generic):
            x = x.item()
        x = _arrays.array_like(name, x, rewards)
        return x.reshape((1,)) if steps and x.ndim == 0 else x

    def weight(name: str, x: Any) -> Any:
        if x is None:
            return None
        if _arrays.is_torch(x) and (call.differentiable or _arrays.hides_data()):
            return _arrays.as_array(name, x)
        if isinstance(x, np.generic) or (
            not _arrays.is_scalar(x) and getattr(x, "ndim", None) == 0 and hasattr(x, "item")
        ):
            x = x.item()
        if _arrays.is_scalar(x):
            if isinstance(x, (bool, complex)):
                raise TypeError(f"{name} must be a real number or an array of them, not {x!r}")
            return _arrays.real(name, x)
        return _arrays.as_array(name, x)

    def owned(own: Own, x: Any) -> Any:
        if own.role == "option":
            return x if own.words else integer(own.name, x)
        return weight(own.name, x) if own.role == "weight" else array(own.name, x, True)

    lengths = call.lengths
    if lengths is not None:
        scalar = _arrays.is_scalar(lengths)
        lengths = np.asarray(lengths) if scalar else _arrays.as_array("lengths", lengths)
    return call._replace(
        rewards=rewards,
        lengths=lengths,
        **{n: array(call.name(n), getattr(call, n), n in FLAGS) for n in (*DATA[1:], *FLAGS)},
        **{n: weight(n, getattr(call, n)) for n in DECAYS},
    ).with_own(owned)


def _either(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else x | y


def _both(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else x & y


def _steps(xp: Any, x: Any, axis: int) -> Any:
    """0, 1, 2, … along one axis."""
    steps = xp.arange(x.shape[axis], dtype=xp.int64, device=getattr(x, "device", None))
    return steps.reshape((-1, *(1,) * (x.ndim - axis - 1)))


def _lengths(lengths: Any, rewards: Any, axis: int, check: bool) -> Any:
    """Row lengths with a time axis of size 1; ValueError with the first one out of range."""
    xp, time = _arrays.namespace(rewards), rewards.shape[axis]
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
                f"{at('lengths', bad)} is {lengths[bad].item()}"
            )
    rest = (*rewards.shape[:axis], *rewards.shape[axis + 1 :])
    return xp.expand_dims(xp.broadcast_to(lengths, rest), axis=axis)


def _unpack(call: Call, axis: int, check: bool) -> Call:
    """The end of a segment as a flag: a termination, or a truncation that has a value."""
    rewards = call.rewards
    xp = _arrays.namespace(rewards)
    parts = _packed.segments(call.cu_seqlens, rewards.shape[axis], "rewards", rewards, check)
    ends = _arrays.along(axis, parts.last, tuple(rewards.shape), rewards)
    call = call._replace(cu_seqlens=None)
    if call.next_values is not None:
        return call._replace(truncated=_either(call.truncated, ends))
    only_packed = ends if call.truncated is None else ends & ~call.truncated
    if call.last_values is None:
        return call._replace(terminated=_either(call.terminated, only_packed))
    rest = (*rewards.shape[:axis], *rewards.shape[axis + 1 :])
    check_broadcast("last_values", call.last_values, (parts.total, *rest), "(segments, other axes)")
    longer = (*rewards.shape[:axis], rewards.shape[axis] + 1, *rewards.shape[axis + 1 :])
    following = xp.zeros(longer, dtype=call.last_values.dtype, device=rewards.device)
    last_values = xp.broadcast_to(call.last_values, (parts.total, *rest))
    following = _arrays.put(_arrays.moveaxis(following, axis, 0), parts.last, last_values)[:-1]
    following = _arrays.moveaxis(following, 0, axis)
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
    xp = _arrays.namespace(call.rewards)
    mask = xp.broadcast_to(call.mask, call.rewards.shape)
    held = xp.where(mask, call.values, 0)
    return _sum_until(call, axis, held, mask, reverse=False)


def _masked_rewards(call: Call, axis: int) -> Call:
    """Rewards on masked steps refused, or added to the last valid step before them."""
    xp, rewards = _arrays.namespace(call.rewards), call.rewards
    mask = xp.broadcast_to(call.mask, rewards.shape)
    if call.masked_reward == "raise" or (call.masked_reward == "drop" and call.check == "full"):
        if _arrays.is_torch(rewards) and _arrays.hides_data():
            return call
        bad = first_true(~mask & (rewards != 0))
        if bad is None:
            return call
        raise ValueError(
            f"{at(call.name('rewards'), bad)} is {rewards[bad].item()} on a masked step: move it "
            "to a valid step, or pass masked_reward='drop' or 'to_previous_valid'"
        )
    rewards = _arrays.native(rewards, ACCUMULATE[promoted(call)])
    cut = _either(call.terminated, call.truncated)
    stop = mask if cut is None else mask | cut
    held = _sum_until(call, axis, xp.where(mask, 0, rewards), stop, reverse=True)
    moved = _arrays.moveaxis(held, axis, 0)
    after = _arrays.moveaxis(xp.concat([moved[1:], xp.zeros_like(moved[:1])]), 0, axis)
    if cut is not None:
        after = xp.where(cut, 0, after)
    return call._replace(rewards=xp.where(mask, rewards + after, rewards))


def _sum_until(call: Call, axis: int, b: Any, stop: Any, *, reverse: bool) -> Any:
    """``b`` where stopped; elsewhere that plus the same of the step before (after: ``reverse``)."""
    b = _arrays.native(b, ACCUMULATE[_arrays.promote(b=b)])
    scan = ScanCall(
        1.0, b, None, axis, reverse, stop, False, None, call.backend, call.chunk_size, "off"
    )
    return solve(scan)[0]


def _refuse_nan(call: Call) -> None:
    """ValueError for the first NaN that is read, at a valid step."""
    for name in ("rewards", *LIKE_REWARDS):
        where = call.mask
        if name in ("next_values", "truncation_values") and call.terminated is not None:
            where = _both(where, ~call.terminated)
        if name == "truncation_values":
            where = _both(where, call.truncated)
        refuse_nan(call.name(name), getattr(call, name), where)
    refuse_nan("last_values", call.last_values)
    for name, x in call.operands("weight"):
        refuse_nan(name, x, call.mask if name not in DECAYS else None)
