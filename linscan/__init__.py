"""linscan: first-order linear recurrences at the speed of memory.

``scan`` solves ``x[t] = a[t] * x[t-1] + b[t]`` on NumPy arrays and torch tensors; ``gae``,
``discounted_returns`` and ``td_lambda`` are thin wrappers over it.
"""

from linscan._dispatch import backends as backends
from linscan._dispatch import use_backend as use_backend
from linscan._explain import Explanation as Explanation
from linscan._explain import explain as explain
from linscan._profile import profile as profile
from linscan._protocol import Backend as Backend
from linscan._protocol import BackendUnavailable as BackendUnavailable
from linscan._protocol import BackendUnsupported as BackendUnsupported
from linscan._scan import scan as scan
from linscan.rl.gae import GAE as GAE
from linscan.rl.gae import gae as gae
from linscan.rl.masks import whiten as whiten
from linscan.rl.returns import discounted_returns as discounted_returns
from linscan.rl.returns import td_lambda as td_lambda

__all__ = [
    "GAE",
    "Backend",
    "BackendUnavailable",
    "BackendUnsupported",
    "Explanation",
    "backends",
    "discounted_returns",
    "explain",
    "gae",
    "profile",
    "scan",
    "td_lambda",
    "use_backend",
    "whiten",
]
__version__ = "0.1.0"
