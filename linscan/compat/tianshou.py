"""For tianshou.

::

    from tianshou.algorithm import algorithm_base
    algorithm_base._gae = linscan.compat.tianshou.gae
"""

from __future__ import annotations

from typing import Any

import numpy as np

import linscan


def gae(v_s: Any, v_s_: Any, rew: Any, end_flag: Any, gamma: float, gae_lambda: float) -> Any:
    """GAE advantages of episodes one after the other, ``[steps]``, in float64.

    ``v_s_`` is the value of the next state, which the caller has set to 0 where that is terminal;
    ``end_flag`` says that a step is the last of its episode, terminated, truncated or not finished.
    """
    return linscan.gae(
        np.asarray(rew, np.float64),
        np.asarray(v_s, np.float64),
        gamma=gamma,
        lam=gae_lambda,
        next_values=np.asarray(v_s_, np.float64),
        truncated=np.asarray(end_flag),
    ).advantages
