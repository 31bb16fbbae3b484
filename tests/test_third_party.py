"""A stranger's backend: installed under the entry point, used by name, tested by our laws."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TOY = Path(__file__).parent / "toy_backend"
SOME_LAWS = (
    "(every_axis or crosses_a_reset or packed or halves or in_place or i1 or i6) and not gradients"
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the toy is installed."""
    project = tomllib.loads((TOY / "pyproject.toml").read_text())["project"]
    info = tmp_path / f"linscan_toy-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    ((group, points),) = project["entry-points"].items()
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    path = [str(tmp_path), str(TOY), os.environ.get("PYTHONPATH", "")]
    python_path = os.pathsep.join(filter(None, path))
    return {**os.environ, "PYTHONPATH": python_path, "PYTEST_ADDOPTS": ""}


def run(environment: dict[str, str], folder: Path, *command: str) -> tuple[int, str]:
    """Python on these arguments, in an empty folder: exit code and output."""
    empty = folder / "empty"
    empty.mkdir()
    done = subprocess.run(
        [sys.executable, *command], cwd=empty, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_it_is_found_and_called_by_name(environment: dict[str, str], tmp_path: Path) -> None:
    script = (
        "import linscan, numpy as np\n"
        "assert linscan.backends()['toy'] is None\n"
        "assert linscan.explain(0.5, np.ones(3)).backend != 'toy'\n"
        "print(linscan.scan(0.5, np.ones(3), backend='toy'))\n"
        "print(linscan.explain(0.5, np.ones(3), backend='toy').kernel)\n"
    )
    code, output = run(environment, tmp_path, "-c", script)
    assert (code, output) == (0, "[1.   1.5  1.75]\nloop\n")


def laws(
    backends: str, environment: dict[str, str], folder: Path, *options: str
) -> tuple[int, str]:
    """The shipped laws, for those backends."""
    environment = {**environment, "LINSCAN_TEST_BACKENDS": backends}
    command = ("-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "--pyargs")
    return run(environment, folder, *command, "linscan.testing", *options)


def test_it_keeps_our_laws(environment: dict[str, str], tmp_path: Path) -> None:
    code, output = laws("toy", environment, tmp_path, "-q", "-k", SOME_LAWS)
    assert code == 0, output
    assert " passed" in output
    assert "skipped" not in output


def test_a_named_backend_must_run(environment: dict[str, str], tmp_path: Path) -> None:
    code, output = laws("nonesuch", environment, tmp_path, "-q", "-x", "-k", "i1")
    assert code == 1, output
    assert "backend 'nonesuch' cannot run here: it is not installed" in output


def test_a_broken_law_is_found(environment: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "linscan_toy"
    broken.mkdir()
    source = (TOY / "linscan_toy" / "__init__.py").read_text()
    assert source.count("cut[:, t] | unread") == 1
    (broken / "__init__.py").write_text(source.replace("cut[:, t] | unread", "unread"))
    code, output = laws("toy", environment, tmp_path, "-q", "-k", "crosses_a_reset")
    assert code == 1, output
    assert "test_nothing_crosses_a_reset" in output
