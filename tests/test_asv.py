"""The asv suites name what exists, and run; what they measure is no test's business."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import linscan

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "asv_benchmarks"
CONFIGURATION = json.loads((FOLDER / "asv.conf.json").read_text())
MODULES = sorted(path.stem for path in FOLDER.glob("benchmarks/[a-z]*.py"))
SHARED = {"arrays", "common"}
BENCHMARK = re.compile("(time|timeraw|track|peakmem)_")

Load = Callable[[str], Any]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports a module of the suites, with tiny arrays."""
    monkeypatch.setenv("LINSCAN_ASV_SMALL", "1")
    monkeypatch.syspath_prepend(FOLDER)
    yield lambda name: importlib.import_module(f"benchmarks.{name}")
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def benchmarks(module: Any) -> list[tuple[type, str]]:
    """What asv would find: classes of the module that are not abstract, and their functions."""
    suites = [
        suite
        for name, suite in vars(module).items()
        if isinstance(suite, type) and suite.__module__ == module.__name__ and name[0] != "_"
    ]
    return [
        (suite, function)
        for suite in suites
        if not getattr(suite, "__abstractmethods__", None)
        for function in dir(suite)
        if BENCHMARK.match(function)
    ]


def outcome(suite: type, function: str, parameters: tuple[str, ...]) -> Any:
    """What asv would write down, or why it is n/a.  ``setup`` comes before every call."""
    instance = suite()
    try:
        for _ in range(2):
            getattr(instance, "setup", tuple)(*parameters)
    except NotImplementedError as reason:
        return reason
    return getattr(instance, function)(*parameters)


def no_cuda() -> bool:
    """Whether torch, which is installed, sees no GPU."""
    import torch

    return not torch.cuda.is_available()


def test_targets_are_backends_on_devices(load: Load):
    common = load("common")
    assert list(common.ARRAYS) == common.TARGETS
    backends = {target.partition(":")[0] for target in common.TARGETS}
    shipped = {path.name.removeprefix("linscan_") for path in ROOT.glob("backends/linscan_*")}
    assert shipped <= backends <= shipped | {"triton", "cupy"}


@pytest.mark.parametrize("name", sorted({*MODULES} - SHARED))
def test_every_benchmark_runs_where_its_backend_does(load: Load, name: str):
    found = benchmarks(load(name))
    assert found
    reasons = linscan.backends()
    for suite, function in found:
        for parameters in product(*getattr(suite, "params", [])):
            here = f"{suite.__name__}.{function}{parameters}"
            result = outcome(suite, function, parameters)
            backend, _, device = (*parameters, "numpy:cpu")[0].partition(":")
            if isinstance(result, NotImplementedError):
                missing = reasons.get(backend, "not installed")
                if name == "gradients" or backend in ("torch", "triton"):
                    missing = missing or reasons["torch"] or (device == "cuda" and no_cuda())
                assert str(result), here
                assert missing, f"{here}: {result}"
            elif function == "track_slowdown":
                assert min(result["samples"]) > 0, here


def test_what_an_older_linscan_lacks_is_not_measured_and_a_mistake_is_no_such_lack(load: Load):
    common = load("common")

    class Older(common.OnTargets):
        def prepare(self, backend: str, arrays: Any, case: str) -> Any:
            return linscan.no_such_function  # type: ignore[attr-defined]

    class Mistaken(common.OnTargets):
        def prepare(self, backend: str, arrays: Any, case: str) -> Any:
            return arrays.no_such_method

    with pytest.raises(NotImplementedError, match=r"an older linscan: .*no_such_function"):
        Older().setup("numpy:cpu", "")
    with pytest.raises(AttributeError, match="no_such_method"):
        Mistaken().setup("numpy:cpu", "")


@pytest.mark.parametrize(("host", "tries"), [(3, [4]), (10, [4, 16]), (1000, [4, 16, 64])])
def test_a_device_still_flushes_when_the_call_is_queued(load: Load, host: int, tries: list[int]):
    """The host queues a call no sooner than the device has flushed ``host`` times."""

    class Device(load("arrays").OnDevice):
        array = copy = wait = peak = None
        flushed = 0

        def event(self) -> Mock:
            self.flushed = 0
            return Mock()

        def flush(self) -> None:
            self.flushed += 1

        def passed(self, event: Mock) -> bool:
            return self.flushed <= host

        def milliseconds(self, start: Mock, stop: Mock) -> float:
            return 7.0

    device, found = Device(), []
    assert device.seconds(lambda: found.append(device.flushed)) == 0.007
    assert found == tries


def test_packages_of_the_environment_are_those_of_ci():
    pins = dict(
        line.strip().split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    required = CONFIGURATION["matrix"]["req"]
    assert required == {name: [pins[name.removeprefix("pip+")]] for name in required}


def test_asv_finds_what_this_test_finds(load: Load, tmp_path: Path):
    pytest.importorskip(
        "asv_runner", reason="asv is not installed (try: pip install -e '.[bench]')"
    )
    script = f"""
import sys
from asv_runner.discovery import list_benchmarks
list_benchmarks({str(FOLDER / "benchmarks")!r}, sys.stdout)"""
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    ours = {
        f"{name}.{suite.__name__}.{function}"
        for name in MODULES
        for suite, function in benchmarks(load(name))
    }
    assert {benchmark["name"] for benchmark in json.loads(result.stdout)} == ours
