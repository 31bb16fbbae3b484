"""What a backend is, and the two ways in which one may refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from linscan._problem import EstimatorInputs, EstimatorProblem, ScanProblem

Fused = Callable[[EstimatorInputs, Any], None]
"""Runs one estimator problem: ``(inputs, out)``, everything ``(outer, time, inner)``.

``out`` has one array per result, to be written.  What lies in CPU memory comes as NumPy arrays,
whatever its library: see ``linscan._host.view``."""

Strides = tuple[int, int, int]
"""The bytes from one element to the next along outer, time and inner.  They are 0 along a dimension
of size 1: of an operand, which broadcasts there, and of a result."""

Bind = Callable[..., Callable[..., None]]
"""``bind(problem, strides, fresh) -> run``, and ``run(addresses, a, in_place)``.

An optional attribute of a backend that owns NumPy arrays: its ``scan`` of operands in CPU memory
that have those strides, wherever they begin.  Small calls are quicker so: no array is made of a
tensor.  The operands are the arrays that the problem says are there, of ``a``, ``b``, ``initial``
and ``reset``, and then the result, which is not empty; a final state is not asked for.

- ``fresh``: the result will be memory that nobody has used yet.
- Addresses may be misaligned, and other ones in every call; ``run`` may be called by several
  threads at once.
- ``a``: the multiplier if that is a Python number, of any kind; else it is of no concern.
- ``in_place``: the result is ``b``.

A fused pass may have the like: ``bind(strides) -> run``, and ``run(addresses, gamma, lam)``, for
the arrays of the :class:`EstimatorInputs` in their order, and then the results; γ and λ are
numbers."""

Backward = Callable[..., tuple[Any, Any] | None]
"""``backward(problem, a, x, initial, g, reset) -> (lam, grad_a)``, or None: it declines.

An optional attribute of a backend, for torch tensors: the gradients of a scan in one pass, 20
bytes per element of full float32 ``a`` (a, x and g read, lam and grad_a written).  ``problem`` and
the operands are those of the scan that gave ``x``, ``g`` is the gradient of ``x``, and with s the
step that comes before t in the scan's own order::

    lam[s] = g[s] + conj(a[t]) * lam[t]      from the last step to the first; cut where reset[t]
    grad_a[t] = lam[t] * conj(x[s])          x[s] is initial[0] at the first step

- ``problem.a`` is never "scalar", no size is zero, and ``problem.final`` is false.
- ``x`` and ``g`` are ``(outer, time, inner)``, of any strides: 0 where ``g`` is one number for all.
- ``lam`` is fresh, contiguous and full: the gradient of ``b``.  ``grad_a`` is fresh and has the
  shape of ``a``: summed over the axes along which ``a`` has size 1 and the problem has not.
- Selection, as in the scan: where ``reset``, and at the first step with no ``initial``, ``grad_a``
  is exactly 0 and neither ``a[t]`` nor ``x[s]`` is read.
- 16-bit numbers: lam and sums are carried in float32, and rounded once.
- The same input gives the same bits, always.

What it is not given (the gradient of ``initial``, of a broadcast ``b``, second derivatives) is made
of calls of the scan.  Declining is no error: the same is then done in two passes."""


Differentiable = Callable[[], Callable[..., Any]]
"""``differentiable() -> scan``: that torch can follow what a backend does.

An optional attribute of a backend that owns torch tensors.  Without it the backend is passed over
where gradients are asked for, under ``torch.func`` and in graphs.  It registers the backend's
``scan``, and its ``backward`` if it has one, with the operation that torch differentiates, whose
derivatives are calls of itself::

    def differentiable(self):
        from linscan_torch import _autograd

        return _autograd.register(self.name, self.scan, self.backward)

``scan`` is then given torch tensors that require no gradients."""


class BackendUnavailable(ImportError):
    """A backend was named that cannot run here; the message says why and what would cure it."""


class BackendUnsupported(NotImplementedError):
    """A backend was named that cannot do this problem; the message says who can."""


class Kernel(NamedTuple):
    """What a backend would do with a problem, for ``linscan.explain``."""

    name: str
    bytes_per_element: float
    """Memory moved per element of the result: operands read, plus results written."""
    chunk_size: int | None = None
    """The chunk length that would be used; None where the kernel has no chunks."""


@runtime_checkable
class Backend(Protocol):
    """One way of computing scans.  Installed under the entry-point group ``linscan.backends``.

    Importing the module that holds a backend must be cheap: it may import numpy and linscan, and
    nothing heavier until ``scan`` is called.
    """

    @property
    def name(self) -> str:
        """An identifier; equal to the entry point's name."""
        ...

    @property
    def rank(self) -> int:
        """Among the backends that own an array and can do the problem, the lowest rank wins."""
        ...

    @property
    def fused(self) -> Mapping[str, Callable[[EstimatorProblem], Fused | str]]:
        """Estimators done in one pass, by name; may be empty.

        Each maps a problem to a function that runs it, or to a string: why it declines.  The
        result must equal the composed path's to rounding.
        """
        ...

    def why_not(self) -> str | None:
        """None when the backend can run on this machine; else the reason *and the cure*."""
        ...

    def owns(self, x: Any) -> bool:
        """Whether ``x`` is an array of a kind and on a device that ``scan`` takes.

        Looks in ``sys.modules``; never imports a library to answer.
        """
        ...

    def supports(self, problem: ScanProblem) -> str | None:
        """None when ``scan`` can do the problem; else why not.  May be about 16-bit dtypes only."""
        ...

    def explain(self, problem: ScanProblem | EstimatorProblem) -> Kernel:
        """What would run, without running it."""
        ...

    def scan(
        self, problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
    ) -> tuple[Any, Any]:
        """The result and the state after the last step, ``(x, final)``.

        - ``x`` is ``(outer, time, inner)``; ``final`` is ``(outer, 1, inner)``, or None when
          ``problem.final`` is false.
        - ``x`` is ``out`` if that is given, else fresh and contiguous, of ``b``'s library and
          device.  ``out`` may be another view of all of ``b``'s memory: in place.  Nothing else is
          written.
        - With no ``initial`` the first multiplier is not read; at a reset neither the multiplier
          nor the past is.  Elsewhere the arithmetic is that of the loop: 0 * inf is NaN.
        - A product of multipliers that overflows while the state is zero must not make a NaN that
          the loop would not make.
        - The same input gives the same bits, always.
        - The error against float64 is at most twice that of the serial loop in ``dtype``.
        """
        ...
