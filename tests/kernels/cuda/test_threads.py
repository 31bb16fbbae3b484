"""One call for every way in which threads work together: what the thread sanitizer looks at."""

from __future__ import annotations

import numpy as np
import pytest

from linscan.testing.engines import Engine
from linscan.testing.families import call_of
from linscan.testing.problems import problem
from linscan.testing.rollouts import LAYOUTS, Kind, call, compare, rollout
from linscan.testing.test_scan import check as check_scan


@pytest.mark.parametrize(
    ("shape", "axis", "chunk_size"),
    [
        ((3, 40), 1, None),
        ((40, 150), 1, None),
        ((1, 2500), 1, None),
        ((1, 9000), 1, 4096),
        ((130, 300), 0, 16),
    ],
)
def test_threads_of_a_scan(
    engine: Engine, shape: tuple[int, int], axis: int, chunk_size: int | None
) -> None:
    p = problem(shape, "full", axis=axis, initial=True, reset=True)
    check_scan(engine, p, chunk_size=chunk_size)


def test_threads_that_take_turns(engine: Engine) -> None:
    a, b = np.full((1, 2100), 1e30), np.zeros((1, 2100))
    a[:, 1000:] = 0.5
    b[:, 1000:] = 1.0
    x = engine.scan(engine.array(a, "float32"), engine.array(b, "float32"))
    expected = 2 - 2.0 ** -np.clip(np.arange(2100) - 1000.0, -1, None)
    np.testing.assert_allclose(engine.numpy(x)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("rows", "time", "axis", "chunk_size"),
    [(3, 40, 1, None), (40, 150, 1, None), (1, 4100, 1, 2048), (5, 90, 0, None), (5, 90, 0, 16)],
)
@pytest.mark.parametrize("name", ["gae", "vtrace"])
def test_threads_of_an_estimator(
    engine: Engine, name: str, rows: int, time: int, axis: int, chunk_size: int | None, layout: str
) -> None:
    kind = Kind(truncation="values", layout=layout)
    if name == "gae":
        r = rollout(name, kind, rows, time, axis=axis)
    else:
        r = call_of("leaky vtrace", kind, rows, time, axis=axis)
    results = call(engine, r, chunk_size=chunk_size)
    compare(r, tuple(map(engine.numpy, results)))
