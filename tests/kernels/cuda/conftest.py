"""The shipped laws, on the kernels as the host's C++ compiler makes them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from linscan._dispatch import registry
from linscan.testing.engines import Engine

sys.path.insert(0, str(Path(__file__).parent))

import host

LIBRARIES = ["numpy"] if find_spec("torch") is None else ["numpy", "torch"]


@pytest.fixture(scope="session", params=LIBRARIES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """The backend on NumPy arrays, and on torch tensors in CPU memory."""
    reason = host.BACKEND.why_not()
    if reason is not None:
        pytest.skip(reason)
    registry()[host.BACKEND.name] = host.BACKEND
    return Engine(host.BACKEND.name, request.param)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of torch only the dtype that NumPy lacks: memory is the same."""
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    again = [item for item in here if "torch" in item.name and "bfloat16" not in item.name]
    config.hook.pytest_deselected(items=again)
    left = set(items) - set(again)
    items[:] = [item for item in items if item in left]
