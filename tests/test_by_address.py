"""Calls of which no more is looked at, once they are planned, than where their arrays begin."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import linscan
from linscan import _host

pytest.importorskip("numba", reason="only numba takes addresses")

OPTIONS: dict[str, Any] = {"gamma": 0.9, "lam": 0.8, "backend": "numba"}


@pytest.fixture(params=["numpy", "torch"])
def library(request: pytest.FixtureRequest) -> Any:
    """What makes a library's array of a NumPy array, over the same memory."""
    if request.param == "numpy":
        return np.asarray
    return pytest.importorskip("torch", reason="torch is not installed").from_numpy


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape)


def test_addresses_are_those_of_the_interface() -> None:
    x = normal(4, 6)
    locked = x.copy()
    locked.flags.writeable = False
    address = _host.address_of(np.ndarray)
    for y in (x, x[1:, ::2], x[::-1, ::-1], x.T, locked, np.array(3.0), x[:0], np.empty((0, 3))):
        assert address(y) == y.ctypes.data


def test_results_go_where_they_belong(library: Any) -> None:
    for trial in range(3):  # the first one makes the plan
        x = normal(3, 2, 50)[trial]
        expected = linscan.gae(*x, **{**OPTIONS, "backend": "numpy"})
        fresh = linscan.gae(*map(library, x.copy()), **OPTIONS)
        out = tuple(library(np.full(50, np.nan)) for _ in range(2))
        assert linscan.gae(*map(library, x), **OPTIONS, out=out).advantages is out[0]
        for y, z, w in zip(expected, fresh, out, strict=True):
            np.testing.assert_allclose(np.asarray(z), y, rtol=1e-12)
            np.testing.assert_array_equal(np.asarray(z), np.asarray(w))
        once = linscan.discounted_returns(library(x[0]), gamma=0.9, backend="numba", out=out[0])
        assert once is out[0]
        np.testing.assert_allclose(
            np.asarray(once), linscan.discounted_returns(x[0], gamma=0.9, backend="numpy")
        )


def test_views_of_every_kind(library: Any) -> None:
    block = normal(2, 4, 7, 60)
    cuts: tuple[Any, ...] = (
        np.s_[:],
        np.s_[:, ::2],
        np.s_[1:3, :, 5:-5:3],
        np.s_[2],
        np.s_[:1, :1],
    )
    for cut in cuts:
        r, v = block[0][cut], block[1][cut]
        for axis in range(r.ndim):
            expected = linscan.gae(r, v, axis=axis, **{**OPTIONS, "backend": "numpy"})
            for _ in range(2):
                found = linscan.gae(library(r), library(v), axis=axis, **OPTIONS)
                for x, y in zip(found, expected, strict=True):
                    np.testing.assert_allclose(np.asarray(x), y, rtol=1e-10)
                x = linscan.scan(library(r), library(v), axis=axis, backend="numba")
                np.testing.assert_allclose(
                    np.asarray(x), linscan.scan(r, v, axis=axis, backend="numpy"), rtol=1e-9
                )


def test_out_that_only_looks_as_if_it_shared_memory(library: Any) -> None:
    block = normal(4, 2, 40)
    for _ in range(2):
        r, v, one, other = (library(x) for x in block.copy().reshape(80, 4).T)
        expected = linscan.gae(r, v, **OPTIONS)
        linscan.gae(r, v, **OPTIONS, out=(one, other))
        np.testing.assert_array_equal(np.asarray(one), np.asarray(expected.advantages))
        np.testing.assert_array_equal(np.asarray(other), np.asarray(expected.returns))


def test_out_that_shares_memory_is_refused_after_its_like_too(library: Any) -> None:
    block = normal(200)
    r, v, one, other = (block[k : k + 40] for k in (0, 40, 80, 120))
    for _ in range(2):
        linscan.gae(*map(library, (r, v)), **OPTIONS, out=(library(one), library(other)))
        for out, name in (
            ((block[39:79], other), r"out\[0\]"),
            ((one, block[81:121]), r"out\[1\]"),
            ((one, one), r"out\[1\]"),
            ((r, other), r"out\[0\]"),
        ):
            before = block.copy()
            with pytest.raises(ValueError, match=f"{name}.* shares memory"):
                linscan.gae(*map(library, (r, v)), **OPTIONS, out=tuple(map(library, out)))
            np.testing.assert_array_equal(block, before)


