"""The kernels under the sanitizers of the host's compiler: some laws, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import host
import pytest

HERE = Path(__file__).parent
LAWS = {
    "address": (
        "(test_every_length and 1025-full-initial) or (test_time_first and 300 and full) "
        "or (test_every_dtype and full-complex) or test_in_place_over or nothing_is_written"
        " or test_when_products or (test_every_combination and mask and last and values)"
    ),
    "thread": "test_threads",
}


def library(name: str) -> str:
    """The path of a sanitizer's library; it has to be there before the interpreter is."""
    command = [host.COMPILER, f"-print-file-name=lib{name}.so"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(host.BACKEND.why_not() is not None, reason=str(host.BACKEND.why_not()))
@pytest.mark.parametrize("sanitizer", list(LAWS))
def test_clean(sanitizer: str) -> None:
    loaded = library({"address": "asan", "thread": "tsan"}[sanitizer])
    if not Path(loaded).is_absolute():
        pytest.skip(f"{host.COMPILER} has no {sanitizer} sanitizer")
    environment = {
        **os.environ,
        "LINSCAN_SHIM": sanitizer,
        "LD_PRELOAD": loaded,
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:report_bugs=1:ignore_noninstrumented_modules=1",
        "PYTEST_ADDOPTS": "",
    }
    environment.pop("PYTEST_XDIST_WORKER", None)
    script = [str(HERE)] if sanitizer == "address" else [str(HERE / "test_threads.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *script]
    done = subprocess.run(
        [*command, "-k", f"({LAWS[sanitizer]}) and not torch"],
        cwd=HERE.parents[2],
        env=environment,
        capture_output=True,
        text=True,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-8000:]
    assert " passed" in output
    assert "Sanitizer" not in output, output[-8000:]
