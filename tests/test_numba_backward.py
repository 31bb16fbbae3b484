"""The one-pass gradients of the compiled kernels, against the definition in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linscan
from linscan._problem import ScanProblem

numba = pytest.importorskip("numba")

from linscan_numba import BACKEND, _threads  # noqa: E402

REVERSE = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
DTYPE = pytest.mark.parametrize("dtype", ["float32", "float64"])


def gradients(
    a: Any, x: Any, initial: Any, g: Any, reset: Any, reverse: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The definition, step by step from the last one of the scan, in float64."""
    a, x, g = (np.asarray(y, np.float64)[:, :, 0] for y in (a, x, g))
    cut = np.zeros(g.shape, bool)
    if reset is not None:
        cut = np.broadcast_to(reset[:, :, 0], g.shape)
    lam, grad = np.zeros_like(g), np.zeros_like(g)
    order = list(range(g.shape[1]))[:: -1 if reverse else 1]
    state = np.zeros(len(g))
    with np.errstate(all="ignore"):
        for k in reversed(range(len(order))):
            t = order[k]
            lam[:, t] = g[:, t] + state
            earlier = np.zeros(len(g))
            if k > 0:
                earlier = x[:, order[k - 1]]
            elif initial is not None:
                earlier = np.broadcast_to(np.asarray(initial, np.float64)[:, 0, 0], len(g))
            has_past = ~cut[:, t] & (k > 0 or initial is not None)
            grad[:, t] = np.where(has_past, lam[:, t] * earlier, 0)
            state = np.where(cut[:, t], 0, a[:, t] * lam[:, t])
    return lam, grad


def data(rows: int, time: int, dtype: str, seed: int = 0) -> tuple[Any, ...]:
    """``a, x, initial, g, reset``; x need not be a scan's."""
    rng = np.random.default_rng(seed)
    a, x, g = (rng.standard_normal((rows, time, 1)).astype(dtype) for _ in range(3))
    initial = rng.standard_normal((rows, 1, 1)).astype(dtype)
    return a / (0.1 + np.abs(a)), x, initial, g, rng.random((rows, time, 1)) < 0.1


def forward(x: Any, reverse: bool, reset: Any = None, initial: Any = None) -> ScanProblem:
    """The problem of a scan with full multipliers."""
    outer, time, inner = x.shape
    given = reset is not None, initial is not None
    return ScanProblem(outer, time, inner, str(x.dtype), "full", reverse, *given)


def run(a: Any, x: Any, initial: Any, g: Any, reset: Any, reverse: bool) -> Any:
    return BACKEND.backward(forward(x, reverse, reset, initial), a, x, initial, g, reset)


def assert_right(
    found: Any, a: Any, x: Any, initial: Any, g: Any, reset: Any, reverse: bool
) -> None:
    epsilon = np.finfo(found[0].dtype).eps
    for y, exact in zip(found, gradients(a, x, initial, g, reset, reverse), strict=True):
        finite = np.isfinite(exact)
        scale = np.abs(exact[finite]).max(initial=0)
        np.testing.assert_array_equal(np.isnan(y[:, :, 0]), np.isnan(exact))
        error = np.abs(y[:, :, 0][finite] - exact[finite]).max(initial=0)
        assert error <= 16 * epsilon * scale


@REVERSE
@DTYPE
def test_every_length(dtype: str, reverse: bool) -> None:
    for time in (65, 79, 80, 81, 96, 127, 128, 511, 512, 513, 1023, 1024, 1025, 1040, 2049):
        a, x, initial, g, reset = data(3, time, dtype)
        for rest in ((None, None), (initial, None), (None, reset), (initial[:1], reset[:1])):
            operands: Any = (a, x, rest[0], g, rest[1], reverse)
            assert_right(run(*operands), *operands)


@REVERSE
def test_the_gradient_of_b_has_the_bits_of_a_scan(reverse: bool) -> None:
    for time in (100, 3000):
        a, x, _, g, _ = data(4, time, "float32")
        lam, _ = run(a, x, None, g, None, reverse)
        shifted = np.roll(a, 1 if reverse else -1, axis=1)
        alone, _ = BACKEND.scan(forward(g, not reverse), shifted, g, None, None, None)
        assert lam.tobytes() == alone.tobytes()


