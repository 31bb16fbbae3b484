"""The kernels under the sanitizers of the host's compiler: some laws, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import host
import pytest

HERE = Path(__file__).parent
WHY_NOT = host.BACKENDS["cupy"].why_not()
THREADS = "test_threads_of_a_scan or take_turns or (test_threads and mask-carry)"
LAWS = {
    "address": f"{THREADS} or (test_every_dtype and 2-full-forward) or nothing_is_written_beside",
    "thread": THREADS,
}


def library(name: str) -> str:
    """The path of a sanitizer's library; it has to be there before the interpreter is."""
    command = [host.COMPILER, f"-print-file-name=lib{name}.so"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.parametrize("sanitizer", list(LAWS))
def test_clean(sanitizer: str) -> None:
    loaded = library({"address": "asan", "thread": "tsan"}[sanitizer])
    if not Path(loaded).is_absolute():
        pytest.skip(f"{host.COMPILER} has no {sanitizer} sanitizer")
    environment = {
        **os.environ,
        "LINSCAN_SHIM": sanitizer,
        "LINSCAN_EVERY_CASE": "1",
        "LD_PRELOAD": loaded,
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:ignore_noninstrumented_modules=1:symbolize=0",
        "PYTEST_ADDOPTS": "",
    }
    laws = [HERE / f"test_{name}.py" for name in ("threads", "scan_laws")]
    command = [sys.executable, "-m", "pytest", "-qsx", "-p", "no:cacheprovider", *map(str, laws)]
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
