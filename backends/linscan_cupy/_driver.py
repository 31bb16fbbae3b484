"""Whether there is a driver that CuPy can use, found out without CuPy and without starting CUDA.

A process that has started CUDA cannot fork any more, so to list the backends must not start it.
"""

from __future__ import annotations

import ctypes
import os
from importlib.metadata import PackageNotFoundError, distribution

DRIVERS = ("libcuda.so.1", "nvcuda.dll")
MANAGERS = ("libnvidia-ml.so.1", "nvml.dll")
"""The second tells how many devices there are; some machines have none of it."""


def trouble() -> str | None:
    """None if there is a driver, a device and a CuPy that fits; else what is missing."""
    driver = _library(DRIVERS)
    if driver is None:
        return (
            f"there is no NVIDIA driver ({DRIVERS[os.name == 'nt']} does not load): "
            "it takes a machine with an NVIDIA GPU and its driver"
        )
    has = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(has)) == 0:
        for major in (12, 13):
            if _installed(f"cupy-cuda{major}x") and has.value < 1000 * major:
                return (
                    f"cupy-cuda{major}x needs a driver for CUDA {major}, and this one is for CUDA "
                    f"{has.value // 1000}.{has.value % 1000 // 10}: update the driver, or install "
                    "the CuPy for it"
                )
    if _devices() == 0:
        return "the NVIDIA driver finds no device: look at nvidia-smi"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every device: unset it"
    return None


def _library(names: tuple[str, ...]) -> ctypes.CDLL | None:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _devices() -> int | None:
    """How many there are; None if nobody says."""
    manager = _library(MANAGERS)
    count = ctypes.c_uint()
    if manager is None or manager.nvmlInit_v2():
        return None
    try:
        failed = manager.nvmlDeviceGetCount_v2(ctypes.byref(count))
    finally:
        manager.nvmlShutdown()
    return None if failed else count.value