def test_a_scan_in_place_is_in_place_of_b_alone(library: Any) -> None:
    for _ in range(2):
        a, b = (library(x) for x in normal(2, 30, 3))
        expected = linscan.scan(a, b, axis=0, backend="numba")
        assert linscan.scan(a, b, axis=0, backend="numba", out=b) is b
        np.testing.assert_array_equal(np.asarray(b), np.asarray(expected))
        with pytest.raises(ValueError, match="out shares memory with a"):
            linscan.scan(a, b, axis=0, backend="numba", out=a)
        with pytest.raises(ValueError, match="out shares memory with a"):
            linscan.scan(b, b, axis=0, backend="numba", out=b)


def test_out_that_may_not_be_written() -> None:
    x, out = normal(2, 20), (np.empty(20), np.empty(20))
    for writeable in (True, False, True, False):
        out[1].flags.writeable = writeable
        if writeable:
            linscan.gae(*x, **OPTIONS, out=out)
        else:
            with pytest.raises(ValueError, match=r"out\[1\] \(returns\) is read-only"):
                linscan.gae(*x, **OPTIONS, out=out)


@pytest.mark.parametrize("a", [0.5, -0.0, 0.0, 1, True, -3, 1e300])
def test_a_number_is_the_one_of_the_call(a: float) -> None:
    b = normal(2, 9).astype("float32") * 0
    b[:, 0] = 1
    for other in (0.9, a, 0.25, a):
        with np.errstate(all="ignore"):
            expected = np.float32(other) ** np.arange(9, dtype="float32")
        x = linscan.scan(other, b, backend="numba")
        np.testing.assert_allclose(x, np.broadcast_to(expected, b.shape), rtol=1e-6)
    assert np.signbit(linscan.scan(-1.0, b * 0, initial=np.zeros(2, "float32"))[0, 0]) == 0


def test_complex_numbers_that_differ_in_the_sign_of_a_zero() -> None:
    b = np.array([[complex(1, -0.0), complex(0, -0.0)]])
    for _ in range(2):
        for imag, negative in ((0.0, False), (-0.0, True)):
            x = linscan.scan(complex(1, imag), b, backend="numba")
            assert np.signbit(x[0, 1].imag) == negative


def test_threads_that_share_a_plan() -> None:
    x = normal(2, 8, 128)

    def run(gamma: float) -> Any:
        return [
            (linscan.gae(*x, **{**OPTIONS, "gamma": gamma}), linscan.scan(gamma, x[0]))
            for _ in range(50)
        ]

    gammas = [k / 16 for k in range(16)]
    expected = [run(gamma)[0] for gamma in gammas]
    with ThreadPoolExecutor(8) as pool:
        for found, ((advantages, returns), scanned) in zip(
            pool.map(run, gammas), expected, strict=True
        ):
            for gae, scan in found:
                np.testing.assert_array_equal(gae.advantages, advantages)
                np.testing.assert_array_equal(gae.returns, returns)
                np.testing.assert_array_equal(scan, scanned)


class Units(np.ndarray[Any, Any]):
    """A subclass, of which NumPy makes another array when it is asked for one."""


def test_subclasses_are_arrays_like_any_other() -> None:
    x = normal(2, 30)
    expected = linscan.gae(*x, **OPTIONS)
    found = linscan.gae(*(y.view(Units) for y in x), **OPTIONS)
    np.testing.assert_array_equal(found.advantages, expected.advantages)


def test_lazily_negated_tensors_are_negative() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    z = torch.complex(*torch.from_numpy(normal(2, 30)))
    plain = z.imag.clone()
    lazy = z.conj().imag
    assert lazy.is_neg()
    assert lazy.stride() == z.imag.stride()
    for x, sign in ((z.imag, 1), (lazy, -1), (z.imag, 1), (lazy, -1)):
        returns = linscan.discounted_returns(x, gamma=0.9, backend="numba")
        expected = linscan.discounted_returns(plain, gamma=0.9, backend="numba")
        torch.testing.assert_close(returns, sign * expected)
        torch.testing.assert_close(linscan.scan(0.9, x), sign * linscan.scan(0.9, plain))
    for x in (z, z.conj(), z, z.conj()):
        torch.testing.assert_close(linscan.scan(0.9, x), linscan.scan(0.9, x.resolve_conj()))


