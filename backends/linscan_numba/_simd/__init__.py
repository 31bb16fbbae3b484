"""A small SIMD layer: numba functions that are LLVM vector instructions.

A *vector* holds consecutive steps of one row, or neighbouring columns of one step: 16 elements of
the 2-byte and 4-byte types, 8 of float64.  LLVM lowers it to whatever the machine has.  A *mask* is
a vector of booleans.  Memory is named by integer addresses, which need not be aligned unless a
function says so.

What depends on the type of an element or on the direction of a scan takes a :class:`Token`, a
constant that exists for the compiler only.  An element is stored in the token's type and computed
with in its *working* type: float32 for the 16-bit types, otherwise the same.  Complex elements have
the scalar functions only.

Each function is written as a Python function that emits LLVM instructions through an
:class:`~linscan_numba._simd.emitter.Emitter` when a kernel is compiled.
"""

# ruff: noqa: F403

from linscan_numba._simd.arithmetic import *
from linscan_numba._simd.direction import *
from linscan_numba._simd.elements import *
from linscan_numba._simd.emitter import outline as outline
from linscan_numba._simd.memory import *
from linscan_numba._simd.rows_abreast import *
from linscan_numba._simd.scans import *
