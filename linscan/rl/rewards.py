"""Where the reward of a whole sequence goes, and how far its advantages look."""

from __future__ import annotations

from typing import Any

import numpy as np

from linscan import _arrays
from linscan._check import (
    binary,
    check_axis,
    check_broadcast,
    check_same_place,
    looks_at_data,
)
from linscan._problem import ACCUMULATE


def place_terminal_reward(mask: Any, score: Any, *, axis: int = -1) -> Any:
    r"""The score of each sequence as the reward of its last valid step.

    ::

        rₜ = score where t is the last step with maskₜ, else 0

    A sequence without a valid step has nowhere to put its score, and only zeros.

    Args:
        mask: True at valid steps: bool, or 0 and 1, of any rank ≥ 1; may have holes.
        score: One for each sequence: a number, or an array that broadcasts to ``mask`` without
            ``axis``.
        axis: The time axis of ``mask``.

    Returns:
        Rewards shaped like ``mask``, of the dtype of ``score``; integers become the default float.

    Raises:
        TypeError: Arrays of several libraries or devices, or a score that is not real.
        ValueError: Shapes that do not fit, or a mask that holds anything but 0 and 1.

    Source:
        Ouyang et al., "Training language models to follow instructions with human feedback"
        (2022), arXiv 2203.02155, section 3.5: the reward model scores the whole response.

    >>> mask = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]])
    >>> linscan.place_terminal_reward(mask, np.array([2.0, -1.0]))
    array([[ 0.,  0.,  0.,  2.,  0.],
           [ 0.,  0.,  0.,  0., -1.]])
    """
    mask = _arrays.as_array("mask", mask)
    if mask.ndim == 0:
        raise ValueError("mask has rank 0: it needs an axis of time")
    axis = check_axis(axis, mask.ndim, "mask")
    mask = binary("mask", mask, looks_at_data("auto", mask))
    if isinstance(score, np.generic):
        score = score.item()
    if _arrays.is_scalar(score):
        score = _arrays.filled((), score, mask, _arrays.promote(score=score, mask=mask))
    score = _arrays.as_array("score", score)
    check_same_place(mask=mask, score=score)
    dtype = _arrays.promote(score=score)
    if "complex" in dtype:
        raise TypeError(f"score must be real, not {score.dtype}")
    rest = (*mask.shape[:axis], *mask.shape[axis + 1 :])
    check_broadcast("score", score, rest, "mask without its time axis")
    xp = _arrays.namespace(mask)
    score = xp.expand_dims(xp.broadcast_to(_arrays.native(score, dtype), rest), axis=axis)
    steps = xp.cumulative_sum(xp.astype(mask, xp.int64), axis=axis)
    total = xp.sum(xp.astype(mask, xp.int64), axis=axis, keepdims=True)
    return xp.where(mask & (steps == total), score, xp.zeros_like(score))


def length_adaptive_lam(lengths: Any, *, alpha: float = 0.05) -> Any:
    r"""VAPO's length-adaptive λ, which looks as far as a fixed share of the sequence.

    ::

        λ = 1 - 1 / max(α l, 1)

    so that the sum of the weights 1 + λ + λ² + … is α l; below a length of 1 / α, where that sum
    would be less than the first weight, λ is 0 instead of a negative number.  Pass the result as
    ``lam`` (with the time axis: ``[:, None]``), and ``lam_returns=1.0``, to :func:`linscan.gae`.

    Args:
        lengths: The number of valid steps l of each sequence: a number, or an array of any shape.
        alpha: α, a finite number above 0.

    Returns:
        λ, between 0 and 1: a float for a number; else an array shaped like ``lengths``, of at least
        float32; integers become the default float.

    Raises:
        TypeError: ``lengths`` that are not real numbers.
        ValueError: ``alpha`` out of range.

    Source:
        Yue et al., "VAPO" (2025), arXiv 2504.05118, section 4.2; the clamp is ours.

    >>> linscan.length_adaptive_lam(np.array([10, 20, 40, 400]))
    array([0.  , 0.  , 0.5 , 0.95])
    """
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < np.inf:
        raise ValueError(f"alpha must be a finite number above 0, not {alpha!r}")
    if isinstance(lengths, np.generic):
        lengths = lengths.item()
    if _arrays.is_scalar(lengths) and not isinstance(lengths, (bool, complex)):
        return 1.0 - 1.0 / max(alpha * lengths, 1.0)
    lengths = _arrays.as_array("lengths", lengths)
    dtype = _arrays.promote(lengths=lengths)
    if "complex" in dtype:
        raise TypeError(f"lengths must be real numbers, not {lengths.dtype}")
    xp = _arrays.namespace(lengths)
    return 1.0 - 1.0 / xp.clip(alpha * _arrays.native(lengths, ACCUMULATE[dtype]), min=1.0)
