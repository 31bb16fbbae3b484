"""The command line: ``linscan info`` and ``linscan demo``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec

import linscan


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the result is the exit code."""
    parser = argparse.ArgumentParser(prog="linscan", description="Linear recurrences, fast.")
    parser.add_argument("--version", action="version", version=f"linscan {linscan.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("info", help="which backends can run here, and what is missing for others")
    commands.add_parser("demo", help="compute returns of a recorded rollout, check and time them")
    command = parser.parse_args(arguments).command
    if find_spec("rich") is None:
        parser.error("this needs the package rich: run `pip install 'linscan[cli]'`")
    if command == "info":
        from linscan.cli import _info

        return _info.run()
    from linscan.cli import _demo

    return _demo.run()
