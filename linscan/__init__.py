"""linscan: first-order linear recurrences at the speed of memory.

``scan`` solves ``x[t] = a[t] * x[t-1] + b[t]`` on NumPy arrays, torch tensors and CuPy
arrays; the estimators, from ``gae`` to ``vtrace``, are thin wrappers over it.
"""

from linscan import flags as flags
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
from linscan.rl.n_step import n_step_returns as n_step_returns
from linscan.rl.packing import episodic_sum as episodic_sum
from linscan.rl.packing import position_ids as position_ids
from linscan.rl.q import q_lambda as q_lambda
from linscan.rl.q import retrace as retrace
from linscan.rl.returns import discounted_returns as discounted_returns
from linscan.rl.returns import td_lambda as td_lambda
from linscan.rl.rewards import length_adaptive_lam as length_adaptive_lam
from linscan.rl.rewards import place_terminal_reward as place_terminal_reward
from linscan.rl.traces import eligibility_traces as eligibility_traces
from linscan.rl.turns import turn_gae as turn_gae
from linscan.rl.upgo import UPGO as UPGO
from linscan.rl.upgo import upgo as upgo
from linscan.rl.vtrace import VTrace as VTrace
from linscan.rl.vtrace import vtrace as vtrace

__all__ = [
    "GAE",
    "UPGO",
    "Backend",
    "BackendUnavailable",
    "BackendUnsupported",
    "Explanation",
    "VTrace",
    "backends",
    "discounted_returns",
    "eligibility_traces",
    "episodic_sum",
    "explain",
    "flags",
    "gae",
    "length_adaptive_lam",
    "n_step_returns",
    "place_terminal_reward",
    "position_ids",
    "profile",
    "q_lambda",
    "retrace",
    "scan",
    "td_lambda",
    "turn_gae",
    "upgo",
    "use_backend",
    "vtrace",
    "whiten",
]
__version__ = "0.1.0"
