"""From a name, or from an array, to a backend.  Only looks up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

from linscan._protocol import Backend, BackendUnavailable, BackendUnsupported

GROUP = "linscan.backends"
VARIABLE = "LINSCAN_BACKEND"
AUTO = "auto"

_default: ContextVar[str] = ContextVar("linscan_backend", default=os.environ.get(VARIABLE) or AUTO)
default_in_graphs = _default.get()
"""The same for Dynamo, which reads no ContextVar, but compiles anew when a global has changed."""


class Choice(NamedTuple):
    """A backend, and why the ones that come before it were passed over."""

    backend: Backend
    passed_over: dict[str, str]


@cache
def registry() -> dict[str, Backend | str]:
    """Every installed backend by name; a string says why that name cannot be used."""
    from importlib.metadata import entry_points

    found: dict[str, Backend | str] = {}
    origin: dict[str, str] = {}
    for point in entry_points(group=GROUP):
        source = f"{point.value} ({point.dist.name if point.dist else 'unknown package'})"
        if point.name in found:
            both = f"{origin[point.name]} and {source}"
            found[point.name] = f"two packages install this name, {both}: uninstall one of them"
            continue
        origin[point.name] = source
        found[point.name] = _load(point)
    return dict(sorted(found.items(), key=lambda item: (getattr(item[1], "rank", 1 << 30), item)))


def _load(point: Any) -> Backend | str:
    try:
        backend = point.load()
    except Exception as error:
        return f"its package fails to import: {type(error).__name__}: {error}"
    if not isinstance(backend, Backend):
        return f"{point.value} is not a linscan backend: see linscan.Backend for what it must have"
    if backend.name != point.name:
        return f"it is installed as {point.name!r} but calls itself {backend.name!r}"
    if not isinstance(backend.rank, int):
        return f"its rank is {backend.rank!r}, not an integer"
    return backend


def backends() -> dict[str, str | None]:
    """Every installed backend, in the order in which they are tried.

    The value is None where the backend can run on this machine, otherwise the reason why it
    cannot, with the cure.

    >>> linscan.backends()["numpy"] is None
    True
    """
    return {name: _why_not(backend) for name, backend in registry().items()}


def _why_not(backend: Backend | str) -> str | None:
    if isinstance(backend, str):
        return backend
    try:
        return backend.why_not()
    except Exception as error:
        return f"its why_not() fails: {type(error).__name__}: {error}"


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Make ``name`` the backend of every call in this context that does not name one.

    The environment variable ``LINSCAN_BACKEND``, read at import, sets the same default for the
    whole process.  Raises ValueError for a name that is not installed.

    >>> with linscan.use_backend("numpy"):
    ...     linscan.scan(0.5, np.ones(3))
    array([1.  , 1.5 , 1.75])
    """
    if name != AUTO:
        _installed(name)
    global default_in_graphs
    token = _default.set(name)
    default_in_graphs = name
    try:
        yield
    finally:
        _default.reset(token)
        default_in_graphs = _default.get()


def resolve(name: str) -> str:
    """The backend asked for: by the call, by ``use_backend``, by the environment, or ``auto``."""
    if not isinstance(name, str):
        _installed(name)
    return _default.get() if name == AUTO else name


def resolve_in_graph(name: str) -> str:
    """The same, in terms that Dynamo can trace."""
    return default_in_graphs if name == AUTO else name


def choose(name: str, arrays: Sequence[Any], supports: Callable[[Backend], str | None]) -> Choice:
    """The backend of that name, or for ``auto`` the first that owns the arrays and can do it."""
    if name != AUTO:
        return Choice(_named(name, arrays, supports), {})
    passed_over: dict[str, str] = {}
    for candidate, backend in registry().items():
        if isinstance(backend, str):
            passed_over[candidate] = backend
        elif all(map(backend.owns, arrays)):
            reason = _why_not(backend) or supports(backend)
            if reason is None:
                return Choice(backend, passed_over)
            passed_over[candidate] = reason
    if not registry():
        raise BackendUnavailable("no backend is installed: run `pip install -e .` in the checkout")
    reasons = "".join(f"\n  {name}: {reason}" for name, reason in passed_over.items())
    raise TypeError(f"no installed backend takes {_describe(arrays)}{reasons}")


def _installed(name: str) -> Backend | str:
    if not isinstance(name, str) or name not in registry():
        known = ", ".join(registry()) or "none (run `pip install -e .` in the checkout)"
        named = isinstance(name, str) and name == os.environ.get(VARIABLE)
        source = f", named by {VARIABLE}" if named else ""
        raise ValueError(f"unknown backend {name!r}{source}; installed: {known}; or say 'auto'")
    return registry()[name]


def _named(name: str, arrays: Sequence[Any], supports: Callable[[Backend], str | None]) -> Backend:
    backend = _installed(name)
    reason = _why_not(backend)
    if isinstance(backend, str) or reason:
        raise BackendUnavailable(f"backend {name!r} cannot run here: {reason}")
    if not all(map(backend.owns, arrays)):
        raise TypeError(f"backend {name!r} does not take {_describe(arrays)}")
    reason = supports(backend)
    if reason:
        able = [
            other
            for other, candidate in registry().items()
            if not isinstance(candidate, str)
            and all(map(candidate.owns, arrays))
            and not (_why_not(candidate) or supports(candidate))
        ]
        cure = f"; these can: {', '.join(able)}" if able else ""
        raise BackendUnsupported(f"backend {name!r} cannot do this: {reason}{cure}")
    return backend


def _describe(arrays: Sequence[Any]) -> str:
    kinds = {
        f"{type(x).__module__}.{type(x).__qualname__}"
        + (f" on {x.device}" if getattr(x, "device", "cpu") != "cpu" else "")
        for x in arrays
    }
    return ", ".join(sorted(kinds))
