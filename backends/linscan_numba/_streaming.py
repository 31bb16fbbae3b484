"""Whether results are written past the caches.

A store that goes past them does not read the line that it overwrites, but waits for memory.  That
pays where the caches could not keep the results anyway; and never in fresh memory, whose pages the
system has just put into the caches when it cleared them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

UNKNOWN = 1 << 25
"""What a cache is taken to hold where the system does not say."""


def pays(size: int) -> bool:
    """Whether to write results of so many bytes in all, into memory in use, past the caches."""
    return size > largest_cache()


@cache
def largest_cache(folder: str = "/sys/devices/system/cpu/cpu0/cache") -> int:
    """The bytes of the first processor's largest cache."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    try:
        sizes = [path.read_text().strip() for path in Path(folder).glob("index*/size")]
        return max((int(size[:-1]) * units[size[-1]] for size in sizes), default=UNKNOWN)
    except (OSError, ValueError, KeyError, IndexError):
        return UNKNOWN
