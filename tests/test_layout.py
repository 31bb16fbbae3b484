"""Every axis of arrays of every rank and stride, cut into blocks or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linscan
from linscan import _layout, reference

SHAPES = [(7,), (3, 7), (2, 3, 7), (2, 3, 1, 7), (2, 1, 3, 4, 5)]


def shuffled(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array whose axes lie in memory in any order, some of them sliced or reversed."""
    order = rng.permutation(len(shape))
    steps = [int(rng.choice([1, 2, -1])) for _ in shape]
    memory = rng.standard_normal([shape[i] * abs(steps[i]) for i in order])
    view = memory.transpose(np.argsort(order))
    return view[tuple(slice(None, None, step) for step in steps)]


def thinned(rng: np.random.Generator, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``x`` with some axes cut down to size 1, so that they broadcast."""
    return x[tuple(slice(0, 1) if rng.random() < 0.4 else slice(None) for _ in x.shape)]


@pytest.mark.parametrize("tiny", [True, False], ids=["copied", "in blocks"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_strides_give_what_contiguous_copies_give(
    shape: tuple[int, ...], tiny: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tiny:
        monkeypatch.setattr(_layout, "MANY_BLOCKS", 0)
    rng = np.random.default_rng(len(shape))
    for _ in range(40):
        axis = int(rng.integers(len(shape)))
        b = shuffled(rng, shape)
        a = thinned(rng, shuffled(rng, shape))
        reset = thinned(rng, shuffled(rng, shape)) > 1
        rest = shape[:axis] + shape[axis + 1 :]
        initial = thinned(rng, shuffled(rng, rest))
        out = shuffled(rng, shape)
        options: dict[str, Any] = {"axis": axis, "reverse": bool(rng.integers(2)), "reset": reset}
        x, final = linscan.scan(
            a, b, initial, return_final=True, out=out, backend="numpy", **options
        )
        exact, exact_final = reference.serial(a, b, initial, **options)
        assert x is out
        np.testing.assert_allclose(x, exact, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(final, exact_final, rtol=1e-12, atol=1e-12)


def test_axes_merge_only_where_every_operand_steps_through_them_with_one_stride() -> None:
    def loops(*shapes_and_strides: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[int, ...]:
        operands = [_layout.Operand(*x) for x in shapes_and_strides]
        return _layout.layout((4, 3, 5, 2), 2, operands).loops

    contiguous = ((4, 3, 5, 2), (30, 10, 2, 1))
    per_head = ((1, 3, 1, 1), (0, 1, 0, 0))
    assert loops(contiguous) == ()
    assert loops(contiguous, per_head) == (0,)
    assert loops(contiguous, ((4, 3, 5, 2), (60, 10, 2, 1))) == (0,)
    assert loops(contiguous, ((1, 1, 5, 1), (0, 0, 1, 0))) == ()


def test_an_axis_of_size_1_between_two_others_does_not_let_them_merge() -> None:
    operand = _layout.Operand((4, 1, 3, 5), (100, 0, 5, 1))
    assert _layout.layout((4, 1, 3, 5), 3, [operand]).loops == (0,)
