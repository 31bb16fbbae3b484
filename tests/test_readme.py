"""Every Python example of the README runs by itself, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[Path, int, str]]:
    """Page, line of the first statement, and text of every block."""
    return [
        (page, text[: block.start()].count("\n") + 2, block[1])
        for page in [ROOT / "README.md"]
        for text in [page.read_text()]
        for block in BLOCK.finditer(text)
    ]


@pytest.mark.parametrize(
    ("page", "line", "code"),
    examples(),
    ids=[f"{page.name}:{line}" for page, line, _ in examples()],
)
def test_example(page: Path, line: int, code: str):
    if re.search(r"^\s*(import|from) torch\b", code, re.MULTILINE):
        pytest.importorskip("torch")
    exec(compile("\n" * (line - 1) + code, str(page), "exec"), {"__name__": "__main__"})
