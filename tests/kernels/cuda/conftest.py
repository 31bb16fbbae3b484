"""The shipped laws, on the kernels as the host's C++ compiler makes them.

A few cases of every law, drawn once and for all; every case with ``LINSCAN_EVERY_CASE=1``.
"""

from __future__ import annotations

import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from linscan._dispatch import registry
from linscan.testing.engines import Engine
from linscan_cupy._device import CUDA

sys.path.insert(0, str(Path(__file__).parent))

import host
import standin

HERE = Path(__file__).parent
EVERY_CASE = bool(os.environ.get("LINSCAN_EVERY_CASE"))
FEW = 3
LIBRARIES = ["cupy"] if find_spec("torch") is None else ["cupy", "torch"]


@pytest.fixture(scope="module", params=LIBRARIES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The backend on the arrays of a stand-in for CuPy, and on torch tensors in CPU memory."""
    backend = host.BACKENDS[request.param]
    reason = backend.why_not()
    if reason is not None:
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        standin.install(patch, host.HostModule)
        patch.setattr(CUDA, "_kernels", {})
        patch.setitem(registry(), backend.name, backend)
        yield Engine(backend.name, request.param)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of torch only the dtype that NumPy lacks: memory is the same.  And of the rest, a few."""
    left, laws = set(items), defaultdict(list)
    for item in items:
        if item.path.parent == HERE and isinstance(item, pytest.Function):
            if "torch" in item.name and "bfloat16" not in item.name:
                left.remove(item)
            elif item.path.stem.endswith("_laws") and not EVERY_CASE:
                laws[item.path, item.originalname].append(item)
    for cases in laws.values():
        drawn = random.Random(0).sample(cases, min(FEW, len(cases)))
        left.difference_update(set(cases).difference(drawn))
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = [item for item in items if item in left]
