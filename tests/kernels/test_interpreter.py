"""Every way of going through time, under Triton's interpreter, against the reference.

Run with ``TRITON_INTERPRET=1``: whether kernels are compiled or interpreted is decided once.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)

from linscan._problem import ACCUMULATE, ScanProblem  # noqa: E402
from linscan.testing._interpreter import quicken  # noqa: E402
from linscan.testing.problems import Problem, assert_close, problem  # noqa: E402
from linscan_triton._regimes import Regime  # noqa: E402
from linscan_triton._scan import layout, make_plan  # noqa: E402

quicken()

ROWS = Regime("rows", 0, 1, 64, 4, 8)
TINY = Regime("rows", 0, 4, 16, 1, 8)
COLUMNS = Regime("columns", 2, 16, 4, 4, 1)
WAYS = {
    "rows": ROWS,
    "rows in chunks": replace(ROWS, chunk=2),
    "rows side by side": TINY,
    "rows side by side in chunks": replace(TINY, chunk=1),
    "columns": COLUMNS,
    "columns in chunks": replace(COLUMNS, chunk=3),
}


def run(p: Problem, chosen: Regime) -> tuple[Any, Any]:
    """``(x, final)`` of a problem ``(outer, time, inner)`` whose axis is the middle one."""
    dtype = getattr(torch, p.dtype)
    number = isinstance(p.a, (float, complex))
    a = None if number else torch.from_numpy(np.ascontiguousarray(p.a)).to(dtype)
    b = torch.from_numpy(p.b).to(dtype)
    initial = None if p.initial is None else torch.from_numpy(p.initial[:, None]).to(dtype)
    reset = None if p.reset is None else torch.from_numpy(p.reset)
    kind = "scalar" if number else "row" if a.shape[1] == 1 else "full"
    canonical = ScanProblem(
        *b.shape,
        p.dtype,
        kind,  # type: ignore[arg-type]
        p.reverse,
        reset=reset is not None,
        initial=initial is not None,
        final=True,
    )
    x, final = torch.empty_like(b), torch.empty_like(b[:, :1])
    given = (a, b, reset, x, initial, final)
    layouts = tuple(None if y is None else layout(y) for y in given)
    plan = make_plan(canonical, layouts, b.device, chosen)
    value = complex(p.a) if number else 0j
    plan.run(given, (value.real, value.imag))
    return x, final


def check(p: Problem, way: str, factor: float = 1) -> None:
    x, final = run(p, WAYS[way])
    wide = "complex128" if p.dtype.startswith("complex") else "float64"
    got = torch.cat([x, final], 1).to(getattr(torch, wide)).numpy()
    expected = np.concatenate([p.x, p.final[:, None]], 1)
    assert_close(got, expected, p.dtype, 1, factor)


def shape(way: str, time: int) -> tuple[int, int, int]:
    if way.startswith("columns"):
        return 1, -(-time // 4), 20
    return 6 if "side" in way else 2, time, 1


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("time", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_at_lengths_around_its_tiles(way: str, time: int, reverse: bool) -> None:
    for extras in (False, True):
        kind = "full" if extras else "row"
        p = problem(shape(way, time), kind, axis=1, reverse=reverse, initial=extras, reset=extras)
        check(p, way)


@pytest.mark.parametrize("dtype", ACCUMULATE)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_with_every_dtype(way: str, dtype: str) -> None:
    for kind in ("number", "full"):
        check(problem(shape(way, 136), kind, dtype, 1, kind == "full", initial=True), way)


@pytest.mark.parametrize("way", WAYS)
def test_overflow_infinity_and_selection(way: str) -> None:
    p = problem(shape(way, 200), "full", axis=1, reset=True)
    zeros = np.zeros(p.b.shape)
    huge = replace(p, a=zeros + 1e30, b=zeros, reset=None, x=zeros, final=zeros[:, 0])
    check(huge, way)
    poisoned = p.b.copy()
    bad = p.b.shape[1] // 4
    poisoned[:, bad] = np.nan
    x, _ = run(replace(p, b=poisoned), WAYS[way])
    assert p.reset is not None
    past = np.cumsum(p.reset, 1)
    reached = past == past[:, bad : bad + 1]
    reached[:, :bad] = False
    np.testing.assert_array_equal(np.isnan(x.numpy()), reached)
