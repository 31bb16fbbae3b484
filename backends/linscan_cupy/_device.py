"""The device: where arrays lie, how kernels are compiled, and what stream they go to."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linscan._arrays import is_torch
from linscan._protocol import BackendUnavailable

SOURCE = Path(__file__).with_name("linscan.cu")
THREADS = 256
"""Per block, as in the source."""
OPTIONS = ("--std=c++17",)

Words = NDArray[np.int64]
"""The parameters of a kernel: 64-bit integers, addresses and floats."""


class Cuda:
    """CUDA through CuPy: every kernel is compiled when it is first launched on a device."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, int], Any] = {}

    def raw_module(self, **options: Any) -> Any:
        """``cupy.RawModule``: compiled once, and cached on disk."""
        import cupy
        from cupy.cuda import nvrtc

        try:
            nvrtc.getVersion()
        except Exception as error:
            raise BackendUnavailable(
                "CuPy finds no CUDA compiler, NVRTC: pip install -U 'cupy-cuda13x[ctk]' (or "
                "cupy-cuda12x), which brings one, or install the CUDA toolkit"
            ) from error
        return cupy.RawModule(**options)

    def kernel(self, name: str, index: int) -> Any:
        """The kernel of that name (a C++ expression) on the device of that index."""
        key = name, index
        kernel = self._kernels.get(key)
        if kernel is None:
            module = self.raw_module(
                code=SOURCE.read_text(), options=OPTIONS, name_expressions=(name,)
            )
            kernel = self._kernels[key] = module.get_function(name)
        return kernel

    def launch(self, name: str, blocks: int, words: Words, index: int) -> None:
        """Put a kernel on the current stream."""
        parameters = words.view(f"V{words.nbytes}")  # one element: it is passed by value
        self.kernel(name, index)((blocks,), (THREADS,), (parameters,))

    def index(self, x: Any) -> int:
        """The index of an array's device."""
        return int(x.device.index if is_torch(x) else x.device.id)

    def current(self, x: Any) -> AbstractContextManager[Any]:
        """Makes the device of an array current, with the stream that its library would use."""
        import cupy

        index = self.index(x)
        elsewhere = cupy.cuda.runtime.getDevice() != index
        if not is_torch(x):
            return cupy.cuda.Device(index) if elsewhere else nullcontext()
        stack = ExitStack()
        if elsewhere:
            stack.enter_context(cupy.cuda.Device(index))
        stream = sys.modules["torch"].cuda.current_stream(index).cuda_stream
        stack.enter_context(
            cupy.cuda.ExternalStream(stream, index) if stream else cupy.cuda.Stream.null
        )
        return stack

    def where(self, x: Any) -> tuple[int, tuple[int, ...]]:
        """The address of an array, and its strides in bytes."""
        if is_torch(x):
            return x.data_ptr(), tuple(s * x.element_size() for s in x.stride())
        return x.data.ptr, x.strides


CUDA = Cuda()
