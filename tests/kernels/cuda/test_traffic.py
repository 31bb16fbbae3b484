"""Bytes that kernels move: the minimum where they go through memory once."""

from __future__ import annotations

from typing import Any

import host
import numpy as np
import pytest

import linscan
from linscan.testing.engines import Engine

ROWS = {"row per block": (130, 1536), "rows per block": (40, 64), "column per thread": (8, 2064)}
"""Time last, last, and first."""
LONG = 2, 65536


def moved(call: Any) -> host.Traffic:
    """What a call moves, once its kernels are compiled."""
    with host.traffic() as counted:
        call()
    return counted


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("regime", list(ROWS))
def test_a_scan_reads_and_writes_once(engine: Engine, regime: str, dtype: str) -> None:
    shape, axis = ROWS[regime], 0 if regime == "column per thread" else 1
    n = int(np.prod(shape))
    b = engine.array(np.ones(shape), dtype)
    for a, operands in ((engine.array(np.full(shape, 0.5), dtype), 2), (0.5, 1)):
        kernel = linscan.explain(a, b, axis=axis, backend=engine.backend)
        assert kernel.kernel == regime
        counted = moved(lambda a=a: engine.scan(a, b, axis=axis))
        assert counted.stored == n * b.itemsize
        assert counted.loaded == n * b.itemsize * operands
        assert counted.loaded + counted.stored == n * kernel.bytes_per_element
        if axis == 1:
            assert counted.vectors * 16 == counted.loaded + counted.stored


@pytest.mark.parametrize("regime", list(ROWS))
def test_gae_reads_and_writes_once(engine: Engine, regime: str) -> None:
    shape, axis = ROWS[regime], 0 if regime == "column per thread" else 1
    n = int(np.prod(shape))
    x = engine.array(np.ones(shape), "float32")
    flag = engine.array(np.zeros(shape, bool))
    calls: list[tuple[int, dict[str, Any]]] = [
        (16, {}),
        (17, {"terminated": flag}),
        (18, {"terminated": flag, "mask": flag}),
        (20, {"next_values": x}),
    ]
    for size, given in calls:
        counted = moved(
            lambda given=given: engine.gae(x, x, gamma=0.9, lam=0.9, axis=axis, **given)
        )
        assert counted.loaded + counted.stored == n * size
        explained = linscan.explain(
            linscan.gae, x, x, gamma=0.9, lam=0.9, axis=axis, backend=engine.backend, **given
        )
        assert explained.bytes_per_element == size
        assert explained.kernel == f"fused {regime}"


@pytest.mark.parametrize("regime", list(ROWS))
def test_vtrace_reads_and_writes_once(engine: Engine, regime: str) -> None:
    shape, axis = ROWS[regime], 0 if regime == "column per thread" else 1
    n = int(np.prod(shape))
    x = engine.array(np.ones(shape), "float32")
    flag = engine.array(np.zeros(shape, bool))
    calls: list[tuple[int, Any, dict[str, Any]]] = [
        (20, 0.1, {}),
        (24, x, {}),
        (26, x, {"terminated": flag, "mask": flag}),
        (28, x, {"next_values": x}),
    ]
    for size, log_rhos, given in calls:
        rule = {"gamma": 0.9, "axis": axis, "backend": engine.backend, **given}
        counted = moved(lambda rule=rule, rhos=log_rhos: linscan.vtrace(rhos, x, x, **rule))
        assert counted.loaded + counted.stored == n * size
        explained = linscan.explain(linscan.vtrace, log_rhos, x, x, **rule)
        assert explained.bytes_per_element == size
        assert explained.kernel == f"fused {regime}"


def test_few_long_rows_are_read_twice(engine: Engine) -> None:
    n = int(np.prod(LONG))
    b = engine.array(np.ones(LONG), "float32")
    a = engine.array(np.full(LONG, 0.5), "float32")
    kernel = linscan.explain(a, b, backend=engine.backend)
    assert kernel.kernel == "reduce, scan, rescan rows"
    assert kernel.bytes_per_element == 20
    counted = moved(lambda: engine.scan(a, b))
    assert kernel.chunk_size is not None
    small = 2 * (LONG[1] // kernel.chunk_size) * 64  # a chunk's total and state
    assert 20 * n <= counted.loaded + counted.stored <= 20 * n + small


def test_rows_that_start_anywhere_move_no_more(engine: Engine) -> None:
    b = engine.array(np.ones((130, 8193)), "float32")
    counted = moved(lambda: engine.scan(0.5, b))
    assert counted.loaded == counted.stored == 130 * 8193 * 4
    assert counted.vectors == 0
