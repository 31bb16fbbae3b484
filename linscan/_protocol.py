"""What a backend is, and the two ways in which one may refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from linscan._problem import EstimatorInputs, EstimatorProblem, ScanProblem

Fused = Callable[[EstimatorInputs, Any], None]
"""Runs one estimator problem: ``(inputs, out)``, everything ``(outer, time, inner)``.

``out`` has one array per result, to be written.  What lies in CPU memory comes as NumPy arrays,
whatever its library: see ``linscan._host.view``."""


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
