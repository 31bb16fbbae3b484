"""What only the torch backend has: tiles, blocks of rows, and a way for devices."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linscan_torch
from linscan import reference
from linscan.testing.engines import Engine
from linscan.testing.problems import KINDS, assert_close, problem
from linscan.testing.test_scan import check

torch = pytest.importorskip("torch")

from linscan_torch import _scan  # noqa: E402

TORCH = Engine("torch", "torch")


def test_importing_the_backend_imports_no_torch():
    script = "import sys, linscan_torch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_where_torch_is_missing(monkeypatch: pytest.MonkeyPatch):
    def none(name: str) -> None:
        return None

    monkeypatch.setattr(linscan_torch, "find_spec", none)
    assert "pip install 'linscan[torch]'" in str(linscan_torch.BACKEND.why_not())


@pytest.mark.parametrize("wide", [1, 333])
@pytest.mark.parametrize("reverse", [False, True])
def test_any_width_of_vectors(monkeypatch: pytest.MonkeyPatch, wide: int, reverse: bool):
    monkeypatch.setattr(_scan, "WIDE_ON_CPU", wide)
    for shape in ((3, 200), (50, 60), (300, 5)):
        for kind in KINDS:
            for axis in (0, 1):
                p = problem(shape, kind, "float64", axis, reverse, initial=True, reset=True)
                check(TORCH, p, chunk_size=4)
                check(TORCH, problem(shape, kind, "float64", axis, reverse), chunk_size=4)


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way for devices, on a CPU: nothing may look at a result."""

    def true(x: Any) -> bool:
        return True

    monkeypatch.setattr(_scan, "is_remote", true)
    for name in ("__bool__", "item", "__float__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, refuse(name))


def refuse(name: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        raise AssertionError(f"{name} makes the host wait for the device")

    return call


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize("kind", ["number", "row", "step", "full"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64", "complex64"])
def test_on_a_device(kind: str, dtype: str):
    for reverse in (False, True):
        p = problem((3, 3000), kind, dtype, reverse=reverse, initial=True, reset=True)
        a = p.a if kind == "number" else TORCH.array(p.a, dtype)
        x, final = TORCH.scan(
            a,
            TORCH.array(p.b, dtype),
            TORCH.array(p.initial, dtype),
            reset=TORCH.array(p.reset),
            reverse=reverse,
            return_final=True,
            check="off",
        )
        assert_close(TORCH.numpy(x), p.x, dtype)
        assert_close(TORCH.numpy(final), p.final, dtype, axis=0, factor=100)


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_on_a_device_an_overflowing_product_times_zero_is_zero(dtype: str):
    a, b = np.full((2, 3000), 1e30), np.zeros((2, 3000))
    b[1, 2990] = 1.0
    x = TORCH.numpy(TORCH.scan(TORCH.array(a, dtype), TORCH.array(b, dtype), check="off"))
    assert not x[0].any()
    assert not x[1, :2990].any()
    assert x[1, 2990] == 1


@pytest.mark.usefixtures("remote")
def test_on_a_device_nan_runs_forward_only():
    for at in (0, 31, 32, 1500, 2999):
        p = problem((1, 3000), "full")
        b = p.b.copy()
        b[0, at] = np.nan
        x, _ = reference.serial(p.a, b)
        y = TORCH.scan(TORCH.array(p.a, "float32"), TORCH.array(b, "float32"), check="off")
        assert_close(TORCH.numpy(y), x, "float32")


def test_conjugate_and_negative_views():
    p = problem((3, 300), "full", "complex64")
    a, b = (TORCH.array(x.conj(), "complex64").conj() for x in (p.a, p.b))
    assert a.is_conj()
    assert_close(TORCH.numpy(TORCH.scan(a, b)), p.x, "complex64")
    part = TORCH.array(1j * np.real(p.b), "complex64").conj().imag
    assert part.is_neg()
    x, _ = reference.serial(0.5, -np.real(p.b))
    assert_close(TORCH.numpy(TORCH.scan(0.5, part)), x, "float32")
