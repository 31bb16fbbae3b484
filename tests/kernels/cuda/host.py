"""The backend in CPU memory: its kernels compiled by the host's C++ compiler, against a shim.

``HostModule`` stands in for ``cupy.RawModule``; everything else is the backend's own.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linscan import _host
from linscan_cupy import CupyBackend
from linscan_cupy._device import THREADS, Cuda

HERE = Path(__file__).parent
MODE = os.environ.get("LINSCAN_SHIM", "")
"""``address`` and ``thread`` compile with that sanitizer, which then has to be loaded first."""
SANITIZERS = {
    "": [],
    "address": ["-g", "-fsanitize=address,undefined"],
    "thread": ["-g", "-fsanitize=thread"],
}
COMPILER = os.environ.get("CXX") or "g++"


def flags() -> list[str]:
    """What everything is compiled with."""
    found = ["-std=gnu++17", "-fPIC", "-shared", "-pthread", "-Wno-unknown-pragmas", "-O1"]
    if platform.machine() == "x86_64" and "fma" in Path("/proc/cpuinfo").read_text():
        found.append("-mfma")
    return found


def built(name: str, code: str, *options: str) -> Path:
    """A shared library of that code, made once per content."""
    parts = [code, *options, *flags(), *(HERE.joinpath(f).read_text() for f in ("shim.h",))]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    folder = Path(tempfile.gettempdir()) / f"linscan-kernels-on-host-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    library = folder / f"{name}-{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            source, made = Path(scratch, "code.cpp"), Path(scratch, "made.so")
            source.write_text(code)
            command = [COMPILER, *flags(), f"-I{HERE}", str(source), "-o", str(made), *options]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
            os.replace(made, library)
    return library


@functools.cache
def shim() -> ctypes.CDLL:
    """What runs the threads."""
    switches = ["-DSWAP_CONTEXTS"] if MODE else []  # sanitizers do not follow long jumps
    path = built("shim", HERE.joinpath("shim.cpp").read_text(), *switches)
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


class HostModule:
    """``cupy.RawModule``, as far as it is used."""

    def __init__(
        self, code: str, options: tuple[str, ...], name_expressions: tuple[str, ...]
    ) -> None:
        shim()
        launchers = [
            f'extern "C" void launch{i}(const void* parameters, unsigned blocks, unsigned threads) '
            f"{{\n    shim::run({name}, parameters, blocks, threads);\n}}\n"
            for i, name in enumerate(name_expressions)
        ]
        source = "\n".join(['#include "shim.h"', code, *launchers])
        library = ctypes.CDLL(str(built("kernel", source, *SANITIZERS[MODE])))
        self._launch = {
            name: getattr(library, f"launch{i}") for i, name in enumerate(name_expressions)
        }

    def get_function(self, name: str) -> Any:
        """A kernel, to be called with a grid, a block and one array of parameters."""
        launch = self._launch[name]

        def call(grid: tuple[int], block: tuple[int], args: tuple[Any]) -> None:
            (parameters,) = args
            assert parameters.size == 1
            assert block == (THREADS,)
            launch(ctypes.c_void_p(parameters.ctypes.data), grid[0], block[0])

        return call


class CupyOnHost(CupyBackend):
    """The backend itself, for the arrays of the stand-in, whose ``RawModule`` is ``HostModule``."""

    def why_not(self) -> str | None:
        if shutil.which(COMPILER) is None:
            return f"there is no C++ compiler: {COMPILER} is not found"
        return None


class Memory(Cuda):
    """CPU memory, as torch has it: what NumPy sees of it."""

    def raw_module(self, **options: Any) -> Any:
        return HostModule(**options)

    def current(self, x: Any) -> Any:
        return nullcontext()

    def where(self, x: Any) -> tuple[int, tuple[int, ...]]:
        return x.ctypes.data, x.strides


class TorchOnHost(CupyOnHost):
    """The same for torch tensors in CPU memory, which have the dtype that NumPy lacks."""

    name = "cupy_on_host"
    rank = 1000

    def owns(self, x: Any) -> bool:
        return _host.is_cpu_array(x)

    def scan(self, problem: Any, a: Any, b: Any, initial: Any, reset: Any, out: Any) -> Any:
        x, final = super().scan(problem, *map(_host.view, (a, b, initial, reset, out)))
        x, final = (None if y is None else _host.like(y, b, problem.dtype) for y in (x, final))
        return x if out is None else out, final

    def _device(self) -> Cuda:
        return MEMORY


MEMORY = Memory()
BACKENDS = {"cupy": CupyOnHost(), "torch": TorchOnHost()}
"""By the library of the arrays."""


@dataclass
class Traffic:
    """What kernels moved."""

    loaded: int = 0
    stored: int = 0
    vectors: int = 0


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Counts bytes, and accesses of 16 bytes, until the end of the block."""
    counts = (ctypes.c_uint64 * 3)()
    shim().shim_traffic(counts)
    counted = Traffic()
    yield counted
    shim().shim_traffic(counts)
    counted.loaded, counted.stored, counted.vectors = counts
