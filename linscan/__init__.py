"""linscan: first-order linear recurrences at the speed of memory.

``scan`` solves ``x_t = a_t * x_{t-1} + b_t`` on NumPy arrays and torch tensors; ``gae``,
``discounted_returns`` and ``td_lambda`` are thin wrappers over it.
"""

from linscan._dispatch import backends as backends
from linscan._dispatch import use_backend as use_backend
from linscan._protocol import Backend as Backend
from linscan._protocol import BackendUnavailable as BackendUnavailable
from linscan._protocol import BackendUnsupported as BackendUnsupported
from linscan._scan import scan as scan

__version__ = "0.1.0"
