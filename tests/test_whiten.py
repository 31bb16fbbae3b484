"""Whitening against its own definition in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linscan

X = np.array([[1.0, 2.0, 4.0, np.nan], [3.0, 3.0, np.inf, -1.0]])
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 1]], bool)


def test_mean_0_and_variance_1_over_the_valid_elements() -> None:
    valid = X[MASK]
    for unbiased in (True, False):
        y = linscan.whiten(X, MASK, unbiased=unbiased, eps=0.0)
        exact = (valid - valid.mean()) / valid.std(ddof=1 if unbiased else 0)
        np.testing.assert_allclose(y[MASK], exact, rtol=1e-14)
        assert (y[~MASK] == 0).all()


def test_shift_mean_false_changes_only_the_scale() -> None:
    y = linscan.whiten(X, MASK, shift_mean=False, eps=0.0)
    valid = X[MASK]
    exact = (valid - valid.mean()) / valid.std(ddof=1) + valid.mean()
    np.testing.assert_allclose(y[MASK], exact, rtol=1e-14)
    assert (y[~MASK] == 0).all()


def test_eps_is_added_to_the_variance() -> None:
    y = linscan.whiten(np.array([0.0, 2.0]), eps=3.0, unbiased=False)
    np.testing.assert_allclose(y, [-0.5, 0.5])  # variance 1, and √(1 + 3) = 2


def test_each_row_by_itself() -> None:
    x = np.arange(12.0).reshape(3, 4) ** 2
    y = linscan.whiten(x, axis=-1)
    for row, exact in zip(y, x, strict=True):
        np.testing.assert_allclose(row, (exact - exact.mean()) / exact.std(ddof=1), rtol=1e-6)
    np.testing.assert_array_equal(linscan.whiten(x, axis=(0, 1)), linscan.whiten(x))


@pytest.mark.parametrize(
    ("mask", "unbiased", "least"),
    [([0, 0], True, 2), ([1, 0], True, 2), ([0, 0], False, 1)],
)
def test_too_few_valid_elements(mask: list[int], unbiased: bool, least: int) -> None:
    x = np.array([5.0, 7.0])
    np.testing.assert_array_equal(linscan.whiten(x, mask, unbiased=unbiased), [0, 0])
    kept = linscan.whiten(x, mask, unbiased=unbiased, shift_mean=False)
    np.testing.assert_array_equal(kept, [5.0 * mask[0], 0])
    with pytest.raises(ValueError, match=f"at least {least} valid elements"):
        linscan.whiten(x, mask, unbiased=unbiased, on_degenerate="raise")


def test_one_valid_element_has_a_variance_of_0_without_bessel() -> None:
    x = np.array([5.0, 7.0])
    y = linscan.whiten(x, [1, 0], unbiased=False, on_degenerate="raise")
    np.testing.assert_array_equal(y, [0, 0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
def test_dtypes(dtype: str) -> None:
    x = np.array([0, 1, 1, 0], dtype)
    y = linscan.whiten(x, unbiased=False, eps=0.0)
    assert y.dtype == (dtype if "float" in dtype else "float64")
    np.testing.assert_array_equal(y, [-1, 1, 1, -1])


def test_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    y: Any = linscan.whiten(torch.tensor(X, requires_grad=True), torch.tensor(MASK))
    assert not y.requires_grad
    np.testing.assert_allclose(y.numpy(), linscan.whiten(X, MASK), rtol=1e-14)
    half = linscan.whiten(torch.tensor([0.0, 2.0], dtype=torch.bfloat16), unbiased=False)
    assert half.dtype == torch.bfloat16
    assert half.tolist() == [-1.0, 1.0]


def test_nothing_is_written_and_empty_stays_empty() -> None:
    x = X.copy()
    x.flags.writeable = False
    linscan.whiten(x, MASK)
    assert linscan.whiten(np.zeros((0, 3))).shape == (0, 3)


def test_squares_that_would_overflow() -> None:
    y = linscan.whiten(np.array([1e20, 2e20, 3e20], np.float32))
    np.testing.assert_allclose(y, [-1, 0, 1], atol=1e-6)
