"""Estimators that torch follows: differentiable ones, and any in a graph or under ``torch.func``.

Here every step is an operation of torch's own around the differentiable scan, and nothing looks at
what a tensor holds; see ``linscan._tracked``.
"""

from __future__ import annotations

from math import prod
from typing import Any

from linscan import _arrays
from linscan._check import check_axis, check_out
from linscan._layout import with_time
from linscan._problem import EstimatorInputs
from linscan._tracked import fold
from linscan.rl._call import (
    DATA,
    DECAYS,
    FLAGS,
    Call,
    Role,
    outs,
    problem_of,
    promoted,
    role_of,
)
from linscan.rl._compose import compose
from linscan.rl._normalise import normalise


def estimate_tracked(call: Call) -> tuple[Any, ...]:
    """The results of a call, in the order of the estimator's outputs."""
    if not _arrays.is_torch(call.rewards):
        raise TypeError("differentiable=True needs torch tensors: nothing else has gradients")
    if call.differentiable and call.out is not None:
        raise ValueError(
            "out= is written without a trace, and gradients need one: leave out= away, or pass "
            "differentiable=False"
        )
    if call.out_dtype is not None and not isinstance(call.out_dtype, str):
        call = call._replace(out_dtype=_arrays.dtype_of("out_dtype", call.out_dtype))
    if not call.differentiable:
        call = _detached(call)
    given, call = call, normalise(call)

    shape = tuple(call.rewards.shape)
    axis = check_axis(call.axis, len(shape), "rewards")
    dtype = promoted(call)
    block = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    problem = problem_of(call, axis, block, dtype, fresh=True)
    own = call.with_own(lambda own, x: _operand(own.name, own.role, x, shape, axis, dtype)).own
    operands = [
        _operand(name, role_of(name), getattr(call, name), shape, axis, dtype)
        for name in EstimatorInputs._fields[:-1]
    ]
    inputs = EstimatorInputs._make([*operands, own or ()])
    composed = compose(call.estimator, problem, call.backend, inputs)
    results = tuple([x.reshape(shape) for x in composed])
    if given.out is None:
        return results
    targets = outs(given)
    for (label, target), x in zip(targets.items(), results, strict=True):
        check_out(label, target, shape, problem.out_dtype)
        target.copy_(x)
    return tuple(targets.values())


def _detached(call: Call) -> Call:
    """The same without the gradients of its operands."""
    operands = {name: getattr(call, name) for name in (*DATA, *FLAGS, *DECAYS)}

    def detached(x: Any) -> Any:
        return x.detach() if _arrays.is_torch(x) else x

    call = call._replace(**{name: detached(x) for name, x in operands.items()})
    return call.with_own(lambda _, x: detached(x))


def _operand(name: str, role: Role, x: Any, shape: tuple[int, ...], axis: int, dtype: str) -> Any:
    """One of the :class:`EstimatorInputs`."""
    if x is None or _arrays.is_scalar(x) or role == "option":
        return x
    if name == "last_values":
        x = with_time(x, len(shape), axis)
    if role == "data":
        x = _arrays.native(x, dtype)
    elif role == "weight" and _arrays.dtype_name(x) not in ("float32", "float64"):
        x = _arrays.native(x, "float32")
    return fold(x, shape, axis)
