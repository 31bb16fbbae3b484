"""The command line: ``linscan info``, ``linscan demo`` and ``linscan bench``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec

import linscan
from linscan.cli.bench import _options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the result is the exit code."""
    parser = argparse.ArgumentParser(prog="linscan", description="Linear recurrences, fast.")
    parser.add_argument("--version", action="version", version=f"linscan {linscan.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("info", help="which backends can run here, and what is missing for others")
    commands.add_parser("demo", help="compute returns of a recorded rollout, check and time them")
    bench_parser = commands.add_parser(
        "bench",
        help="is it worth it for a job like yours: linscan beside a loop, a matrix and chunks",
        description="linscan beside a loop over time, a matrix and chunks, on a job like yours.",
    )
    _options.add_arguments(bench_parser)
    options = parser.parse_args(arguments)
    if find_spec("rich") is None:
        parser.error("this needs the package rich: run `pip install 'linscan[cli]'`")
    if options.command == "info":
        from linscan.cli import _info

        return _info.run()
    if options.command == "bench":
        from linscan.cli.bench import _run

        return _run.run(options, bench_parser)
    from linscan.cli import _demo

    return _demo.run()
