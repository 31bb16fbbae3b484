"""The bytes that the Triton kernels move where one pass is enough: the least there can be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "kernels" / "traffic.md"


def test_every_byte_moves_once_and_the_documentation_says_so(tmp_path: Path):
    command = [sys.executable, HERE / "traffic.py", "--save", tmp_path]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / TABLE.name).read_text() == TABLE.read_text(), "run the command it names anew"
