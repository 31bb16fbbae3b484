"""The scripts behind the documented figures run; what they measure is no test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "docs" / "benchmarks"


@pytest.mark.parametrize("name", ["cpu_budgets", "cpu_peers"])
def test_it_runs_and_leaves_a_table_and_figures(name: str, tmp_path: Path):
    for package in ("scipy", "numba"):
        pytest.importorskip(package)
    command = [sys.executable, SCRIPTS / f"{name}.py", "--quick", "--dtype", "float32"]
    result = subprocess.run(
        [*command, "--save", tmp_path], capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    table = (tmp_path / f"{name}.md").read_text()
    assert table in result.stdout
    assert json.loads((tmp_path / f"{name}.json").read_text()).keys() == {"machine", "results"}
