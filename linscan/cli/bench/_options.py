"""The options of ``linscan bench``, and what they ask for."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

from linscan.cli.bench._jobs import JOBS, Setting

SHAPES = [(64, time) for time in (128, 512, 2048, 8192, 32768, 131072)]
DTYPES = ("float32", "float64", "float16", "bfloat16")
PICTURE = Path("linscan-bench.png")
PRESETS = ("chunk-scan-2025",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    job = parser.add_argument_group("the job")
    job.add_argument("--run", choices=JOBS, default="gae", help="what to compute (%(default)s)")
    job.add_argument(
        "--shapes",
        nargs="+",
        type=shape,
        metavar="ROWSxSTEPS",
        help="sequences, and the length of each (64 of 128 to 131072 steps)",
    )
    job.add_argument("--dtype", choices=DTYPES, default="float32", help="(%(default)s)")
    job.add_argument("--time-first", action="store_true", help="arrays are [T, N], not [B, T]")
    job.add_argument(
        "--mask", type=share, default=1.0, metavar="SHARE", help="only this share of steps is valid"
    )
    job.add_argument(
        "--episode", type=steps, default=float("inf"), metavar="STEPS", help="mean episode length"
    )
    job.add_argument("--arrays", choices=("numpy", "torch"), help="(torch where it is installed)")
    job.add_argument("--device", default="cpu", help="a device of torch's, such as cuda (cpu)")

    how = parser.add_argument_group("the measurement")
    how.add_argument(
        "--seconds",
        type=steps,
        default=0.4,
        help="per way and shape (%(default)s); slow ways run once",
    )
    how.add_argument(
        "--limit",
        type=steps,
        default=20.0,
        metavar="SECONDS",
        help="leave out calls of more seconds (%(default)s)",
    )
    how.add_argument(
        "--preset",
        choices=PRESETS,
        help="the table that the chunk scan was published with in 2025, and the same by linscan",
    )
    how.add_argument(
        "--quick", action="store_true", help="the preset with a 16th of the rows and of the steps"
    )

    results = parser.add_argument_group("the results")
    results.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    picture = results.add_mutually_exclusive_group()
    picture.add_argument(
        "--png", type=Path, default=PICTURE, metavar="FILE", help="the picture (%(default)s)"
    )
    picture.add_argument("--no-png", action="store_true", help="no picture")


def job(
    options: argparse.Namespace, parser: argparse.ArgumentParser
) -> tuple[Setting, list[tuple[int, int]]]:
    """What to measure; a usage error if it makes no sense."""
    torch = find_spec("torch") is not None
    arrays = options.arrays or ("torch" if torch else "numpy")
    if arrays == "torch" and not torch:
        parser.error("--arrays torch needs the package torch: run `pip install 'linscan[torch]'`")
    if options.device != "cpu" and arrays == "numpy":
        parser.error(f"--device {options.device} needs torch's arrays")
    if options.dtype == "bfloat16" and arrays == "numpy":
        parser.error("--dtype bfloat16 needs torch's arrays: NumPy has no such dtype")
    if options.device != "cpu":
        import torch as library

        if not options.device.startswith("cuda") or not library.cuda.is_available():
            parser.error(f"--device {options.device}: torch sees no such device; cpu and cuda work")
    setting = Setting(
        options.run,
        options.dtype,
        arrays,
        options.device,
        options.time_first,
        options.mask,
        options.episode,
    )
    if not JOBS[setting.job].episodes and (setting.mask < 1 or setting.episode < float("inf")):
        parser.error(f"--mask and --episode are for estimators, not for --run {setting.job}")
    if options.quick and not options.preset:
        parser.error("--quick goes with --preset")
    asked = options.shapes is not None or setting != Setting(arrays=arrays, device=options.device)
    if options.preset and asked:
        parser.error("--preset says what to run: leave --run, --shapes, --dtype and the like away")
    check_files(options, parser)
    shapes = options.shapes or SHAPES
    return setting, sorted(shapes, key=lambda shape: (shape[0] * shape[1], shape))


def check_files(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """A usage error if results could not be written: better now than after the measurement."""
    matplotlib, asked = find_spec("matplotlib") is not None, options.png != PICTURE
    if options.png.suffix.lower() != ".png":
        parser.error(f"--png {options.png}: the picture is a PNG, so its name ends in .png")
    for option, file, wanted in [
        ("--json", options.json, options.json is not None),
        ("--png", options.png, asked or (matplotlib and not options.no_png)),
    ]:
        if wanted and not can_write(file):
            parser.error(f"{option} {file}: cannot be written; is its folder there?")
    if asked and not matplotlib:
        parser.error("--png needs the package matplotlib: run `pip install 'linscan[bench]'`")


def can_write(file: Path) -> bool:
    """Whether there is such a file to be overwritten, or a folder for it."""
    if file.exists():
        return not file.is_dir() and os.access(file, os.W_OK)
    return os.access(file.absolute().parent, os.W_OK)


def shape(text: str) -> tuple[int, int]:
    """``64x2048``."""
    rows, _, time = text.lower().replace("×", "x").partition("x")
    if not (rows.isdigit() and time.isdigit() and int(rows) and int(time)):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 64x2048: rows, x, steps")
    return int(rows), int(time)


def share(text: str) -> float:
    """More than 0, at most 1."""
    value = number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share: more than 0, at most 1")
    return value


def steps(text: str) -> float:
    """A positive number."""
    value = number(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def number(text: str) -> float:
    """Any number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
