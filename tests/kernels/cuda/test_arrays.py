"""CuPy arrays through all of linscan, without torch: what is done in one pass, and what is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linscan
from linscan.testing.engines import Engine
from linscan.testing.families import CASES, call_of
from linscan.testing.rollouts import LAYOUTS, NAMES, Kind, check, rollout
from linscan.testing.test_families import plain
from linscan_cupy._device import CUDA

HERE = Path(__file__).parent


@pytest.fixture
def cupy(engine: Engine) -> Any:
    if engine.library != "cupy":
        pytest.skip("about CuPy arrays")
    return engine.xp


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", list(CASES))
def test_estimators(engine: Engine, cupy: Any, case: str, layout: str) -> None:
    check(engine, call_of(case, plain(case, layout.removesuffix("-carry")), 3, 41))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_estimators_that_decline(engine: Engine, cupy: Any, name: str, layout: str) -> None:
    check(engine, rollout(name, Kind(layout=layout, decay="step"), 3, 41))
    check(engine, rollout(name, Kind(layout=layout, decay="full"), 3, 41, axis=0))


def test_gae_with_two_lambdas_declines(engine: Engine, cupy: Any) -> None:
    check(engine, rollout("gae", Kind(lam_returns=True), 3, 41))


CALLS: list[tuple[str, Callable[[Any], Any], list[Any]]] = [
    ("whiten", lambda a: linscan.whiten(a([1.0, 3.0]), unbiased=False), [-1, 1]),
    (
        "whiten, masked",
        lambda a: linscan.whiten(a([1.0, 3.0, np.nan]), a([1, 1, 0]), unbiased=False),
        [-1, 1, 0],
    ),
    (
        "place_terminal_reward",
        lambda a: linscan.place_terminal_reward(a([[1, 1, 0], [0, 1, 1]]), a([2.0, -1.0])),
        [[0, 2, 0], [0, 0, -1]],
    ),
    ("length_adaptive_lam", lambda a: linscan.length_adaptive_lam(a([10, 40])), [0, 0.5]),
    (
        "episodic_sum",
        lambda a: linscan.episodic_sum(a([1.0, 2.0, 3.0, 4.0]), a([1, 0, 1, 0])),
        [1, 3, 3, 7],
    ),
    (
        "episodic_sum, packed",
        lambda a: linscan.episodic_sum(a([1.0, 2.0, 3.0, 4.0]), cu_seqlens=a([0, 3, 3, 4])),
        [1, 3, 6, 4],
    ),
    ("position_ids", lambda a: linscan.position_ids(a([1, 0, 0, 1, 0])), [0, 1, 2, 0, 1]),
    (
        "position_ids, packed",
        lambda a: linscan.position_ids(cu_seqlens=a([0, 2, 2, 5])),
        [0, 1, 0, 1, 2],
    ),
    ("scan, a number for a", lambda a: linscan.scan(0.5, a([1.0, 1.0, 1.0])), [1, 1.5, 1.75]),
    ("scan of integers", lambda a: linscan.scan(a([2, 3]), a([1, 1]), reverse=True), [3, 1]),
    (
        "scan, packed",
        lambda a: linscan.scan(1.0, a([1.0, 2.0, 3.0]), a([5.0, 7.0]), cu_seqlens=a([0, 1, 3])),
        [6, 9, 12],
    ),
    (
        "discounted_returns, numeric flags",
        lambda a: linscan.discounted_returns(a([1.0, 1.0]), gamma=0.5, terminated=a([1, 0])),
        [1, 1],
    ),
]


@pytest.mark.parametrize(("call", "expected"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_calls(engine: Engine, cupy: Any, call: Callable[[Any], Any], expected: Any) -> None:
    result = call(lambda x: cupy.asarray(np.array(x)))
    assert type(result) is cupy.ndarray
    np.testing.assert_allclose(cupy.asnumpy(result), expected)


def test_auto_finds_the_backend(cupy: Any) -> None:
    b = cupy.asarray(np.ones((2, 3), np.float32))
    assert linscan.explain(0.5, b).backend == "cupy"
    with pytest.raises(TypeError, match="'numpy' does not take"):
        linscan.scan(0.5, b, backend="numpy")


def test_libraries_do_not_mix(cupy: Any) -> None:
    b = np.ones((2, 3), np.float32)
    with pytest.raises(TypeError, match="all arrays must be of one library"):
        linscan.scan(cupy.asarray(b), b)
    with pytest.raises(TypeError, match="all arrays must be of one library"):
        linscan.gae(cupy.asarray(b), b, gamma=0.9, lam=0.9)


def test_into_out(cupy: Any) -> None:
    b = cupy.asarray(np.ones((2, 3), np.float32))
    out = cupy.asarray(np.empty((2, 6), np.float32))[:, ::2]
    assert linscan.scan(0.5, b, out=out) is out
    np.testing.assert_array_equal(cupy.asnumpy(out), [[1, 1.5, 1.75]] * 2)
    assert linscan.scan(0.5, b, out=b) is b
    np.testing.assert_array_equal(cupy.asnumpy(b), [[1, 1.5, 1.75]] * 2)


def test_a_second_call_prepares_nothing(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    b = cupy.asarray(np.ones((1, 9000), np.float32))
    calls = [lambda: linscan.scan(0.5, b), lambda: linscan.gae(b, b, gamma=0.9, lam=0.9)]
    for call in calls:
        call()
    launches = dict(CUDA.launches)
    monkeypatch.setattr(CUDA, "raw_module", None)
    for call in calls:
        call()
    assert CUDA.launches == launches


@pytest.mark.parametrize("capturing", [False, True])
def test_a_graph_keeps_what_its_kernels_need(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, capturing: bool
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(CUDA, "_captured", kept)
    monkeypatch.setattr(cupy.cuda.Stream, "is_capturing", lambda self: capturing)
    linscan.scan(0.5, cupy.asarray(np.ones((200, 40), np.float32)))
    assert not kept
    linscan.scan(0.5, cupy.asarray(np.ones((1, 9000), np.float32)))
    assert len(kept) == capturing


def test_bfloat16(cupy: Any) -> None:
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    b = cupy.asarray(np.ones((2, 300), dtype))
    x = linscan.scan(0.5, b)
    assert x.dtype == dtype
    np.testing.assert_array_equal(cupy.asnumpy(x)[:, [0, 1, -1]].astype(float), [[1, 1.5, 2]] * 2)
    advantages, returns = linscan.gae(b, b, gamma=1.0, lam=0.5)
    assert advantages.dtype == returns.dtype == dtype
    np.testing.assert_array_equal(cupy.asnumpy(returns)[:, 0].astype(float), [3, 3])


def test_nothing_imports_torch(cupy: Any) -> None:
    code = f"""
import sys
sys.modules["torch"] = None  # an import would fail
sys.path.insert(0, {str(HERE)!r})
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", {str(HERE / "test_arrays.py")!r},
    "-k", "(whole or calls or auto) and not nothing_imports"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, done.stdout[-4000:]
