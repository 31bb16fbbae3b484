"""CuPy on a GPU: the laws on its arrays and on torch tensors, streams, graphs, DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linscan
from linscan.testing.engines import DTYPES, Engine
from linscan.testing.families import CASES, call_of
from linscan.testing.problems import KINDS, problem
from linscan.testing.rollouts import LAYOUTS, NAMES, Kind, rollout
from linscan.testing.rollouts import check as check_estimator
from linscan.testing.test_families import plain
from linscan.testing.test_scan import check, hard, worst

SHAPES = [((3, 5), 1), ((40, 150), 1), ((300, 2049), 1), ((2, 70001), 1), ((2049, 300), 0)]


@pytest.fixture(scope="module", params=["cupy", "torch"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """The backend with the arrays of both libraries."""
    pytest.importorskip("cupy")
    return Engine("cupy", request.param, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(
    engine: Engine, shape: tuple[int, int], axis: int, kind: str, dtype: str, reverse: bool
) -> None:
    check(engine, problem(shape, kind, dtype, axis, reverse, initial=True, reset=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("rows", "time"), [(3, 60), (300, 2049), (2, 20001)])
def test_estimator(engine: Engine, rows: int, time: int, axis: int, name: str, layout: str) -> None:
    for decay in ("number", "full"):
        check_estimator(
            engine, rollout(name, Kind(layout=layout, decay=decay), rows, time, axis=axis)
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("axis", [0, 1])
def test_other_estimators(engine: Engine, axis: int, case: str, layout: str) -> None:
    kind = plain(case, layout.removesuffix("-carry"))
    check_estimator(engine, call_of(case, kind, 30, 60, axis=axis))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("rows", "time", "axis"), [(300, 2049, 1), (2, 20001, 1), (2, 20001, 0)])
def test_vtrace(engine: Engine, rows: int, time: int, axis: int, layout: str) -> None:
    check_estimator(engine, call_of("leaky vtrace", Kind(layout=layout), rows, time, axis=axis))


@pytest.mark.parametrize("name", ["0.9999", "-1", "uniform in (.9, 1)"])
def test_errors(engine: Engine, name: str) -> None:
    a, b, exact, error = hard(name, "float32", False)
    x = engine.numpy(engine.scan(engine.array(a, "float32"), engine.array(b, "float32")))
    assert worst(x.astype(np.float64), exact) <= 4 * error + 4 * np.finfo("float32").eps


def test_the_current_stream() -> None:
    cupy = pytest.importorskip("cupy")
    n = 1 << 24
    with cupy.cuda.Stream(non_blocking=True) as stream:
        b = cupy.zeros((4, n), "float32")
        for _ in range(50):
            b += 1  # the scan must come after all of them
        x = linscan.scan(0.5, b)
        stream.synchronize()
    assert float(x[0, -1]) == 100


def test_the_current_stream_of_torch() -> None:
    pytest.importorskip("cupy")
    import torch

    with torch.cuda.stream(torch.cuda.Stream()):
        b = torch.zeros((4, 1 << 24), device="cuda")
        for _ in range(50):
            b += 1
        x = linscan.scan(0.5, b, backend="cupy")
        torch.cuda.current_stream().synchronize()
    assert float(x[0, -1]) == 100


def test_a_cuda_graph() -> None:
    pytest.importorskip("cupy")
    import torch

    b = torch.ones((300, 3000), device="cuda")
    out = torch.empty_like(b)
    linscan.scan(0.5, b, out=out, backend="cupy")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        linscan.scan(0.5, b, out=out, backend="cupy")
    b.fill_(3)
    graph.replay()
    torch.testing.assert_close(out, linscan.scan(0.5, b, backend="torch"))


@pytest.mark.parametrize("shape", [(300, 3000), (1, 200_000)])  # the second needs room of its own
def test_a_cuda_graph_of_cupy(shape: tuple[int, int]) -> None:
    cupy = pytest.importorskip("cupy")
    b = cupy.ones(shape, "float32")
    out = cupy.empty_like(b)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        linscan.scan(0.5, b, out=out)
        stream.begin_capture()
        linscan.scan(0.5, b, out=out)
        graph = stream.end_capture()
        others = [cupy.full(5000 * n, cupy.nan, "float32") for n in range(1, 20)]
        b *= 3
        graph.launch(stream)
        stream.synchronize()
        expected = linscan.scan(0.5, b)
        stream.synchronize()
    assert len(others) == 19
    assert (out == expected).all()
    assert float(out[0, -1]) == 6


def test_dlpack() -> None:
    cupy = pytest.importorskip("cupy")
    import torch

    b = torch.randn((300, 3000), device="cuda")
    x = torch.from_dlpack(linscan.scan(0.5, cupy.from_dlpack(b)))
    torch.testing.assert_close(x, linscan.scan(0.5, b, backend="cupy"), rtol=0, atol=0)


def test_estimators_need_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy")
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    r: Any = cupy.ones((3, 50), "float32")
    steps = cupy.full(50, 0.9, "float32")  # from step to step: composed, not in one pass
    assert type(linscan.gae(r, r, gamma=steps, lam=0.9).returns) is cupy.ndarray
