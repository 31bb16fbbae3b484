"""The kernels compiled for real devices: registers, spills, and accesses of 16 bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from linscan_cupy._device import SOURCE

TARGETS = (75, 80, 90, 100)
SCANS = [  # what is scanned; threads per row; whether it is the first of two readings
    ("Scan<Half, false, false>", 256, "false"),
    ("Scan<float, false, false>", 256, "false"),
    ("Scan<float, true, true>", 32, "false"),
    ("Scan<float, false, true>", 1, "false"),
    ("Scan<double, false, true>", 256, "false"),
    ("Scan<Complex<float>, false, false>", 256, "false"),
    ("Scan<Complex<double>, false, true>", 256, "false"),
    ("Scan<Complex<double>, false, true>", 256, "true"),
    ("Estimate<float, 0, false, Returns>", 1, "false"),
    ("Estimate<float, 0, false, Returns>", 256, "false"),
    ("Estimate<Half, 2, true, Returns>", 32, "false"),
    ("Estimate<float, 2, true, Returns>", 256, "false"),
    ("Estimate<double, 2, true, Returns>", 256, "false"),
    ("Estimate<double, 2, true, Returns>", 256, "true"),
    ("Estimate<float, 0, false, VTrace>", 256, "false"),
    ("Estimate<float, 2, true, VTrace>", 1, "false"),
    ("Estimate<Half, 2, true, VTrace>", 256, "false"),
    ("Estimate<double, 2, true, VTrace>", 256, "false"),
    ("Estimate<double, 2, true, VTrace>", 256, "true"),
]
JOINS = ["Scan<Complex<double>, false, true>", "Estimate<double, 2, true, VTrace>"]


def compiler() -> str | None:
    """The machine's nvcc, or that of NVIDIA's packages (``pip install nvidia-cuda-nvcc``)."""
    spec = find_spec("nvidia")
    places = () if spec is None else spec.submodule_search_locations or ()
    packaged = [path for place in places for path in Path(place).glob("*/bin/nvcc")]
    return shutil.which("nvcc") or next(map(str, packaged), None)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler() is None:
        pytest.skip("there is no CUDA compiler: nvcc is not found, nor is nvidia-cuda-nvcc")
    path = tmp_path_factory.mktemp("compiled") / "kernels.cu"
    kernels = [(f"scan<{work}, {group}, {totals}>", work) for work, group, totals in SCANS]
    kernels += [(f"join<{work}>", work) for work in JOINS]
    lines = [
        f"template __global__ void {name}(const typename {work}::Params);" for name, work in kernels
    ]
    path.write_text("\n".join([f'#include "{SOURCE}"', *lines]))
    return path


def nvcc(source: Path, target: int, *options: str) -> str:
    command = [str(compiler()), "-std=c++17", f"-arch=sm_{target}", *options, str(source)]
    done = subprocess.run(command, cwd=source.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_spilled(source: Path, target: int) -> None:
    report = nvcc(source, target, "-cubin", "-Xptxas", "-v", "-o", f"{target}.cubin")
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", report)
    registers = list(map(int, re.findall(r"Used (\d+) registers", report)))
    assert len(spills) == len(registers) == len(SCANS) + len(JOINS)
    assert set(spills) == {("0", "0")}
    assert max(registers) <= 255
    assert "warning" not in report


def test_accesses_are_16_bytes_wide(source: Path) -> None:
    nvcc(source, 90, "-ptx", "-o", "90.ptx")
    entries = source.with_name("90.ptx").read_text().split(".entry ")[1:]
    assert len(entries) == len(SCANS) + len(JOINS)
    for entry in entries:
        name = entry.split("(")[0]
        if name.startswith("_Z4join"):
            continue
        assert re.search(r"ld\.global\.\w+\.v4\.u32|ld\.global\.\w+\.v4\.b32", entry), name
        if "ELb0EEvNT" in name:
            assert re.search(r"st\.global\.cs\.v4\.\w32", entry), name
