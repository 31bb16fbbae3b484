"""What is missing where the backend cannot run, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import requires
from typing import Any

import numpy as np
import pytest

import linscan
import linscan_cupy
from linscan.testing.engines import Engine
from linscan_cupy import _driver


class Driver:
    """A driver for CUDA 12.4."""

    @staticmethod
    def cuDriverGetVersion(version: Any) -> int:
        version._obj.value = 12040
        return 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """One that has it all: CuPy for CUDA 12, a driver, and a device."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(linscan_cupy, "find_spec", lambda name: name)
    monkeypatch.setattr(_driver, "_installed", lambda name: name == "cupy-cuda12x")
    monkeypatch.setattr(_driver, "_library", lambda names: Driver)
    monkeypatch.setattr(_driver, "_devices", lambda: 1)
    linscan_cupy._missing.cache_clear()
    yield monkeypatch
    linscan_cupy._missing.cache_clear()


def test_nothing(machine: pytest.MonkeyPatch) -> None:
    assert linscan_cupy.BACKEND.why_not() is None


def test_the_driver(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(_driver, "_library", lambda names: None)
    assert "no NVIDIA driver" in str(linscan_cupy.BACKEND.why_not())


def test_cupy(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(linscan_cupy, "find_spec", lambda name: None)
    reason = str(linscan_cupy.BACKEND.why_not())
    assert "pip install 'linscan[cupy13x]'" in reason
    assert "driver" not in reason


def test_cupy_and_the_driver(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(linscan_cupy, "find_spec", lambda name: None)
    machine.setattr(_driver, "_library", lambda names: None)
    reason = str(linscan_cupy.BACKEND.why_not())
    assert "CuPy is not installed" in reason
    assert "no NVIDIA driver" in reason


def test_a_driver_that_is_new_enough(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(_driver, "_installed", lambda name: name == "cupy-cuda13x")
    reason = str(linscan_cupy.BACKEND.why_not())
    assert "needs a driver for CUDA 13, and this one is for CUDA 12.4" in reason


def test_a_device(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(_driver, "_devices", lambda: 0)
    assert "finds no device" in str(linscan_cupy.BACKEND.why_not())


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_visible_device(machine: pytest.MonkeyPatch, value: str) -> None:
    machine.setenv("CUDA_VISIBLE_DEVICES", value)
    assert "CUDA_VISIBLE_DEVICES hides every device" in str(linscan_cupy.BACKEND.why_not())


def test_a_compiler(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine.library != "cupy":
        pytest.skip("about CuPy")

    def absent() -> None:
        raise OSError("libnvrtc.so: cannot open shared object file")

    monkeypatch.setattr(linscan_cupy._device.CUDA, "_kernels", {})
    monkeypatch.setattr(sys.modules["cupy.cuda.nvrtc"], "getVersion", absent)
    b = engine.array(np.ones((3, 4)), "float32")
    with pytest.raises(linscan.BackendUnavailable, match="finds no CUDA compiler, NVRTC"):
        linscan.scan(0.5, b, backend="cupy")


@pytest.mark.parametrize("cuda", [12, 13])
def test_an_extra_brings_cupy_alone(cuda: int) -> None:
    extra = f"cupy{cuda}x"
    wanted = [line for line in requires("linscan") or [] if extra in line.partition(";")[2]]
    assert [line.partition("[")[0] for line in wanted] == [f"cupy-cuda{cuda}x"]
