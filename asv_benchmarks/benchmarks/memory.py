"""The most memory that a call takes."""

from __future__ import annotations

from typing import ClassVar

from . import gae, scan
from .common import TARGETS

CALLS = {
    "gae": (gae.GAE, "plain"),
    "gae, mask with holes": (gae.GAE, "mask with holes"),
    "scan": (scan.Scan, "full a"),
}


class _Memory:
    param_names = ("target", "call")

    def setup(self, target: str, call: str) -> None:
        """Make the call once: what is compiled, cached or imported is there."""
        suite, case = CALLS[call]
        self.suite = suite()
        self.suite.setup(target, case)


class HostMemory(_Memory):
    """Of the whole process: Python, the libraries and the operands too."""

    params: ClassVar = [[target for target in TARGETS if target.endswith(":cpu")], list(CALLS)]

    def peakmem_call(self, target: str, call: str) -> None:
        """One call."""
        self.suite.work.fresh()


class DeviceMemory(_Memory):
    """Of a GPU, beyond the operands and with the results, as its library's allocator counts."""

    params: ClassVar = [[target for target in TARGETS if target.endswith(":cuda")], list(CALLS)]
    unit = "bytes"

    def track_peak(self, target: str, call: str) -> int:
        """One call."""
        return int(self.suite.arrays.peak(self.suite.work.fresh))
