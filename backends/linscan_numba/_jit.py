"""numba's compiler as this package uses it: no interpreter lock, kept on disk where possible."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def _sources() -> str:
    """A digest of this package's source files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_SOURCES = _sources()


def name_for_cache(function: Any, signature: Any) -> None:
    """Give a kernel a name of its own, and so a file of its own in numba's cache.

    numba finds cached code by the size and time of one source file, so it would go on using a
    kernel after a helper in another file has changed: the name holds a digest of the package.
    And numba keeps the kernels made from one function in files that are numbered by an index, where
    two processes that compile different ones at once may each end up with the other's code: the
    name holds a digest of what the kernel was made with.
    """
    cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    made_with = f"{_SOURCES}{signature}".encode() + pickle.dumps(cells)
    function.__qualname__ += f"-{hashlib.sha256(made_with).hexdigest()[:16]}"


def kept_on_disk(compiled: Callable[[bool], Any]) -> Any:
    """``compiled(cache)`` with a cache on disk, or without where no directory is writable."""
    try:
        return compiled(True)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        return compiled(False)


def jit(signature: Any = None, *, inline: bool = False, **options: Any) -> Callable[[Any], Any]:
    """``numba.njit`` without the interpreter lock and with a cache on disk.

    Only with a ``signature`` can the function be called from Python, and it is compiled at once.
    ``inline``: LLVM always inlines it, so that what is constant at a call folds away.

    A kernel may close over plain data (see ``_simd.Token``) but not over other kernels: numba
    gives those a new identity in every process, and would never find the cached code.
    """
    njit: Any = numba.njit
    options = {"nogil": True, "error_model": "numpy", **options}
    if signature is None:
        inner = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": inline}
        bare: Callable[[Any], Any] = njit(**options, **inner)
        return bare

    def compiled(function: Any) -> Any:
        name_for_cache(function, signature)
        return kept_on_disk(lambda cache: njit(signature, cache=cache, **options)(function))

    return compiled
