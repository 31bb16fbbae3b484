"""``explain``: what a call would do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from linscan._scan import plan_call, scan
from linscan.rl import gae, n_step, q, returns, traces, turns, upgo, vtrace
from linscan.rl._call import Estimator, call_of
from linscan.rl._plan import plan_estimate

_ESTIMATORS: dict[Callable[..., Any], Estimator] = {
    gae.gae: gae.ESTIMATOR,
    returns.discounted_returns: returns.DISCOUNTED_RETURNS,
    returns.td_lambda: returns.TD_LAMBDA,
    vtrace.vtrace: vtrace.ESTIMATOR,
    q.retrace: q.RETRACE,
    q.q_lambda: q.Q_LAMBDA,
    upgo.upgo: upgo.ESTIMATOR,
    n_step.n_step_returns: n_step.ESTIMATOR,
    traces.eligibility_traces: traces.ESTIMATOR,
    turns.turn_gae: turns.ESTIMATOR,
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """What :func:`explain` found; printing it reads well."""

    backend: str
    kernel: str
    bytes_per_element: float
    """Memory moved per element of the result by the pass that scans."""
    chunk_size: int | None
    """None where the kernel has no chunks."""
    passed_over: dict[str, str] = field(default_factory=dict)
    """Backends that come first, and why each was not taken."""

    def __str__(self) -> str:
        chunks = "one piece" if self.chunk_size is None else f"chunks of {self.chunk_size}"
        lines = [
            f"{self.backend}: {self.kernel}",
            f"moves {self.bytes_per_element:g} bytes per element, in {chunks}",
            *(f"passed over {name}: {reason}" for name, reason in self.passed_over.items()),
        ]
        return "\n".join(lines)


def explain(what: Any, /, *args: Any, **kwargs: Any) -> Explanation:
    """Say which backend and kernel a call would use; kernels may be compiled, but do not run.

    ``explain(a, b, …)`` explains ``scan(a, b, …)``, and ``explain(function, …)`` explains
    ``function(…)``, for ``scan`` and every estimator.  An estimator that is not done in one pass is
    explained by a scan as it composes one (``turn_gae`` composes several, and ``n_step_returns``
    with n < T none).

    Raises what the call would raise of types, shapes and backends, and TypeError for any other
    function; it does not look at what arrays hold, nor whether they share memory.

    >>> x = np.ones(3)
    >>> linscan.explain(linscan.gae, x, x, gamma=1.0, lam=1.0, backend="numpy").backend
    'numpy'
    """
    if not callable(what):
        return explain(scan, what, *args, **kwargs)
    function: Callable[..., Any] = what
    bound = inspect.signature(function).bind(*args, **kwargs) if _is_ours(function) else None
    if bound is None:
        known = ", ".join(["scan", *(f.__name__ for f in _ESTIMATORS)])
        raise TypeError(f"explain knows {known}, not {function!r}")
    bound.apply_defaults()
    if function is scan:
        found: Any = plan_call(**bound.arguments)
    else:
        found, *_ = plan_estimate(call_of(_ESTIMATORS[function], **bound.arguments))
    kernel = found.explain()
    ignored = bound.arguments["chunk_size"] is not None and kernel.chunk_size is None
    return Explanation(
        found.backend.name,
        kernel.name + (", without chunks: chunk_size is ignored" if ignored else ""),
        kernel.bytes_per_element,
        kernel.chunk_size,
        found.passed_over,
    )


def _is_ours(function: Callable[..., Any]) -> bool:
    return any(function is known for known in (scan, *_ESTIMATORS))
