"""Estimators and gradients in one pass, every way of going through time, against the definition.

Run with ``TRITON_INTERPRET=1``: whether kernels are compiled or interpreted is decided once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)

import linscan  # noqa: E402
from linscan._problem import ACCUMULATE, EstimatorProblem, ScanProblem  # noqa: E402
from linscan.testing._interpreter import quicken  # noqa: E402
from linscan.testing.engines import Engine  # noqa: E402
from linscan.testing.families import call_of, suits  # noqa: E402
from linscan.testing.rollouts import NAMES, SOURCES, Kind, check, rollout  # noqa: E402
from linscan_triton import BACKEND, _regimes, _scan  # noqa: E402
from linscan_triton._regimes import Regime  # noqa: E402

quicken()

ENGINE = Engine("triton", "torch")
ROWS = Regime("rows", 0, 1, 64, 4, 8)
TINY = Regime("rows", 0, 4, 16, 1, 8)
COLUMNS = Regime("columns", 2, 32, 4, 4, 1)
WAYS = {"rows": ROWS, "rows side by side": TINY, "columns": COLUMNS}
CHUNKS = {
    "rows in chunks": replace(ROWS, chunk=2),
    "rows side by side in chunks": replace(TINY, chunk=1),
    "columns in chunks": replace(COLUMNS, chunk=3),
}
KINDS = [
    Kind(source, truncation, terminated, layout, decay)
    for source, truncation, terminated, layout, decay in (
        ("none", "none", False, "whole", "number"),
        ("longer", "values", False, "mask", "row"),
        ("last", "current_value", True, "mask-carry", "number"),
        ("last", "values", True, "whole", "row"),
        ("next", "none", True, "mask", "number"),
        ("last", "none", False, "mask", "row"),
        ("none", "zero", True, "mask", "number"),
    )
]


@contextmanager
def through(chosen: Regime) -> Iterator[list[Any]]:
    """Inside, one pass goes through time in that way; the list has the problems it was for.

    Scans over chunks find their own way.
    """
    seen: list[Any] = []
    make = _scan.make_plan

    def made(problem: Any, layouts: Any, device: Any, *, code: Any) -> Any:
        if code is _scan.SCAN:
            return make(problem, layouts, device)
        seen.append(problem)
        return make(problem, layouts, device, chosen, code)

    with patch.object(_scan, "make_plan", made), patch.object(_scan, "_plans", {}):
        yield seen


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", [*WAYS, *CHUNKS])
def test_estimators_at_lengths_around_tiles(way: str, name: str) -> None:
    columns = way.startswith("columns")
    lengths = (1, 15, 16, 17, 41) if columns else (1, 63, 64, 65, 200)
    for i, kind in enumerate(KINDS):
        if not kind.suits(name) or ("mask" in kind.layout and way in CHUNKS):
            continue
        r = rollout(name, kind, 20 if columns else 3, lengths[i % 5], axis=0 if columns else 1)
        with through((WAYS | CHUNKS)[way]) as passes:
            check(ENGINE, r)
        assert len(passes) == 1


@pytest.mark.parametrize("case", ["vtrace", "leaky vtrace"])
@pytest.mark.parametrize("way", [*WAYS, *CHUNKS])
def test_vtrace_at_lengths_around_tiles(way: str, case: str) -> None:
    columns = way.startswith("columns")
    lengths = (1, 15, 16, 17, 41) if columns else (1, 63, 64, 65, 200)
    for i, kind in enumerate(KINDS):
        if not suits(case, kind) or ("mask" in kind.layout and way in CHUNKS):
            continue
        kind = kind._replace(decay="number")
        r = call_of(case, kind, 20 if columns else 3, lengths[i % 5], axis=0 if columns else 1)
        with through((WAYS | CHUNKS)[way]) as passes:
            check(ENGINE, r)
        assert len(passes) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("way", WAYS)
def test_estimators_of_every_dtype(way: str, dtype: str) -> None:
    axis = 0 if way == "columns" else 1
    for r in (
        *(rollout(name, Kind(layout="mask"), 3, 70, dtype=dtype, axis=axis) for name in NAMES),
        call_of("leaky vtrace", Kind(layout="mask"), 3, 70, dtype, axis),
    ):
        with through(WAYS[way]) as passes:
            check(ENGINE, r)
        assert len(passes) == 1


def test_a_ratio_without_bound_is_clipped_without_nan() -> None:
    log_rhos = torch.tensor([[1000.0, 0.0, torch.nan, -1000.0]])
    terminated = torch.tensor([[False, True, False, True]])
    found = linscan.vtrace(
        log_rhos, torch.ones(1, 4), torch.zeros(1, 4), gamma=0.5, terminated=terminated,
        backend="triton",
    )  # fmt: skip
    for x in found:  # 1.5, 1, NaN and 0 by hand
        assert torch.equal(x.nan_to_num(7), torch.tensor([[1.5, 1.0, 7.0, 0.0]]))


@pytest.mark.parametrize("own", [("scalar", *["scalar"] * 4), ("full", "row", *["scalar"] * 3)])
def test_vtrace_of_other_operands_is_declined(own: Any) -> None:
    problem = EstimatorProblem(
        "vtrace", 2, 9, 1, "float32", "float32", "scalar", "scalar", own=own
    )  # fmt: skip
    assert "log_rhos" in str(BACKEND.fused["vtrace"](problem))


def test_lazily_negated_and_conjugated_numbers_are_what_they_mean() -> None:
    z = torch.complex(torch.ones(3, 5), torch.full((3, 5), 2.0))
    ones = torch.ones(3, 5)
    x = linscan.scan(0.0, z.conj().imag, ones[:, 0], backend="triton")
    assert torch.equal(x, -2 * ones)
    x = linscan.scan(z[:, :1].conj().expand(3, 5), 0 * z, z[:, 0], backend="triton")
    assert torch.equal(x[:, 1], (z.conj() * z.conj() * z)[:, 0])
    advantages, _ = linscan.gae(z.conj().imag, 0 * ones, gamma=0, lam=0, backend="triton")
    assert torch.equal(advantages, -2 * ones)


def test_long_rows_are_cut_into_chunks_unless_there_are_holes() -> None:
    problem = EstimatorProblem("gae", 2, 1 << 16, 1, "float32", "float32", "scalar", "scalar")
    assert callable(BACKEND.fused["gae"](problem))
    declined = BACKEND.fused["gae"](replace(problem, mask=True))
    assert isinstance(declined, str)
    assert "holes" in declined
    chunked = BACKEND.explain(problem)
    assert chunked.chunk_size
    assert chunked.bytes_per_element == 24
    for source in SOURCES:
        check(ENGINE, rollout("gae", Kind(source), 2, 5000))


@pytest.mark.parametrize("options", [{"gamma": "step"}, {"lam": "full"}, {"lam_returns": "scalar"}])
def test_what_takes_more_passes_is_declined(options: dict[str, Any]) -> None:
    problem = EstimatorProblem("gae", 2, 9, 1, "float32", "float32", "scalar", "scalar")
    assert isinstance(BACKEND.fused["gae"](replace(problem, **options)), str)


# --------------------------------------------------------------------------------------- gradients


def loop(problem: ScanProblem, a: Any, x: Any, initial: Any, g: Any, reset: Any) -> tuple[Any, Any]:
    """The definition of a fused backward pass, in float64 or complex128."""
    steps = range(problem.time)[:: -1 if problem.reverse else 1]
    lam, grad, state = torch.empty_like(g), torch.zeros_like(a), torch.zeros_like(g[:, 0])
    for k, t in reversed(list(enumerate(steps))):
        lam[:, t] = g[:, t] + state
        before = x[:, steps[k - 1]] if k else initial
        state = a[:, t].conj() * lam[:, t]
        if before is not None:
            grad[:, t] = lam[:, t] * before.conj()
        if reset is not None:
            state[reset[:, t]] = 0
            grad[:, t][reset[:, t]] = 0
    return lam, grad


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("dtype", ACCUMULATE)
@pytest.mark.parametrize("way", WAYS)
def test_gradients(way: str, dtype: str, reverse: bool) -> None:
    kind = getattr(torch, dtype)
    wide = torch.complex128 if kind.is_complex else torch.float64
    generator = torch.Generator().manual_seed(0)
    tolerance = 64 * torch.finfo(kind).eps

    def some(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, dtype=wide).to(kind)

    for extras in (False, True):
        lengths = (5, 1, 16, 17) if way == "columns" else (64, 1, 130, 65)
        for time in lengths[extras::2]:
            shape = (1, time, 20) if way == "columns" else (2 if way == "rows" else 5, time, 1)
            problem = ScanProblem(*shape, dtype, "full", reverse, reset=extras, initial=extras)
            a, x, g = 0.6 * some(*shape), some(*shape), some(*shape)
            initial = some(shape[0], 1, shape[2]) if extras else None
            reset = torch.rand(shape, generator=generator) < 0.1 if extras else None
            first = None if initial is None else initial[:, 0].to(wide)
            expected = loop(problem, a.to(wide), x.to(wide), first, g.to(wide), reset)
            if extras:
                a = torch.where(reset, torch.nan, a)
            else:
                a[:, -1 if reverse else 0] = torch.nan
            with through(WAYS[way]) as passes:
                found = BACKEND.backward(problem, a, x, initial, g, reset)
            assert len(passes) == 1
            assert found is not None
            for got, wanted in zip(found, expected, strict=True):
                assert got.dtype == kind
                assert (got.to(wide) - wanted).abs().max() <= tolerance * wanted.abs().max()


def test_an_expanded_gradient_and_nan_that_must_not_cross() -> None:
    a, x = torch.full((3, 70, 1), 0.5), torch.ones(3, 70, 1)
    reset = torch.zeros(3, 70, 1, dtype=torch.bool)
    reset[:, 40] = True
    x[:, 39] = torch.nan
    a[:, 50] = torch.inf
    problem = ScanProblem(3, 70, 1, "float32", "full", reset=True)
    g = torch.ones(()).expand(3, 70, 1)
    lam, grad = BACKEND.backward(problem, a, x, None, g, reset)
    assert torch.isfinite(lam[:, :40]).all()
    assert torch.isinf(lam[:, 40:50]).all()
    assert (grad[:, 40] == 0).all()
    assert torch.isfinite(grad[:, :40]).all()


def test_sums_over_steps_and_few_long_rows_are_declined() -> None:
    shape = (2, 70, 1)
    x = torch.ones(shape)
    row = ScanProblem(*shape, "float32", "row")
    assert BACKEND.backward(row, torch.ones(2, 1, 1), x, None, x, None) is None
    long = torch.ones(1, 1 << 16, 1)
    assert _regimes.regime(ScanProblem(*long.shape, "float32", "full"), long.stride()).chunk
    problem = ScanProblem(*long.shape, "float32", "full")
    assert BACKEND.backward(problem, long, long, None, long, None) is None
