"""The wheel holds what it should, entry points load, and ``import linscan`` stays light."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from linscan._protocol import Backend

ROOT = Path(__file__).parents[1]
BACKENDS = ["cupy", "numba", "numpy", "torch", "triton"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in a freshly built wheel."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as file:
        return set(file.namelist())


@pytest.mark.parametrize("package", ["linscan", *(f"linscan_{name}" for name in BACKENDS)])
def test_the_wheel_holds_every_package_typed(wheel: set[str], package: str):
    assert {f"{package}/__init__.py", f"{package}/py.typed"} <= wheel


def test_the_wheel_holds_every_module_of_the_checkout(wheel: set[str]):
    modules = {
        path.relative_to(base).as_posix()
        for base, folder in [(ROOT, "linscan"), (ROOT / "backends", ".")]
        for path in (base / folder).rglob("*.py")
    }
    assert modules <= wheel


@pytest.mark.parametrize("file", ["linscan/cli/rollout.npz", "linscan_cupy/linscan.cu"])
def test_the_wheel_holds_data(wheel: set[str], file: str):
    assert file in wheel


def test_the_wheel_holds_nothing_else(wheel: set[str]):
    top = {name.split("/")[0] for name in wheel}
    packages = {"linscan", *(f"linscan_{name}" for name in BACKENDS)}
    assert {name for name in top if not name.endswith(".dist-info")} == packages
    assert {Path(name).suffix for name in wheel if ".dist-info/" not in name} <= {
        ".py",
        ".typed",
        ".npz",
        ".cu",
    }


@pytest.mark.parametrize("name", BACKENDS)
def test_entry_points_load(name: str):
    (entry,) = entry_points(group="linscan.backends", name=name)
    backend = entry.load()
    assert isinstance(backend, Backend)
    assert backend.name == name


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running ``code``."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-W", "error", "-c", script]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(result.stdout.splitlines()[-1].split())


HEAVY = {"torch", "triton", "cupy", "numba", "llvmlite", "scipy", "rich"}


def test_import_is_light():
    assert not modules_after("import linscan") & {*HEAVY, "importlib.metadata", "argparse"}


def test_listing_the_backends_is_light():
    assert not modules_after("import linscan; linscan.backends()") & HEAVY
