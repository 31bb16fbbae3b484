"""What is here: the cores, and the packages with their versions."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""How many this process may use."""
PACKAGES = ("linscan", "numpy", "array-api-compat", "numba", "torch", "triton", "cupy")


def installed(package: str) -> str | None:
    """Its version, or None.  CuPy's distributions have CUDA's version in their names."""
    for name in (package, *_distributions().get(package, ())):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


_distributions = cache(packages_distributions)
