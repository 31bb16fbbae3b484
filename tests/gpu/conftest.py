"""Everything that needs a GPU, in one command::

    pytest tests/gpu -n 8 --report gpu.json

runs the tests in 8 processes, which compile kernels side by side (pytest-xdist; one does, too);
then it measures speed, which no test judges, and leaves both in the report.  Without a GPU
everything is collected and skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linscan.testing.engines import Engine

HERE = Path(__file__).parent
BACKENDS = ("triton", "torch")

collect_ignore = ["speed.py"]


def no_gpu() -> str | None:
    """Why nothing here can run, or None."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "torch finds no GPU"


@pytest.fixture(scope="session", params=BACKENDS)
def engine(request: pytest.FixtureRequest) -> Engine:
    """A backend with torch tensors on the GPU.  A backend that cannot run there is a failure."""
    return Engine(request.param, "torch", "cuda")


@pytest.fixture
def most_of_the_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One test at a time, whatever process it runs in."""
    import fcntl

    import torch

    with (tmp_path_factory.getbasetemp().parent / "memory").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--report", type=Path, metavar="FILE", help="measure speed too, and write all into FILE"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = no_gpu()
    if reason is not None:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """After the tests, in the process that gathers their outcomes: speed, and the report."""
    file = config.getoption("report", default=None)
    if file is None or no_gpu() is not None:
        return
    outcomes = {
        outcome: sorted(report.nodeid for report in terminalreporter.stats.get(outcome, ()))
        for outcome in ("passed", "failed", "error", "skipped")
    }
    counts = {outcome: len(names) for outcome, names in outcomes.items()}
    tests = {"counts": counts} | {name: outcomes[name] for name in ("failed", "error", "skipped")}
    terminalreporter.section("speed")
    measured = subprocess.run([sys.executable, HERE / "speed.py", "--report", file])
    report = json.loads(file.read_text()) if measured.returncode == 0 else {}
    file.write_text(json.dumps(report | {"tests": tests}, indent=1) + "\n")
