"""The device: where arrays lie, how kernels are compiled, and what stream they go to."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from linscan import _arrays
from linscan._arrays import is_torch
from linscan._protocol import BackendUnavailable

SOURCE = Path(__file__).with_name("linscan.cu")
THREADS = 256
"""Per block, as in the source."""
OPTIONS = ("--std=c++17",)

Words = NDArray[np.int64]
"""The parameters of a kernel: 64-bit integers, addresses and floats."""


class Cuda:
    """CUDA through CuPy: kernels are compiled when they are first launched."""

    def __init__(self) -> None:
        self.launches: dict[Any, Any] = {}
        """What has been launched before: see :func:`linscan_cupy._launch.run`."""
        self._kernels: dict[tuple[str, ...], list[Any]] = {}
        self._captured: list[Any] = []

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

    def kernels(self, names: tuple[str, ...]) -> list[Any]:
        """The kernels of these names (C++ expressions), compiled together; for any device."""
        found = self._kernels.get(names)
        if found is None:
            module = self.raw_module(
                code=SOURCE.read_text(), options=OPTIONS, name_expressions=names
            )
            found = self._kernels[names] = [module.get_function(name) for name in names]
        return found

    def current(self, x: Any) -> AbstractContextManager[Any]:
        """Makes the device of an array current, with the stream that its library would use."""
        import cupy

        index = x.device.index if is_torch(x) else x.device.id
        device = cupy.cuda.Device(index) if cupy.cuda.runtime.getDevice() != index else None
        if not is_torch(x):
            return device or nullcontext()
        address = sys.modules["torch"].cuda.current_stream(index).cuda_stream
        stream = cupy.cuda.ExternalStream(address, index) if address else cupy.cuda.Stream.null
        if device is None:
            return cast("AbstractContextManager[Any]", stream)
        stack = ExitStack()
        stack.enter_context(device)
        stack.enter_context(stream)
        return stack

    def where(self, x: Any) -> tuple[int, Any]:
        """The address of an array, and its strides in its library's unit."""
        return (x.data_ptr(), x.stride()) if is_torch(x) else (x.data.ptr, x.strides)

    def room(self, size: int, model: Any) -> tuple[Any, int]:
        """So many bytes where ``model`` lies, and their address.

        torch keeps what is used in a graph while it is captured; of CuPy, we do.
        """
        memory = _arrays.empty((-(-size // 8),), model, "float64")
        cupy = sys.modules["cupy"]
        if isinstance(memory, cupy.ndarray) and cupy.cuda.get_current_stream().is_capturing():
            self._captured.append(memory)
        return memory, self.where(memory)[0]


CUDA = Cuda()