@REVERSE
@DTYPE
def test_what_a_reset_hides_is_not_seen(dtype: str, reverse: bool) -> None:
    a, x, initial, g, reset = data(3, 1500, dtype)
    before = np.roll(reset, 1 if reverse else -1, axis=1)
    before[:, -1 if reverse else 0] = False
    x[before] = np.inf
    a[reset] = np.nan
    found = run(a, x, initial, g, reset, reverse)
    assert_right(found, a, x, initial, g, reset, reverse)
    assert np.isfinite(found[1]).all()


@REVERSE
def test_the_first_multiplier_is_not_seen_without_a_state(reverse: bool) -> None:
    a, x, _, g, _ = data(2, 300, "float32")
    a[:, -1 if reverse else 0] = np.nan
    g[0, -1 if reverse else 0] = np.inf
    found = run(a, x, None, g, None, reverse)
    assert_right(found, a, x, None, g, None, reverse)
    assert np.isfinite(found[1]).all()


@REVERSE
def test_overflowing_products(reverse: bool) -> None:
    a, x, initial, g, _ = data(2, 2500, "float32")
    a[0], g[0] = 1e10, 0
    g[1, 1200] = np.nan
    found = run(a, x, initial, g, None, reverse)
    assert_right(found, a, x, initial, g, None, reverse)


def test_strides_and_neighbours() -> None:
    a, x, initial, g, reset = data(5, 700, "float32")
    wide = [np.full((10, 800, 1), np.nan, "float32") for _ in range(3)]
    for space, y in zip(wide, (a, x, g), strict=True):
        space[::2, 50:750] = y
    laid_out = [y[::2, 50:750] for y in wide]
    first = run(a, x, initial, g, reset, False)
    again = run(laid_out[0], laid_out[1], initial, laid_out[2], reset, False)
    assert all(y.tobytes() == z.tobytes() for y, z in zip(first, again, strict=True))


def test_large_gradients_have_the_bits_of_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    a, x, initial, g, reset = data(130, 66_000, "float32")
    whole = run(a, x, initial, g, reset, False)
    for row in (0, 65, 129):
        one = slice(row, row + 1)
        with monkeypatch.context() as patch:
            patch.setattr(_threads, "parts_of", lambda work: 1)
            alone = run(a[one], x[one], initial[one], g[one], reset[one], False)
        assert all(y.tobytes() == z[one].tobytes() for y, z in zip(alone, whole, strict=True))


@pytest.mark.parametrize("time", [65, 1030])
def test_gradients_of_one_row_have_the_bits_of_a_batch(time: int) -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    a, x, _, g, _ = (torch.from_numpy(y[..., 0]) for y in data(3, time, "float32"))

    def grad(rows: slice) -> list[Any]:
        inputs = [y[rows].clone().requires_grad_() for y in (a, x)]
        linscan.scan(*inputs, backend="numba").backward(g[rows])
        return [y.grad for y in inputs]

    threads = numba.get_num_threads()
    whole = grad(slice(None))
    try:
        for count in {1, threads}:
            numba.set_num_threads(count)
            for found, expected in zip(grad(slice(1, 2)), whole, strict=True):
                assert torch.equal(found, expected[1:2])
    finally:
        numba.set_num_threads(threads)


def test_what_is_left_to_two_passes() -> None:
    a, x, initial, g, reset = data(4, 100, "float32")
    assert run(a, x, None, g, None, False) is not None
    assert run(a, x, None, np.broadcast_to(g[:1, :1], g.shape), None, False) is None
    assert run(a[:, :1], x, None, g, None, False) is None
    assert run(a[:, :60], x[:, :60], None, g[:, :60], None, False) is None
    columns = [np.asarray(y.reshape(1, 100, 4)) for y in (a, x, g)]
    assert run(columns[0], columns[1], None, columns[2], None, False) is None
    assert run(a, x, initial, g, reset[:, :1], False) is None
