"""The Triton kernels as compiled for GPUs: no spills, and full width wherever tiles are aligned."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
triton = pytest.importorskip("triton")

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "kernels" / "static.md"


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own, where kernels are compiled whatever this one does."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, HERE / script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The figures of the quick part of the table."""
    figures = tmp_path_factory.mktemp("static") / "figures.json"
    result = run("static.py", "--quick", "--json", figures)
    assert figures.exists(), result.stderr
    return json.loads(figures.read_text())


def test_nothing_spills_and_accesses_are_wide(compiled: Any):
    assert compiled["kernels"]
    assert compiled["faults"] == []


def test_the_table_in_the_documentation_is_what_is_compiled(compiled: Any):
    table = TABLE.read_text()
    written = re.search(r"by Triton (\S+) ", table)
    assert written is not None
    if written[1] != triton.__version__:
        pytest.skip(f"the table is of Triton {written[1]}, this is {triton.__version__}")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    heading = rows[0]
    cells = {tuple(row[:4]): dict(zip(heading[4:], row[4:], strict=True)) for row in rows[1:]}
    for one in compiled["kernels"]:
        key = one["kernel"], one["dtype"], one["shape"], one["call"]
        found = {target: cells[key][target] for target in one["cells"]}
        assert found == one["cells"], f"{key}: generate the table anew"


def test_faults_are_found():
    result = run("planted.py")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    nvidia = ("sm_80", "sm_90", "sm_100")
    assert set().union(*found["none"].values()) == set()
    for name in ("ragged", "strided"):
        for faults in found[name].values():
            assert faults == ["loads 4 bytes wide", "stores 4 bytes wide"]
    for target in nvidia:
        assert any("spills" in fault for fault in found["spills"][target])