def test_tensors_that_require_gradients_share_a_plan_with_those_that_do_not() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.from_numpy(normal(2, 30))
    expected = linscan.gae(*x, **OPTIONS)
    for values in (x[1], x[1].clone().requires_grad_(), torch.nn.Parameter(x[1].clone())):
        found = linscan.gae(x[0], values, **OPTIONS)
        torch.testing.assert_close(found.advantages, expected.advantages, rtol=0, atol=0)
        assert not found.advantages.requires_grad
        with torch.no_grad():
            scanned = linscan.scan(0.5, values)
        assert not scanned.requires_grad
        assert linscan.scan(0.5, values).requires_grad == values.requires_grad
    out = tuple(torch.empty(30, dtype=x.dtype, requires_grad=k == 1) for k in range(2))
    with pytest.raises(ValueError, match=r"out\[1\] \(returns\) requires grad"):
        linscan.gae(*x, **OPTIONS, out=out)


@pytest.mark.parametrize("healthy_first", [True, False])
def test_a_tensor_without_memory_is_refused(healthy_first: bool) -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")

    def check(n: int, name: str, run: Any) -> None:
        for released in ([False] if healthy_first else []) + [True, False, True]:
            x = torch.ones(2, n + healthy_first)
            if not released:
                run(x)
                continue
            x.untyped_storage().resize_(0)
            with pytest.raises(ValueError, match=f"^{name} has no memory"):
                run(x)

    check(31, "values", lambda x: linscan.gae(torch.ones_like(x), x, **OPTIONS))
    check(33, "b", lambda x: linscan.scan(0.5, x))
    check(35, "a tensor of .*", lambda x: linscan.scan(0.5, x, return_final=True))
    check(37, "(out|a tensor of .*)", lambda x: linscan.scan(0.5, torch.ones_like(x), out=x))


class Half(float):
    """A number of a type of its own."""


def test_numbers_of_other_types(library: Any) -> None:
    b = library(np.ones((4, 16)))
    for _ in range(2):
        assert np.asarray(linscan.scan(Half(0.5), b))[0, :3].tolist() == [1, 1.5, 1.75]
        returns = linscan.discounted_returns(b, gamma=Half(0.5))
        assert np.asarray(returns)[0, -3:].tolist() == [1.75, 1.5, 1]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_out_of_subclasses() -> None:
    x = normal(2, 3, 8)
    expected = linscan.gae(*x, **OPTIONS)
    for _ in range(2):
        out = np.matrix(np.empty((3, 8))), np.empty((3, 8)).view(Units)
        found = linscan.gae(*x, **OPTIONS, out=out)
        assert found.advantages is out[0]
        for y, z in zip(out, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(y), z)


def test_nested_tensors_are_refused_by_name() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(3), torch.ones(5)])
    for _ in range(2):
        with pytest.raises(TypeError, match="b must be a dense tensor"):
            linscan.scan(0.5, nested)
        with pytest.raises(TypeError, match="rewards must be a dense tensor"):
            linscan.discounted_returns(nested, gamma=0.5)


def test_bfloat16() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    for shape in ((3, 5), (64, 3000), (2000, 1100)):
        b = torch.ones(shape, dtype=torch.bfloat16)
        for _ in range(2):
            x = linscan.scan(0.5, b, backend="numba")
            assert x.dtype == torch.bfloat16
            assert x[-1, :3].tolist() == [1, 1.5, 1.75]


def test_fresh_results_in_inference_mode() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.from_numpy(normal(2, 30))
    outside = linscan.gae(*x, **OPTIONS).returns
    with torch.inference_mode():
        inside = linscan.gae(*x, **OPTIONS).returns
        assert inside.is_inference()
        linscan.gae(*x, **OPTIONS, out=(inside, torch.empty_like(inside)))
    assert not outside.is_inference()
    for out in ((outside, inside), (inside, outside)):
        with pytest.raises(ValueError, match="inference tensor"):
            linscan.gae(*x, **OPTIONS, out=out)


@pytest.mark.parametrize("shape", [(7,), (3, 350_001), (5, 4_200_001)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_fresh_memory_is_whole_and_apart(shape: tuple[int, ...], count: int) -> None:
    arrays = _host.empty(shape, "float32", count)
    assert [x.shape for x in arrays] == [shape] * count
    for k, x in enumerate(arrays):
        assert x.flags.c_contiguous
        x.flat[0] = x.flat[-1] = k
    assert [(x.flat[0], x.flat[-1]) for x in arrays] == [(k, k) for k in range(count)]
    if count * arrays[0].nbytes >= _host.VERY_LARGE:
        assert arrays[0].ctypes.data % _host.HUGE_PAGE == 0
