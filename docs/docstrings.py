"""From the docstrings' few signs of reStructuredText to Markdown, for the API pages.

A literal block after ``::``, a table of ``====``, a role such as ``:func:`` and a doctest at the
end: those are all that the docstrings use.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

import griffe

RULE = re.compile(r"^=+(?:  +=+)+$")
LITERAL = re.compile(r"^(?P<text>.*?)::$")
ROLE = re.compile(r":(?:func|class|meth|data|mod):`(linscan(?:\.\w+)*)`")
INTERNAL = re.compile(r":(?:func|class|meth|data|mod):`([^`]+)`")


class Markdown(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    """The docstring in Markdown."""
    lines, done = text.splitlines(), list[str]()
    while lines:
        line = lines.pop(0)
        if RULE.match(line):
            done += table(line, lines)
        elif line.startswith(">>> "):
            doctest = [line, *takewhile(str.strip, lines)]
            del lines[: len(doctest) - 1]
            done += ["```pycon", *doctest, "```"]
        elif (match := LITERAL.match(line)) and lines[:1] == [""] and lines[1].startswith("    "):
            block = list(takewhile(lambda x: not x or x.startswith("    "), lines[1:]))
            del lines[: len(block) + 1]
            done += [f"{match['text']}:"] if match["text"] else []
            done += [
                "",
                "```text",
                *(x[4:] for x in "\n".join(block).rstrip().split("\n")),
                "```",
                "",
            ]
        else:
            done.append(line)
    return INTERNAL.sub(r"`\1`", ROLE.sub(r"[`\1`][\1]", "\n".join(done)))


def table(rule: str, lines: list[str]) -> list[str]:
    """The table that begins with ``rule``; takes its lines."""
    end = [i for i, line in enumerate(lines) if RULE.match(line)][1]
    head, _, *body = lines[:end]
    del lines[: end + 1]
    starts = [m.start() for m in re.finditer("=+", rule)]
    columns = [slice(i, j) for i, j in zip(starts, [*starts[1:], None], strict=True)]

    def row(line: str) -> str:
        if line.count("``") % 2 == 0 and any(line[i - 2 : i].strip() for i in starts[1:]):
            cells = re.split(r" {2,}", line.strip())  # a cell wider than its column
        else:
            cells = [line[column].strip() for column in columns]
        return f"| {' | '.join(cells)} |"

    return ["", row(head), "|---" * len(columns) + "|", *map(row, body), ""]
