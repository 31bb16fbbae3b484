"""The examples of every page in docs/ run, one after the other, and its measured tables are new."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^(?:import|from) (torch|gymnasium)\b", re.MULTILINE)
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT / "docs")) for p in PAGES])
def test_examples(page: Path):
    text, names = page.read_text(), {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 1
        for name in IMPORT.findall(block[1]):
            if find_spec(name) is None:
                pytest.skip(f"from line {line} on, the examples need {name}")
        exec(compile("\n" * line + block[1], str(page), "exec"), names)


def test_tables_are_those_of_the_figures():
    command = [sys.executable, ROOT / "docs" / "benchmarks" / "tables.py", "--check"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stderr}run {command[1]}"
