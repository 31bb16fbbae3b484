"""The recorded rollout: what it holds, how it is read and made longer.

512 steps of 32 Gymnasium environments (CartPole, Acrobot, MountainCar and Pendulum, eight copies
of each) with a plain fitted critic; ``docs/record_rollout.py`` made it and says how.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Rollout(NamedTuple):
    """Transitions of N environments, float32 and bool ``[T, N]``."""

    rewards: NDArray[np.float32]
    values: NDArray[np.float32]
    last_values: NDArray[np.float32]
    """``[N]``: of the observations after the last step, which may begin a new episode."""
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    truncation_values: NDArray[np.float32]
    """Of the final observations, where an episode was truncated; NaN elsewhere."""


def read() -> dict[str, NDArray[Any]]:
    """Everything in the file, by name."""
    with files("linscan.cli").joinpath("rollout.npz").open("rb") as file, np.load(file) as data:
        return dict(data)


def load() -> Rollout:
    """The rollout as it was recorded."""
    data = read()
    return Rollout._make(data[name] for name in Rollout._fields)


def repeat(rollout: Rollout, times: int, columns: int) -> Rollout:
    """The rollout ``times`` times in a row, ``columns`` times side by side.

    Where one copy ends and the next begins the trace is cut as by a time limit, with the last
    values for the values of the final observations: every copy's returns are those of the rollout.
    """
    seam = ~(rollout.terminated[-1] | rollout.truncated[-1])
    truncated, truncation_values = rollout.truncated.copy(), rollout.truncation_values.copy()
    truncated[-1] |= seam
    truncation_values[-1, seam] = rollout.last_values[seam]
    longer = rollout._replace(truncated=truncated, truncation_values=truncation_values)
    return Rollout._make(np.tile(x, columns if x.ndim == 1 else (times, columns)) for x in longer)
