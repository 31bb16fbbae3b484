"""The ``engine`` fixture: every backend with every kind of array that it owns."""

from __future__ import annotations

import pytest

from linscan.testing.engines import Engine, engines, named


@pytest.fixture(scope="session", params=list(engines()), ids=lambda found: str(found[0]))
def engine(request: pytest.FixtureRequest) -> Engine:
    """One that can run here; a backend that was named and cannot is a failure."""
    found: tuple[Engine, str | None] = request.param
    engine, reason = found
    if reason is not None:
        message = f"backend {engine.backend!r} cannot run here: {reason}"
        pytest.fail(message) if engine.backend in named() else pytest.skip(message)
    return engine
