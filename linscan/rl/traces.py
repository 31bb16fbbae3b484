"""Eligibility traces, the forward counterpart of returns."""

from __future__ import annotations

from typing import Any, Literal

from linscan._check import Check
from linscan._problem import EstimatorInputs
from linscan.rl._call import Estimator, call_of
from linscan.rl._plan import estimate
from linscan.rl._trace import Trace


def _compose(i: EstimatorInputs, trace: Trace) -> tuple[Any, ...]:
    return (trace.output(trace.scan_forward(i.gamma * i.lam, i.rewards)),)


ESTIMATOR = Estimator(
    "eligibility_traces",
    ("traces",),
    _compose,
    needs=("gamma", "lam"),
    names={"rewards": "x"},
    bootstraps=False,
)


def eligibility_traces(
    x: Any,
    *,
    gamma: Any,
    lam: Any,
    terminated: Any = None,
    truncated: Any = None,
    mask: Any = None,
    lengths: Any = None,
    cu_seqlens: Any = None,
    axis: int = -1,
    masked: Literal["zero", "carry"] = "zero",
    out: Any = None,
    out_dtype: Any = None,
    backend: str = "auto",
    chunk_size: int | None = None,
    check: Check = "auto",
    differentiable: bool = False,
) -> Any:
    r"""Accumulating eligibility traces, from the first step to the last.

    ::

        eₜ = xₜ + γₜ₋₁ λₜ₋₁ eₜ₋₁        where step t - 1 goes on
        eₜ = xₜ                         at the first step, and after the end of an episode

    γₜ₋₁ is the discount between step t - 1 and step t, the one *into* step t: the same array that
    the returns take.  ``truncated`` ends a trace just as ``terminated`` does, and needs no value.

    Masks, shapes, dtypes, errors and the other arguments are those of :func:`linscan.gae`: a masked
    step is a hole, whose x is dropped, and which the trace passes without decay.

    Args:
        x: xₜ, usually gradients or features, of any rank ≥ 1, with time along ``axis``; flags and
            masks broadcast to it.
        gamma: The discount γ: a number, or an array that broadcasts to ``x``.
        lam: The trace decay λ, likewise.
        terminated: As in :func:`linscan.gae`, and so are all the others.
        truncated: See there.
        mask: See there.
        lengths: See there.
        cu_seqlens: See there.
        axis: See there.
        masked: See there; ``"carry"`` is the trace that passes by.
        out: One array to write the traces into.
        out_dtype: See there.
        backend: See there.
        chunk_size: See there.
        check: See there.
        differentiable: See there.

    Returns:
        The traces eₜ, fresh, shaped like ``x``.

    Raises:
        TypeError: As in :func:`linscan.gae`.
        ValueError: As in :func:`linscan.gae`.

    Source:
        Sutton and Barto, "Reinforcement learning: an introduction" (2018), equations 12.5 and
        12.25.

    >>> linscan.eligibility_traces(np.ones(3), gamma=np.array([0.25, 1.0, 1.0]), lam=0.5)
    array([1.    , 1.125 , 1.5625])
    """
    call = call_of(
        ESTIMATOR,
        x=x,
        gamma=gamma,
        lam=lam,
        terminated=terminated,
        truncated=truncated,
        mask=mask,
        lengths=lengths,
        cu_seqlens=cu_seqlens,
        axis=axis,
        masked=masked,
        out=out,
        out_dtype=out_dtype,
        backend=backend,
        chunk_size=chunk_size,
        check=check,
        differentiable=differentiable,
    )
    return estimate(call)[0]
