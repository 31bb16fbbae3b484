"""What is kept from one call for the next one of its signature, and what must not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linscan


def test_the_same_signature_with_other_contents() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        r, v = rng.standard_normal((2, 3, 5))
        gamma, lam = rng.random(2)
        a, returns = linscan.gae(r, v, gamma=gamma, lam=lam)
        one = linscan.gae(r[0].tolist(), v[0].tolist(), gamma=gamma, lam=lam)
        np.testing.assert_allclose(a[0], one.advantages, rtol=1e-12)
        np.testing.assert_allclose(returns, a + v, rtol=1e-12)


X = np.ones((2, 5))


class Word(str):
    """A string of a type of its own."""


@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (linscan.scan, {"check": np.str_("auto")}, {"check": np.str_("nope")}),
        (linscan.scan, {"check": Word("full")}, {"check": Word("nope")}),
        (linscan.scan, {"axis": np.int64(-1)}, {"axis": np.int64(2)}),
        (linscan.scan, {"axis": 0}, {"axis": False}),
        (linscan.scan, {"chunk_size": 1}, {"chunk_size": 0}),
        (linscan.scan, {"reverse": True}, {"reverse": 1}),
        (linscan.gae, {"masked": np.str_("carry")}, {"masked": np.str_("bogus")}),
        (linscan.gae, {"masked": Word("carry")}, {"masked": Word("bogus")}),
        (linscan.gae, {"axis": 1}, {"axis": 2}),
        (linscan.vtrace, {"rho_clip": 1.0}, {"rho_clip": -1.0}),
        (linscan.vtrace, {"leak": 0.5}, {"leak": 7.0}),
        (linscan.vtrace, {"leak": 1}, {"leak": 2}),
    ],
)
def test_what_is_refused_is_refused_after_its_like_too(function: Any, good: Any, bad: Any) -> None:
    options: dict[str, Any] = {"gamma": 1.0, "lam": 1.0}
    arrays: tuple[Any, ...] = (X, X, X)
    if function is linscan.scan:
        options, arrays = {}, (0.5, X)
    elif function is linscan.gae:
        arrays = X, X
    for _ in range(2):
        function(*arrays, **options, **good)
        with pytest.raises((TypeError, ValueError), match=next(iter(bad))):
            function(*arrays, **options, **bad)


FLAGS = np.zeros((2, 5))


@pytest.mark.parametrize(
    ("good", "bad", "match"),
    [
        ({"terminated": FLAGS}, {"terminated": FLAGS + 2}, "terminated must be 0 or 1"),
        ({"terminated": FLAGS.tolist()}, {"terminated": FLAGS[:, 1:].tolist()}, "does not broad"),
        ({"mask": FLAGS + 1}, {"mask": FLAGS + 0.5}, "mask must be 0 or 1"),
        ({"lengths": [3, 5]}, {"lengths": [3, 6]}, "lengths"),
        ({"lengths": np.array([3, 5])}, {"lengths": np.array([-1, 5])}, "lengths"),
        ({"lengths": np.array([3, 5])}, {"lengths": np.array([3.0, 5])}, "lengths"),
        ({"gamma": np.float64(1)}, {"gamma": True}, "gamma"),
        ({"gamma": 1}, {"gamma": 10**400}, "gamma is too large"),
        ({"masked": np.str_("carry")}, {"masked": np.str_("bogus")}, "masked"),
        ({"axis": np.int64(1)}, {"axis": np.int64(2)}, "axis"),
        ({"chunk_size": np.int64(1)}, {"chunk_size": np.int64(0)}, "chunk_size"),
        ({"out_dtype": "float32"}, {"out_dtype": "complex64"}, "out_dtype"),
        ({"check": "full"}, {"check": "some"}, "check"),
        ({}, {"last_values": np.ones(2)}, "two"),
    ],
)
def test_what_is_refused_of_calls_that_are_rewritten(good: Any, bad: Any, match: str) -> None:
    longer = np.ones((2, 6))
    options: dict[str, Any] = {"gamma": 1.0, "lam": 1.0}
    for _ in range(3):
        linscan.gae(X, longer, **{**options, **good})
        with pytest.raises((TypeError, ValueError), match=match):
            linscan.gae(X, longer, **{**options, **bad})


def test_bounds_of_calls_that_torch_follows() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.ones(2, 5)
    options: dict[str, Any] = {"gamma": 1.0, "lam": 1.0, "differentiable": True}
    for _ in range(2):
        linscan.vtrace(x, x, x, **options, leak=0.5)
        with pytest.raises(ValueError, match="leak must be between"):
            linscan.vtrace(x, x, x, **options, leak=7.5)


def test_out_of_calls_that_are_rewritten() -> None:
    block = np.ones(40)
    longer, other = block[:6], np.empty(5)
    flags = block[10:15]
    options: dict[str, Any] = {"gamma": 1.0, "lam": 1.0}
    for _ in range(3):
        linscan.gae(X[0], longer, **options, terminated=flags, out=(block[20:25], other))
        np.testing.assert_array_equal(block[:20], 1)
        for overlapping, name in ((longer[1:], "values"), (flags, "terminated")):
            with pytest.raises(ValueError, match=f"shares memory with {name}"):
                linscan.gae(X[0], longer, **options, terminated=flags, out=(overlapping, other))


def test_calls_that_are_rewritten_look_at_their_data() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        rewards, values = rng.standard_normal((3, 7)), rng.standard_normal((3, 8))
        lengths = rng.integers(0, 8, 3)
        ended = (rng.random((3, 7)) < 0.3) & (np.arange(7) < lengths[:, None])
        options: dict[str, Any] = {"gamma": 0.9, "lam": 0.8, "lengths": lengths}
        found = linscan.gae(rewards, values, terminated=ended.astype(float), **options)
        for i, n in enumerate(lengths):
            one = linscan.gae(
                rewards[i, :n], values[i, : n + 1], terminated=ended[i, :n], gamma=0.9, lam=0.8
            )
            np.testing.assert_allclose(found.advantages[i, :n], one.advantages, rtol=1e-12)
            assert not found.returns[i, n:].any()


def test_words_of_other_types_mean_what_they_say() -> None:
    mask = np.array([True, False, True, True, False])
    options: dict[str, Any] = {"gamma": 1.0, "lam": 1.0, "mask": mask, "backend": "numpy"}
    words: list[Any] = [np.str_, Word]
    for word in words:
        for masked in ("zero", "carry", "zero"):
            found = linscan.gae(X, X, masked=word(masked), **options).advantages
            np.testing.assert_array_equal(found, linscan.gae(X, X, masked=masked, **options)[0])
        for dtype in ("float32", "float64"):
            x = linscan.discounted_returns(X, gamma=1.0, out_dtype=word(dtype))
            assert x.dtype == dtype
    out = np.empty_like(X), np.empty_like(X)
    terminated = X < 0
    missing: dict[str, Any] = {"on_missing_bootstrap": np.str_("zero")}
    linscan.gae(X, X, **options, **missing, terminated=terminated, truncated=terminated, out=out)
    np.testing.assert_array_equal(out[0], linscan.gae(X, X, **options)[0])


def test_a_default_dtype_that_changes() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    whole = torch.tensor([1, 2, 3])
    kept = torch.get_default_dtype()
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            assert linscan.scan(0.5, whole).dtype == dtype
            assert linscan.gae(whole, whole, gamma=1.0, lam=1.0).returns.dtype == dtype
            assert linscan.gae(whole[1:], whole, gamma=1.0, lam=1.0).returns.dtype == dtype
            assert linscan.discounted_returns(whole > 1, gamma=1.0).dtype == dtype
    finally:
        torch.set_default_dtype(kept)


def test_gradients_asked_for_by_any_operand() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    b = torch.ones(3)
    for shape in ((), (1,), (3,)):
        a = torch.full(shape, 0.5, requires_grad=True)
        linscan.scan(a, b)[1].backward()
        assert a.grad.sum() == 1
        with torch.no_grad():
            assert linscan.scan(a, b).tolist() == [1.0, 1.5, 1.75]


def test_more_signatures_than_are_kept() -> None:
    for n in range(1, 1100):
        assert linscan.scan(1.0, np.ones(n), backend="numpy")[-1] == n
    assert linscan.scan(1.0, np.ones(3), backend="numpy").tolist() == [1, 2, 3]


@pytest.mark.parametrize("backend", ["numba", "numpy", "torch"])
def test_autograd_hears_of_what_out_overwrites(backend: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    if linscan.backends().get(backend, "not installed") is not None:
        pytest.skip(f"{backend}: {linscan.backends().get(backend)}")
    nine = torch.full((3,), 9.0)
    for run in (
        lambda out: linscan.scan(0.5, nine, out=out, backend=backend),
        lambda out: linscan.discounted_returns(nine, gamma=0.5, out=out, backend=backend),
    ):
        weight, kept = torch.ones(3, requires_grad=True), torch.ones(3)
        loss = (weight * kept).sum()
        run(kept)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_tensors_that_cannot_be_written() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    b = torch.ones(3)
    with pytest.raises(ValueError, match=r"^out requires grad"):
        linscan.scan(0.5, b, out=torch.ones(3, requires_grad=True))
    with torch.inference_mode():
        out = torch.ones(3)
    with pytest.raises(ValueError, match=r"^out is an inference tensor"):
        linscan.scan(0.5, b, out=out)


def test_a_chunk_size_that_is_ignored_is_said_to_be() -> None:
    x = np.ones(3)
    assert "chunk_size is ignored" in linscan.explain(0.5, x, backend="numpy", chunk_size=8).kernel
    assert "chunk_size" not in linscan.explain(0.5, x, backend="numpy").kernel
