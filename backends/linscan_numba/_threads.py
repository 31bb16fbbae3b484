"""Whether, and over how many threads, a kernel's work is divided.

A kernel is written twice over the same arguments: ``serial(*args)``, without the interpreter lock,
and ``threaded(parts, *args)``, compiled with ``parallel=True``, which calls the same arithmetic on
``parts`` ranges of rows.  No bit of a result depends on which one runs.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numba
from numba.np.ufunc.parallel import threading_layer

WORTHWHILE = 1 << 15
"""Elements from which on a parallel region pays where its threads wait spinning."""

WORTHWHILE_ASLEEP = 1 << 22
"""The same where they must be woken, as numba's own thread pool ("workqueue") must."""

_process = os.getpid()
_start = threading.Lock()
_layer: str | None = None


def run(
    serial: Callable[..., Any], threaded: Callable[[], Callable[..., Any]], work: int, *args: Any
) -> Any:
    """Call ``serial(*args)`` or ``threaded()(parts, *args)``, whichever suits ``work`` elements.

    ``threaded`` is a function so that the parallel kernel is compiled only when it is needed.
    """
    if work < WORTHWHILE or os.getpid() != _process:
        # After a fork the threads of the parent are gone, and OpenMP ends a child that asks for
        # them.
        return serial(*args)
    parts = numba.get_num_threads()
    if parts == 1:
        return serial(*args)
    global _layer
    if _layer is None:
        with _start:
            result = threaded()(parts, *args)
            _layer = threading_layer()
            return result
    if _layer != "workqueue":
        return threaded()(parts, *args)
    if work < WORTHWHILE_ASLEEP:
        return serial(*args)
    with _start:  # numba's own pool ends the process when two threads enter it at once
        return threaded()(parts, *args)
