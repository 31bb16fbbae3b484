"""Every misuse of every parameter is refused, by name, with the shapes or the first bad position.

Each row of a table is one misuse: what it is, the call, and the error that it must give.  A call
gets the library whose arrays it is to use.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest

linscan: Any = import_module("linscan")
"""Without its types: what they forbid is what is tested."""

torch: Any = import_module("torch") if find_spec("torch") else None
TORCH = pytest.mark.skipif(torch is None, reason="torch is not installed")
LIBRARIES = pytest.mark.parametrize(
    "xp", [pytest.param(np, id="numpy"), pytest.param(torch, id="torch", marks=TORCH)]
)


class Misuse(NamedTuple):
    what: str
    call: Callable[[Any], Any]
    error: type[Exception]
    message: str


def table(*rows: tuple[str, Any, type[Exception], str]) -> Any:
    misuses = [Misuse(*row) for row in rows]
    return pytest.mark.parametrize("misuse", misuses, ids=[m.what for m in misuses])


def check(misuse: Misuse, call: Callable[[], Any]) -> None:
    with pytest.raises(misuse.error, match=misuse.message) as caught:
        call()
    assert type(caught.value) is misuse.error


def refused(misuse: Misuse, xp: Any) -> None:
    check(misuse, lambda: misuse.call(xp))


class Foreign:
    """An array of a library that linscan does not know."""

    dtype, shape, ndim, strides, device = np.dtype("float64"), (2, 3), 2, (24, 8), "far away"

    def __dlpack__(self) -> None: ...


def other(xp: Any) -> Any:
    return pytest.importorskip("torch") if xp is np else np


def scan(xp: Any, **changes: Any) -> Any:
    return linscan.scan(**{"a": 0.5, "b": xp.ones((2, 3)), **changes})


def read_only(shape: tuple[int, ...]) -> Any:
    x = np.ones(shape)
    x.flags.writeable = False
    return x


# -------------------------------------------------------------------------------------------- scan


@LIBRARIES
@table(
    ("a is None", lambda xp: scan(xp, a=None), TypeError, r"^a must be a NumPy array, .*NoneType"),
    ("a is a string", lambda xp: scan(xp, a="0.5"), TypeError, r"^a must be .* not builtins.str"),
    (
        "a does not broadcast",
        lambda xp: scan(xp, a=xp.ones(2)),
        ValueError,
        r"^a has shape \(2,\) and b has shape \(2, 3\): they do not broadcast",
    ),
    (
        "a is of another library",
        lambda xp: scan(xp, a=other(xp).ones(3)),
        TypeError,
        r"^all arrays must be of one library .* a is a .*, b is a ",
    ),
    ("a is foreign", lambda xp: scan(xp, a=Foreign()), TypeError, r"a is .*Foreign on far away"),
    ("b is None", lambda xp: scan(xp, b=None), TypeError, r"^b must be .* not builtins.NoneType"),
    ("b is foreign", lambda xp: scan(xp, b=Foreign()), TypeError, r"no installed backend takes "),
    ("b has rank 0", lambda xp: scan(xp, b=xp.asarray(1.0)), ValueError, r"^b has rank 0"),
    ("a and b are numbers", lambda xp: scan(xp, b=1.0), ValueError, r"^a and b are both numbers"),
    (
        "b is ragged",
        lambda xp: scan(xp, b=[[1.0, 2.0], [3.0]]),
        ValueError,
        r"^b is a list of parts that differ in shape: pad them, .*cu_seqlens=",
    ),
    ("b is text", lambda xp: scan(xp, b=["1", "2"]), TypeError, r"^b has dtype <U1, which is not"),
    (
        "initial has an axis too many",
        lambda xp: scan(xp, initial=xp.ones((2, 1))),
        ValueError,
        r"^initial has shape \(2, 1\), which does not broadcast to \(2,\)",
    ),
    (
        "initial is shaped like b",
        lambda xp: scan(xp, initial=xp.ones((2, 3))),
        ValueError,
        r"^initial has shape \(2, 3\), which does not broadcast to \(2,\)",
    ),
    (
        "initial is of another library",
        lambda xp: scan(xp, initial=other(xp).ones(2)),
        TypeError,
        r"^all arrays must be of one library .* initial is a ",
    ),
    ("initial is a string", lambda xp: scan(xp, initial="0"), TypeError, r"^initial must be a "),
    ("axis is past the end", lambda xp: scan(xp, axis=2), ValueError, r"^axis 2 is out of range"),
    ("axis is before the start", lambda xp: scan(xp, axis=-3), ValueError, r"^axis -3 is out of"),
    ("axis is a float", lambda xp: scan(xp, axis=1.0), TypeError, r"^axis must be an integer"),
    ("axis is None", lambda xp: scan(xp, axis=None), TypeError, r"^axis must be an integer, not N"),
    ("axis is a bool", lambda xp: scan(xp, axis=True), TypeError, r"^axis must be an integer, not"),
    ("axis is a list", lambda xp: scan(xp, axis=[1]), TypeError, r"^axis must be an integer, not "),
    ("reverse is a string", lambda xp: scan(xp, reverse="no"), TypeError, r"^reverse must be True"),
    (
        "reverse is an array",
        lambda xp: scan(xp, reverse=xp.ones(2)),
        TypeError,
        r"^reverse must be True or False, not",
    ),
    (
        "return_final is None",
        lambda xp: scan(xp, return_final=None),
        TypeError,
        r"^return_final must be True or False, not None",
    ),
    (
        "reset does not broadcast",
        lambda xp: scan(xp, reset=xp.zeros(2, dtype=xp.bool)),
        ValueError,
        r"^reset has shape \(2,\), which does not broadcast to \(2, 3\), the shape of the result",
    ),
    (
        "reset has an axis more than the result",
        lambda xp: scan(xp, reset=xp.zeros((1, 2, 3), dtype=xp.bool)),
        ValueError,
        r"^reset has shape \(1, 2, 3\), which does not broadcast to \(2, 3\)",
    ),
    (
        "reset holds a 2",
        lambda xp: scan(xp, reset=xp.asarray([[0, 1, 0], [0, 2, 2]])),
        ValueError,
        r"^reset must be 0 or 1 everywhere, but reset\[1, 1\] is 2$",
    ),
    (
        "reset holds NaN",
        lambda xp: scan(xp, reset=xp.asarray([0.0, 1.0, float("nan")])),
        ValueError,
        r"^reset must be 0 or 1 everywhere, but reset\[2\] is nan$",
    ),
    (
        "reset is complex",
        lambda xp: scan(xp, reset=xp.ones(3, dtype=xp.complex64)),
        TypeError,
        r"^reset must be bool, or numbers that are 0 or 1, not .*complex64",
    ),
    ("reset is a string", lambda xp: scan(xp, reset="yes"), TypeError, r"^reset must be a NumPy"),
    (
        "cu_seqlens are floats",
        lambda xp: scan(xp, cu_seqlens=[0.0, 3.0]),
        TypeError,
        r"^cu_seqlens must be integers, not float64",
    ),
    (
        "cu_seqlens falls",
        lambda xp: scan(xp, cu_seqlens=xp.asarray([0, 2, 1, 3])),
        ValueError,
        r"^cu_seqlens must not decrease, but cu_seqlens\[1\] is 2 and cu_seqlens\[2\] is 1",
    ),
    (
        "cu_seqlens does not reach the end",
        lambda xp: scan(xp, cu_seqlens=[0, 2]),
        ValueError,
        r"^cu_seqlens must run from 0 to 3, .* but runs from 0 to 2",
    ),
    (
        "cu_seqlens starts late",
        lambda xp: scan(xp, cu_seqlens=[1, 3]),
        ValueError,
        r"^cu_seqlens must run from 0 to 3, .* but runs from 1 to 3",
    ),
    (
        "cu_seqlens goes past the end",
        lambda xp: scan(xp, cu_seqlens=[0, 4]),
        ValueError,
        r"^cu_seqlens must run from 0 to 3, .* but runs from 0 to 4",
    ),
    (
        "cu_seqlens are lengths of rank 2",
        lambda xp: scan(xp, cu_seqlens=[[0, 3]]),
        ValueError,
        r"^cu_seqlens must be one-dimensional .* but has shape \(1, 2\)",
    ),
    (
        "cu_seqlens is empty",
        lambda xp: scan(xp, cu_seqlens=[]),
        ValueError,
        r"^cu_seqlens must be one-dimensional .* but has shape \(0,\)",
    ),
    (
        "cu_seqlens is a number",
        lambda xp: scan(xp, cu_seqlens=3),
        TypeError,
        r"^cu_seqlens must be",
    ),
    (
        "cu_seqlens and an initial per row",
        lambda xp: scan(xp, cu_seqlens=[0, 2, 3], initial=xp.ones((3, 2))),
        ValueError,
        r"^initial has shape \(3, 2\), which does not broadcast to \(2, 2\), .* segments",
    ),
    (
        "out has another shape",
        lambda xp: scan(xp, out=xp.ones((3, 2))),
        ValueError,
        r"^out has shape \(3, 2\), but the result has shape \(2, 3\)",
    ),
    (
        "out has fewer rows",
        lambda xp: scan(xp, out=xp.ones((1, 3))),
        ValueError,
        r"^out has shape \(1, 3\), but the result has shape \(2, 3\)",
    ),
    (
        "out has another dtype",
        lambda xp: scan(xp, out=xp.ones((2, 3), dtype=xp.float16)),
        TypeError,
        r"^out has dtype .*float16, but the result has dtype float",
    ),
    (
        "out is of another library",
        lambda xp: scan(xp, out=other(xp).ones((2, 3))),
        TypeError,
        r"^all arrays must be of one library .* out is a ",
    ),
    (
        "out is the list b",
        lambda xp: scan(xp, b=(x := [1.0, 2.0]), out=x),
        TypeError,
        r"^out must be an array, not list",
    ),
    (
        "out is a list",
        lambda xp: scan(xp, out=[[0.0] * 3] * 2),
        TypeError,
        r"^out must be an arr.*",
    ),
    (
        "unknown backend",
        lambda xp: scan(xp, backend="nope"),
        ValueError,
        r"'nope'; installed: .*nu",
    ),
    ("backend is None", lambda xp: scan(xp, backend=None), ValueError, r"^unknown backend None; "),
    ("backend is a list", lambda xp: scan(xp, backend=["numpy"]), ValueError, r"^unknown backend "),
    ("chunk_size is 0", lambda xp: scan(xp, chunk_size=0), ValueError, r"^chunk_size must be at l"),
    ("chunk_size is a float", lambda xp: scan(xp, chunk_size=64.0), TypeError, r"^chunk_size must"),
    ("chunk_size is a bool", lambda xp: scan(xp, chunk_size=True), TypeError, r"^chunk_size must "),
    (
        "check is misspelt",
        lambda xp: scan(xp, check="ful"),
        ValueError,
        r"^check must be one of 'auto', ",
    ),
    (
        "check is a bool",
        lambda xp: scan(xp, check=True),
        ValueError,
        r"^check must be one of 'auto'",
    ),
    (
        "NaN under check='full'",
        lambda xp: scan(xp, b=xp.asarray([1.0, float("nan")]), check="full"),
        ValueError,
        r"^b\[1\] is NaN \(check='full'\)",
    ),
    (
        "initial is NaN under check='full'",
        lambda xp: scan(xp, initial=xp.asarray([1.0, float("nan")]), check="full"),
        ValueError,
        r"^initial\[1\] is NaN",
    ),
    (
        "a is NaN under check='full'",
        lambda xp: scan(xp, a=float("nan"), check="full"),
        ValueError,
        r"^a is NaN",
    ),
    ("an unknown keyword", lambda xp: scan(xp, dim=1), TypeError, r"unexpected .* 'dim'"),
    ("a keyword of another library", lambda xp: scan(xp, dtype=int), TypeError, r"unexpected"),
)
def test_scan(misuse: Misuse, xp: Any):
    refused(misuse, xp)


def scan_out_of(x: Any, part: slice) -> Any:
    return linscan.scan(0.5, x[:3], out=x[part])


@LIBRARIES
@table(
    (
        "out overlaps b",
        lambda xp: scan_out_of(xp.ones(6), slice(2, 5)),
        ValueError,
        r"^out shares memory with b",
    ),
    (
        "out is a",
        lambda xp: linscan.scan(x := xp.ones(3), xp.ones(3), out=x),
        ValueError,
        r"^out shares memory with a",
    ),
    (
        "out holds initial",
        lambda xp: linscan.scan(0.5, x := xp.ones((2, 3)), x[:, 0], out=x),
        ValueError,
        r"^out shares memory with initial",
    ),
)
def test_scan_never_writes_into_an_input(misuse: Misuse, xp: Any):
    refused(misuse, xp)


@table(
    ("read-only", lambda _: scan(np, out=read_only((2, 3))), ValueError, r"^out is read-only"),
    (
        "a row written many times",
        lambda _: scan(
            np, out=np.lib.stride_tricks.as_strided(np.ones(3), (2, 3), (0, 8), writeable=True)
        ),
        ValueError,
        r"^out overlaps itself",
    ),
    (
        "sliding windows",
        lambda _: scan(
            np, out=np.lib.stride_tricks.sliding_window_view(np.ones(4), 3, writeable=True)
        ),
        ValueError,
        r"^out overlaps itself",
    ),
    (
        "of swapped bytes",
        lambda _: scan(np, out=np.ones((2, 3), ">f8")),
        TypeError,
        r"^out has dtype >f8, but the result has dtype float64",
    ),
)
def test_an_out_that_cannot_be_written(misuse: Misuse):
    refused(misuse, np)


@TORCH
@table(
    (
        "a row written many times",
        lambda xp: scan(xp, out=xp.ones(3).expand(2, 3)),
        ValueError,
        r"^out overlaps itself",
    ),
    (
        "a lazy conjugate",
        lambda xp: scan(xp, b=xp.ones(2, 3) * 1j, out=(xp.ones(2, 3) * 1j).conj()),
        ValueError,
        r"^out is a lazy conjugate",
    ),
)
def test_a_tensor_that_cannot_be_written(misuse: Misuse):
    refused(misuse, torch)


@table(
    ("b", lambda x: linscan.scan(0.5, x), TypeError, r"^b is a masked array"),
    ("a", lambda x: linscan.scan(x, np.ones((2, 3))), TypeError, r"^a is a masked array"),
    ("initial", lambda x: scan(np, initial=x[:, 0]), TypeError, r"^initial is a masked array"),
    ("reset", lambda x: scan(np, reset=x > 2), TypeError, r"^reset is a masked array"),
    ("out", lambda x: scan(np, out=x), TypeError, r"^out is a masked array"),
    ("rewards", lambda x: gae(np, rewards=x), TypeError, r"^rewards is a masked array.*mask="),
    ("values", lambda x: gae(np, values=x), TypeError, r"^values is a masked array"),
    ("terminated", lambda x: gae(np, terminated=x > 2), TypeError, r"^terminated is a masked arr"),
    ("mask", lambda x: gae(np, mask=x > 0), TypeError, r"^mask is a masked array"),
    ("gamma", lambda x: gae(np, gamma=x), TypeError, r"^gamma is a masked array"),
    ("x", lambda x: linscan.whiten(x), TypeError, r"^x is a masked array"),
)
def test_masked_arrays(misuse: Misuse):
    refused(misuse, np.ma.masked_equal(np.arange(6.0).reshape(2, 3), 3.0))


@TORCH
@table(
    ("b", lambda x: linscan.scan(0.5, x), TypeError, r"^b must be a dense tensor.*b.to_dense\(\)"),
    ("a", lambda x: scan(torch, a=x), TypeError, r"^a must be a dense tensor"),
    ("out", lambda x: scan(torch, out=x), TypeError, r"^out must be a dense tensor"),
    ("rewards", lambda x: gae(torch, rewards=x), TypeError, r"^rewards must be a dense tensor"),
    ("values", lambda x: gae(torch, values=x), TypeError, r"^values must be a dense tensor"),
    ("mask", lambda x: gae(torch, mask=x.bool()), TypeError, r"^mask must be a dense tensor"),
    ("gamma", lambda x: gae(torch, gamma=x), TypeError, r"^gamma must be a dense tensor"),
    ("x", lambda x: linscan.whiten(x), TypeError, r"^x must be a dense tensor"),
)
def test_sparse_tensors(misuse: Misuse):
    refused(misuse, torch.ones(2, 3).to_sparse())


@TORCH
@pytest.mark.parametrize("name", ["a", "b", "initial"])
def test_scan_refuses_to_lose_a_gradient(name: str):
    tensors = {"a": torch.ones(3), "b": torch.ones(2, 3), "initial": torch.ones(2)}
    tensors[name].requires_grad_()
    out = torch.empty(2, 3)
    with pytest.raises(ValueError, match=r"^out= .*gradients need one: leave out= away.*no_grad"):
        linscan.scan(**tensors, out=out)
    with torch.no_grad():
        assert not linscan.scan(**tensors, out=out).requires_grad


# -------------------------------------------------------------------------------- every estimator

ESTIMATORS = {
    "gae": (linscan.gae, {"values", "lam"}),
    "discounted_returns": (linscan.discounted_returns, set[str]()),
    "td_lambda": (linscan.td_lambda, {"values", "lam"}),
}
EVERY = pytest.mark.parametrize("name", list(ESTIMATORS))


def estimate(name: str, xp: Any, **changes: Any) -> Any:
    function, needs = ESTIMATORS[name]
    needed: dict[str, Any] = {"values": xp.ones((2, 3)), "lam": 0.9}
    arguments = {"rewards": xp.ones((2, 3)), "gamma": 0.9, **{n: needed[n] for n in needs}}
    return function(**{**arguments, **changes})


def gae(xp: Any, **changes: Any) -> Any:
    return estimate("gae", xp, **changes)


def no(xp: Any) -> Any:
    """Flags that are false everywhere."""
    return xp.zeros((2, 3), dtype=xp.bool)


@EVERY
@LIBRARIES
@table(
    ("rewards is None", lambda _: {"rewards": None}, TypeError, r"^rewards must be a .*NoneType"),
    ("rewards is a number", lambda _: {"rewards": 1.0}, TypeError, r"^rewards must be a .*float"),
    ("rewards is foreign", lambda _: {"rewards": Foreign()}, TypeError, r"Foreign"),
    (
        "rewards has rank 0",
        lambda xp: {"rewards": xp.asarray(1.0)},
        ValueError,
        r"^rewards has rank 0: an estimator needs an axis of time",
    ),
    (
        "rewards is ragged",
        lambda _: {"rewards": [[1.0, 2.0], [3.0]]},
        ValueError,
        r"^rewards is a list of parts that differ in shape",
    ),
    (
        "rewards is complex",
        lambda xp: {"rewards": xp.ones((2, 3), dtype=xp.complex64)},
        TypeError,
        r"^rewards has dtype .*complex64, but \w+ is defined for real numbers",
    ),
    ("rewards is text", lambda _: {"rewards": [["1"] * 3] * 2}, TypeError, r"rewards"),
    ("gamma is None", lambda _: {"gamma": None}, TypeError, r"^gamma must be a real number .*None"),
    ("gamma is a string", lambda _: {"gamma": "0.9"}, TypeError, r"^gamma must be .*str"),
    ("gamma is a bool", lambda _: {"gamma": True}, TypeError, r"^gamma must be a real .*True"),
    ("gamma is complex", lambda _: {"gamma": 1j}, TypeError, r"^gamma must be a real number .*1j"),
    (
        "gamma is a complex array",
        lambda xp: {"gamma": xp.ones(3, dtype=xp.complex64)},
        TypeError,
        r"^gamma must be real numbers, not .*complex64",
    ),
    (
        "gamma per row without the axis of time",
        lambda xp: {"gamma": xp.ones(2)},
        ValueError,
        r"^gamma has shape \(2,\), which does not broadcast to \(2, 3\), the shape of rewards",
    ),
    (
        "gamma of another library",
        lambda xp: {"gamma": other(xp).ones(3)},
        TypeError,
        r"one library .* gamma is a ",
    ),
    (
        "gamma is NaN under check='full'",
        lambda _: {"gamma": float("nan"), "check": "full"},
        ValueError,
        r"^gamma is NaN",
    ),
    (
        "last_values with an axis of size 1",
        lambda xp: {"last_values": xp.ones((2, 1))},
        ValueError,
        r"^last_values has shape \(2, 1\), which does not broadcast to \(2,\)",
    ),
    (
        "last_values per step",
        lambda xp: {"last_values": xp.ones(3)},
        ValueError,
        r"^last_values has shape \(3,\), which does not broadcast to \(2,\)",
    ),
    (
        "last_values of another library",
        lambda xp: {"last_values": other(xp).ones(2)},
        TypeError,
        r"one library .* last_values is a ",
    ),
    (
        "last_values per row with cu_seqlens",
        lambda xp: {"last_values": xp.ones((2, 1)), "cu_seqlens": [0, 1, 2, 3]},
        ValueError,
        r"^last_values has shape \(2, 1\), which does not broadcast to \(3, 2\)",
    ),
    (
        "truncated without the value of the final observation",
        lambda xp: {"truncated": no(xp)},
        ValueError,
        r"^a truncated step bootstraps .*truncation_values=.*on_missing_bootstrap='zero'",
    ),
    (
        "truncated with last_values only",
        lambda xp: {"truncated": no(xp), "last_values": xp.ones(2)},
        ValueError,
        r"^a truncated step bootstraps .*truncation_values=",
    ),
    (
        "truncation_values without truncated",
        lambda xp: {"truncation_values": xp.ones((2, 3))},
        ValueError,
        r"^truncation_values is read only where truncated: pass truncated too",
    ),
    (
        "truncation_values of another shape",
        lambda xp: {"truncation_values": xp.ones(2), "truncated": no(xp)},
        ValueError,
        r"^truncation_values has shape \(2,\), but rewards has shape \(2, 3\)",
    ),
    (
        "on_missing_bootstrap is misspelt",
        lambda _: {"on_missing_bootstrap": "none"},
        ValueError,
        r"^on_missing_bootstrap must be one of None, 'zero', 'current_value', not 'none'",
    ),
    (
        "terminated per row",
        lambda xp: {"terminated": xp.zeros(2, dtype=xp.bool)},
        ValueError,
        r"^terminated has shape \(2,\), which does not broadcast to \(2, 3\)",
    ),
    (
        "terminated with a step too many",
        lambda xp: {"terminated": xp.zeros((2, 4), dtype=xp.bool)},
        ValueError,
        r"^terminated has shape \(2, 4\), which does not broadcast to \(2, 3\)",
    ),
    (
        "terminated counts",
        lambda xp: {"terminated": xp.asarray([[0, 1, 0], [0, 0, 3]])},
        ValueError,
        r"^terminated must be 0 or 1 everywhere, but terminated\[1, 2\] is 3$",
    ),
    (
        "truncated holds one half",
        lambda xp: {"truncated": xp.asarray([0.0, 0.5, 1.0]), "on_missing_bootstrap": "zero"},
        ValueError,
        r"^truncated must be 0 or 1 everywhere, but truncated\[1\] is 0.5$",
    ),
    (
        "terminated is complex",
        lambda xp: {"terminated": xp.ones((2, 3), dtype=xp.complex64)},
        TypeError,
        r"^terminated must be bool, or numbers that are 0 or 1",
    ),
    (
        "terminated of another library",
        lambda xp: {"terminated": no(other(xp))},
        TypeError,
        r"one library .* terminated is a ",
    ),
    (
        "mask of weights",
        lambda xp: {"mask": xp.asarray([1.0, 0.0, 0.25])},
        ValueError,
        r"^mask must be 0 or 1 everywhere, but mask\[2\] is 0.25$",
    ),
    (
        "mask of another shape",
        lambda xp: {"mask": xp.ones((3, 2), dtype=xp.bool)},
        ValueError,
        r"^mask has shape \(3, 2\), which does not broadcast to \(2, 3\)",
    ),
    ("mask is a string", lambda _: {"mask": "yes"}, TypeError, r"^mask must be a NumPy array"),
    (
        "lengths and cu_seqlens",
        lambda _: {"lengths": [1, 2], "cu_seqlens": [0, 3]},
        ValueError,
        r"^lengths and cu_seqlens exclude each other",
    ),
    (
        "a length beyond the end",
        lambda xp: {"lengths": xp.asarray([3, 4])},
        ValueError,
        r"^lengths must be between 0 and 3, .* but lengths\[1\] is 4$",
    ),
    (
        "a negative length",
        lambda _: {"lengths": [-1, 2]},
        ValueError,
        r"^lengths must be between 0 and 3, .* but lengths\[0\] is -1$",
    ),
    ("one length, too large", lambda _: {"lengths": 4}, ValueError, r"but lengths is 4$"),
    ("lengths are floats", lambda _: {"lengths": [1.0, 2.0]}, TypeError, r"^lengths must be integ"),
    ("lengths are bools", lambda _: {"lengths": [True, False]}, TypeError, r"^lengths must be int"),
    (
        "lengths per step",
        lambda _: {"lengths": [1, 2, 3]},
        ValueError,
        r"^lengths has shape \(3,\), which does not broadcast to \(2,\)",
    ),
    ("lengths is a string", lambda _: {"lengths": "3"}, TypeError, r"^lengths must be a NumPy "),
    (
        "cu_seqlens are floats",
        lambda _: {"cu_seqlens": [0.0, 3.0]},
        TypeError,
        r"^cu_seqlens must ",
    ),
    (
        "cu_seqlens falls",
        lambda _: {"cu_seqlens": [0, 2, 1, 3]},
        ValueError,
        r"cu_seqlens\[1\] is 2",
    ),
    ("cu_seqlens is short", lambda _: {"cu_seqlens": [0, 2]}, ValueError, r"runs from 0 to 2"),
    (
        "axis is past the end",
        lambda _: {"axis": 2},
        ValueError,
        r"^axis 2 is out of range: rewards",
    ),
    ("axis is a tuple", lambda _: {"axis": (0, 1)}, TypeError, r"^axis must be an integer, not"),
    ("axis is a bool", lambda _: {"axis": True}, TypeError, r"^axis must be an integer, not True"),
    (
        "masked is misspelt",
        lambda _: {"masked": "nan"},
        ValueError,
        r"^masked must be one of 'zero",
    ),
    (
        "masked_reward is misspelt",
        lambda _: {"masked_reward": "keep"},
        ValueError,
        r"^masked_reward must be one of 'drop', 'raise', 'to_previous_valid', not 'keep'",
    ),
    (
        "a reward on a masked step",
        lambda xp: {"mask": xp.asarray([[1, 1, 1], [1, 1, 0]]), "masked_reward": "raise"},
        ValueError,
        r"^rewards\[1, 2\] is 1.0 on a masked step",
    ),
    (
        "a reward in the padding under check='full'",
        lambda _: {"lengths": [3, 1], "check": "full"},
        ValueError,
        r"^rewards\[1, 1\] is 1.0 on a masked step",
    ),
    (
        "NaN under check='full'",
        lambda xp: {"rewards": xp.asarray([[1.0] * 3, [1.0, float("nan"), 1.0]]), "check": "full"},
        ValueError,
        r"^rewards\[1, 1\] is NaN",
    ),
    (
        "out_dtype is unknown",
        lambda _: {"out_dtype": "float31"},
        TypeError,
        r"^out_dtype must be a",
    ),
    ("out_dtype is a number", lambda _: {"out_dtype": 5}, TypeError, r"^out_dtype must be a dtype"),
    ("out_dtype is an integer", lambda _: {"out_dtype": int}, TypeError, r"^out_dtype .*'int64'"),
    (
        "out_dtype is complex",
        lambda _: {"out_dtype": complex},
        TypeError,
        r"^out_dtype .*'complex1",
    ),
    ("unknown backend", lambda _: {"backend": "nope"}, ValueError, r"'nope'; installed: .*numpy"),
    ("chunk_size is 0", lambda _: {"chunk_size": 0}, ValueError, r"^chunk_size must be at least 1"),
    (
        "chunk_size is a float",
        lambda _: {"chunk_size": 0.5},
        TypeError,
        r"^chunk_size must be an in",
    ),
    ("check is misspelt", lambda _: {"check": "of"}, ValueError, r"^check must be .* not 'of'"),
    ("dones", lambda xp: {"dones": no(xp)}, TypeError, r"unexpected keyword argument 'dones'"),
)
def test_every_estimator(misuse: Misuse, xp: Any, name: str):
    check(misuse, lambda: estimate(name, xp, **misuse.call(xp)))


@pytest.mark.parametrize("name", ["gae", "td_lambda"])
@LIBRARIES
@table(
    ("lam is None", lambda _: {"lam": None}, TypeError, r"^lam must be a real number .*None"),
    ("lam is a string", lambda _: {"lam": "0.9"}, TypeError, r"^lam must be .*str"),
    (
        "lam per row without the axis of time",
        lambda xp: {"lam": xp.ones(2)},
        ValueError,
        r"^lam has shape \(2,\), which does not broadcast to \(2, 3\)",
    ),
    (
        "values transposed",
        lambda xp: {"values": xp.ones((3, 2))},
        ValueError,
        r"^values has shape \(3, 2\), but rewards has shape \(2, 3\): .* or \(2, 4\)",
    ),
    (
        "values with an axis of size 1",
        lambda xp: {"values": xp.ones((2, 3, 1))},
        ValueError,
        r"^values has shape \(2, 3, 1\), but rewards has shape \(2, 3\)",
    ),
    (
        "values a step short",
        lambda xp: {"values": xp.ones((2, 2))},
        ValueError,
        r"^values has shape \(2, 2\), but rewards has shape \(2, 3\)",
    ),
    (
        "values per row",
        lambda xp: {"values": xp.ones((2, 1))},
        ValueError,
        r"^values has shape \(2, 1\), but rewards has shape \(2, 3\)",
    ),
    (
        "values is a number",
        lambda _: {"values": 1.0},
        ValueError,
        r"^values has shape \(\), but re",
    ),
    ("values is None", lambda _: {"values": None}, ValueError, r"^values is "),
    (
        "values of another library",
        lambda xp: {"values": other(xp).ones((2, 3))},
        TypeError,
        r"one library .* values is a ",
    ),
    (
        "values is complex",
        lambda xp: {"values": xp.ones((2, 3), dtype=xp.complex64)},
        TypeError,
        r"^values has dtype .*complex64, but",
    ),
    (
        "NaN values under check='full'",
        lambda xp: {"values": xp.asarray([[1.0] * 3, [1.0, 1.0, float("nan")]]), "check": "full"},
        ValueError,
        r"^values\[1, 2\] is NaN",
    ),
    (
        "next_values with a step too many",
        lambda xp: {"next_values": xp.ones((2, 4))},
        ValueError,
        r"^next_values has shape \(2, 4\), but rewards has shape \(2, 3\)",
    ),
    (
        "longer values and last_values",
        lambda xp: {"values": xp.ones((2, 4)), "last_values": xp.ones(2)},
        ValueError,
        r"^the bootstrap has one source, .* values with one step more .* and last_values",
    ),
    (
        "longer values and next_values",
        lambda xp: {"values": xp.ones((2, 4)), "next_values": xp.ones((2, 3))},
        ValueError,
        r"^the bootstrap has one source, .* values with one step more .* and next_values",
    ),
    (
        "next_values and last_values",
        lambda xp: {"next_values": xp.ones((2, 3)), "last_values": xp.ones(2)},
        ValueError,
        r"^the bootstrap has one source, .* next_values and last_values",
    ),
    (
        "next_values and truncation_values",
        lambda xp: {
            "next_values": xp.ones((2, 3)),
            "truncation_values": xp.ones((2, 3)),
            "truncated": no(xp),
        },
        ValueError,
        r"^next_values already holds the value after a truncated step",
    ),
    (
        "longer values and cu_seqlens",
        lambda xp: {"values": xp.ones((2, 4)), "cu_seqlens": [0, 3]},
        ValueError,
        r"^with cu_seqlens, values has the length of rewards: .* last_values",
    ),
)
def test_estimators_with_values(misuse: Misuse, xp: Any, name: str):
    check(misuse, lambda: estimate(name, xp, **misuse.call(xp)))


@LIBRARIES
@table(
    (
        "gamma is missing",
        lambda xp: linscan.gae(xp.ones(3), xp.ones(3), lam=1),
        TypeError,
        "'gamma'",
    ),
    ("lam is missing", lambda xp: linscan.gae(xp.ones(3), xp.ones(3), gamma=1), TypeError, "'lam'"),
    (
        "lam by position",
        lambda xp: linscan.gae(xp.ones(3), xp.ones(3), 1, 1),
        TypeError,
        "position",
    ),
    (
        "lam_returns does not broadcast",
        lambda xp: gae(xp, lam_returns=xp.ones(2)),
        ValueError,
        r"^lam_returns has shape \(2,\), which does not broadcast to \(2, 3\)",
    ),
    ("lam_returns is a string", lambda xp: gae(xp, lam_returns="1"), TypeError, r"^lam_returns mu"),
    (
        "out is one array",
        lambda xp: gae(xp, out=xp.ones((2, 3))),
        TypeError,
        r"^out must be a tuple of 2 arrays: advantages, returns",
    ),
    (
        "out has one array",
        lambda xp: gae(xp, out=(xp.ones((2, 3)),)),
        TypeError,
        r"^out must be a tuple of 2 arrays",
    ),
    (
        "out holds None",
        lambda xp: gae(xp, out=(xp.ones((2, 3)), None)),
        TypeError,
        r"^out\[1\] \(returns\) must be a NumPy array",
    ),
    (
        "out holds lists",
        lambda xp: gae(xp, out=([[0.0] * 3] * 2, [[0.0] * 3] * 2)),
        TypeError,
        r"^out\[0\] \(advantages\) must be an array, not list",
    ),
    (
        "out of another library",
        lambda xp: gae(xp, out=(other(xp).ones((2, 3)), other(xp).ones((2, 3)))),
        TypeError,
        r"one library .* out\[0\] \(advantages\) is a ",
    ),
    (
        "out has another shape",
        lambda xp: gae(xp, out=(xp.ones((2, 3)), xp.ones((2, 4)))),
        ValueError,
        r"^out\[1\] \(returns\) has shape \(2, 4\), but the result has shape \(2, 3\)",
    ),
    (
        "out has another dtype",
        lambda xp: gae(xp, out=(xp.ones((2, 3), dtype=xp.float16), xp.ones((2, 3)))),
        TypeError,
        r"^out\[0\] \(advantages\) has dtype .*float16, but the result has dtype float",
    ),
    (
        "out twice the same",
        lambda xp: gae(xp, out=(x := xp.ones((2, 3)), x)),
        ValueError,
        r"^out\[1\] \(returns\) shares memory with out\[0\] \(advantages\)",
    ),
    (
        "out is rewards",
        lambda xp: gae(xp, rewards=(x := xp.ones((2, 3))), out=(x, xp.ones((2, 3)))),
        ValueError,
        r"^out\[0\] \(advantages\) shares memory with rewards",
    ),
    (
        "out overlaps longer values",
        lambda xp: gae(xp, values=(x := xp.ones((2, 4))), out=(x[:, 1:], xp.ones((2, 3)))),
        ValueError,
        r"^out\[0\] \(advantages\) shares memory with values",
    ),
    (
        "one out for returns is a tuple",
        lambda xp: estimate("discounted_returns", xp, out=(xp.ones((2, 3)),)),
        TypeError,
        r"^out must be an array, not tuple",
    ),
    (
        "current_value without values",
        lambda xp: estimate("discounted_returns", xp, on_missing_bootstrap="current_value"),
        ValueError,
        r"^on_missing_bootstrap='current_value' needs values",
    ),
)
def test_one_estimator(misuse: Misuse, xp: Any):
    refused(misuse, xp)


@LIBRARIES
def test_numpy_has_no_bfloat16(xp: Any):
    out_dtype = "bfloat16" if xp is np else xp.bfloat16
    with pytest.raises(TypeError, match=r"^out_dtype is bfloat16, which NumPy does not have"):
        gae(np, out_dtype=out_dtype)


# ----------------------------------------------------------------------------- the other families

TURNS = {"gamma": 1.0, "lam": 1.0, "gamma_turn": 1.0, "lam_turn": 1.0}


def family(name: str, xp: Any, **changes: Any) -> Any:
    x = xp.ones((2, 3))
    given: dict[str, Any] = {
        "vtrace": {"log_rhos": x, "rewards": x, "values": x, "gamma": 0.9},
        "retrace": {
            **{"rewards": x, "q_values": x, "expected_next_q": x, "log_rhos": x},
            "gamma": 0.9,
        },
        "q_lambda": {"rewards": x, "next_q_max": x, "gamma": 0.9, "lam": 0.9},
        "upgo": {"rewards": x, "values": x},
        "n_step_returns": {"rewards": x, "next_values": x, "gamma": 0.9, "n": 2},
        "eligibility_traces": {"x": x, "gamma": 0.9, "lam": 0.9},
        "turn_gae": {"rewards": x, "values": x, "turn_ids": xp.asarray([0, 1, 1]), **TURNS},
    }[name]
    return getattr(linscan, name)(**{**given, **changes})


FAMILIES = {
    "vtrace": "rewards",
    "retrace": "rewards",
    "q_lambda": "rewards",
    "upgo": "rewards",
    "n_step_returns": "rewards",
    "eligibility_traces": "x",
    "turn_gae": "rewards",
}
"""What each calls its rewards."""


@pytest.mark.parametrize("name", list(FAMILIES))
@LIBRARIES
@table(
    ("rewards is None", lambda _: {"R": None}, TypeError, r"^R must be a .*NoneType"),
    ("rewards has rank 0", lambda xp: {"R": xp.asarray(1.0)}, ValueError, r"^R has rank 0"),
    ("rewards is complex", lambda xp: {"R": xp.ones(3) * 1j}, TypeError, r"^R has dtype .*complex"),
    ("gamma is None", lambda _: {"gamma": None}, TypeError, r"^gamma must be a real number"),
    ("gamma is too long", lambda xp: {"gamma": xp.ones(2)}, ValueError, r"^gamma has shape \(2,\)"),
    ("axis is past the end", lambda _: {"axis": 2}, ValueError, r"^axis 2 is out of range: R has"),
    ("check is misspelt", lambda _: {"check": "all"}, ValueError, r"^check must be one of"),
    ("backend is unknown", lambda _: {"backend": "no"}, ValueError, r"^unknown backend 'no'"),
    ("chunk_size is 0", lambda _: {"chunk_size": 0}, ValueError, r"^chunk_size must be at least 1"),
    (
        "out_dtype",
        lambda _: {"out_dtype": "int8"},
        TypeError,
        r"^out_dtype must be a real floating",
    ),
    ("mask counts", lambda xp: {"mask": xp.asarray([0, 1, 2])}, ValueError, r"^mask must be 0 or"),
    (
        "mask of another library",
        lambda xp: {"mask": other(xp).ones(3)},
        TypeError,
        r"^all arrays must be of one library .* mask is a ",
    ),
    ("lengths", lambda xp: {"lengths": xp.asarray([4, 1])}, ValueError, r"^lengths must be betw"),
    ("cu_seqlens", lambda _: {"cu_seqlens": [0, 2]}, ValueError, r"^cu_seqlens must "),
    (
        "lengths and cu_seqlens",
        lambda _: {"cu_seqlens": [0, 3], "lengths": [1, 1]},
        ValueError,
        r"^lengths and cu_seqlens exclude each other",
    ),
    (
        "terminated has no time",
        lambda xp: {"terminated": xp.ones((2, 1), dtype=xp.bool)},
        ValueError,
        r"^terminated has shape \(2, 1\), without the time axis of R",
    ),
    ("out is a number", lambda _: {"out": 1.0}, TypeError, r"^out must be "),
    (
        "an unknown keyword",
        lambda _: {"dones": 1},
        TypeError,
        r"unexpected keyword argument 'dones",
    ),
)
def test_every_family(misuse: Misuse, xp: Any, name: str):
    own = FAMILIES[name]
    given = {own if k == "R" else k: x for k, x in misuse.call(xp).items()}
    message = misuse.message.replace("^R", f"^{own}").replace(" R", f" {own}")
    check(misuse._replace(message=message), lambda: family(name, xp, **given))


@LIBRARIES
@table(
    *(
        (
            f"{option} is {x!r}",
            lambda xp, o=option, x=x: family("vtrace", xp, **{o: x}),
            error,
            text,
        )
        for option in ("rho_clip", "c_clip", "pg_rho_clip")
        for x, error, text in (
            (-1.0, ValueError, f"^{option} must be at least 0, not -1"),
            (float("nan"), ValueError, f"^{option} must be at least 0, not nan"),
            (None, TypeError, f"^{option} must be a real number or an array of them, not None"),
            ("1", TypeError, f"^{option} must be a NumPy array"),
        )
    ),
    (
        "leak",
        lambda xp: family("vtrace", xp, leak=1.5),
        ValueError,
        "^leak must be between 0 and 1",
    ),
    ("log_rhos", lambda xp: family("vtrace", xp, log_rhos=None), TypeError, "^log_rhos must be a"),
    (
        "log_rhos does not broadcast",
        lambda xp: family("vtrace", xp, log_rhos=xp.ones(2)),
        ValueError,
        r"^log_rhos has shape \(2,\), which does not broadcast to \(2, 3\), the shape of rewards",
    ),
    (
        "log_rhos is complex",
        lambda xp: family("vtrace", xp, log_rhos=xp.ones(3) * 1j),
        TypeError,
        r"^log_rhos must be real numbers",
    ),
    (
        "log_rhos is NaN",
        lambda xp: family("vtrace", xp, log_rhos=xp.asarray([0, 0, float("nan")]), check="full"),
        ValueError,
        r"^log_rhos\[2\] is NaN",
    ),
    (
        "values",
        lambda xp: family("vtrace", xp, values=None),
        ValueError,
        "^values is None, and vtr",
    ),
    (
        "out has two arrays",
        lambda xp: family("vtrace", xp, out=(xp.ones((2, 3)), xp.ones((2, 3)))),
        TypeError,
        "^out must be a tuple of 3 arrays: vs, pg_advantages, errors",
    ),
    (
        "out is log_rhos",
        lambda xp: family(
            "vtrace", xp, log_rhos=(x := xp.ones((2, 3))), out=(x, *xp.ones((2, 2, 3)))
        ),
        ValueError,
        r"^out\[0\] \(vs\) shares memory with log_rhos",
    ),
    (
        "truncated alone",
        lambda xp: family("vtrace", xp, truncated=no(xp)),
        ValueError,
        "^a truncated step bootstraps from the value of its final observation, which is not given",
    ),
    (
        "truncated alone, to UPGO",
        lambda xp: family("upgo", xp, truncated=no(xp)),
        ValueError,
        "^a truncated step bootstraps from the value of its final observation, which is not given",
    ),
    ("rhos", lambda xp: family("upgo", xp, rhos=xp.ones(2)), ValueError, r"^rhos has shape \(2,\)"),
    ("kind", lambda xp: family("retrace", xp, kind="q"), ValueError, "^kind must be one of 'retr"),
    ("kind is a list", lambda xp: family("retrace", xp, kind=[]), ValueError, "^kind must be one"),
    (
        "no log_rhos",
        lambda xp: family("retrace", xp, log_rhos=None),
        ValueError,
        "^log_rhos is None, and kind='retrace' needs it",
    ),
    (
        "no log_pi",
        lambda xp: family("retrace", xp, kind="tree-backup"),
        ValueError,
        "^kind='tree-backup' needs log_pi=",
    ),
    (
        "log_pi to another kind",
        lambda xp: family("retrace", xp, log_pi=xp.ones(3)),
        ValueError,
        "^log_pi is read by kind='tree-backup' alone, and kind is 'retrace'",
    ),
    (
        "q_values with a step too many",
        lambda xp: family("retrace", xp, q_values=xp.ones((2, 4))),
        ValueError,
        r"^q_values has shape \(2, 4\), but rewards has shape \(2, 3\)",
    ),
    (
        "q_values",
        lambda xp: family("retrace", xp, q_values=None),
        ValueError,
        "^q_values is None, a",
    ),
    (
        "expected_next_q",
        lambda xp: family("retrace", xp, expected_next_q=None),
        ValueError,
        "^expected_next_q is None, and retrace needs it",
    ),
    (
        "expected_next_q is NaN",
        lambda xp: family(
            "retrace", xp, expected_next_q=xp.ones((2, 3)) * float("nan"), check="full"
        ),
        ValueError,
        r"^expected_next_q\[0, 0\] is NaN",
    ),
    (
        "next_q_max of another library",
        lambda xp: family("q_lambda", xp, next_q_max=other(xp).ones((2, 3))),
        TypeError,
        "one library .* next_q_max is a ",
    ),
    (
        "no greedy_next",
        lambda xp: family("q_lambda", xp, kind="watkins"),
        ValueError,
        "^kind='watkins' needs greedy_next=",
    ),
    (
        "greedy_next to Peng",
        lambda xp: family("q_lambda", xp, greedy_next=no(xp)),
        ValueError,
        "^greedy_next is read by kind='watkins' alone",
    ),
    (
        "greedy_next counts",
        lambda xp: family("q_lambda", xp, kind="watkins", greedy_next=xp.asarray([0, 1, 2])),
        ValueError,
        r"^greedy_next must be 0 or 1 everywhere, but greedy_next\[2\] is 2",
    ),
    (
        "n is 0",
        lambda xp: family("n_step_returns", xp, n=0),
        ValueError,
        "^n must be at least 1, no",
    ),
    (
        "n is a float",
        lambda xp: family("n_step_returns", xp, n=1.0),
        TypeError,
        "^n must be an int",
    ),
    (
        "n is a bool",
        lambda xp: family("n_step_returns", xp, n=True),
        TypeError,
        "^n must be an inte",
    ),
    (
        "n is None",
        lambda xp: family("n_step_returns", xp, n=None),
        TypeError,
        "^n must be an integ",
    ),
    (
        "turn_ids are floats",
        lambda xp: family("turn_gae", xp, turn_ids=xp.ones(3)),
        TypeError,
        "^turn_ids must be integers, not ",
    ),
    ("turn_ids", lambda xp: family("turn_gae", xp, turn_ids=None), TypeError, "^turn_ids must be "),
    (
        "turn_ids has no time",
        lambda xp: family("turn_gae", xp, turn_ids=xp.asarray([[1], [2]])),
        ValueError,
        r"^turn_ids has shape \(2, 1\), without the time axis",
    ),
    (
        "variant",
        lambda xp: family("turn_gae", xp, variant="x"),
        ValueError,
        "^variant must be one of",
    ),
    (
        "lam_turn",
        lambda xp: family("turn_gae", xp, lam_turn=None),
        TypeError,
        "^lam_turn must be a r",
    ),
)
def test_one_family(misuse: Misuse, xp: Any):
    refused(misuse, xp)


@LIBRARIES
@table(
    (
        "last_done has time",
        lambda xp: linscan.flags.from_episode_starts(no(xp), no(xp)),
        ValueError,
        r"^last_done has shape \(2, 3\), which does not broadcast to \(2,\)",
    ),
    (
        "last_done counts",
        lambda xp: linscan.flags.from_episode_starts(no(xp), 2),
        ValueError,
        "^last_done must be 0 or 1 everywhere, but last_done is 2",
    ),
    (
        "starts counts",
        lambda xp: linscan.flags.from_episode_starts(xp.asarray([0, 2]), 1),
        ValueError,
        r"^starts must be 0 or 1 everywhere, but starts\[1\] is 2",
    ),
    (
        "starts",
        lambda _: linscan.flags.from_episode_starts(None, 1),
        TypeError,
        "^starts must be a ",
    ),
    ("arrived", lambda _: linscan.flags.from_arrival(1.0), TypeError, "^arrived must be a "),
    (
        "arrived has rank 0",
        lambda xp: linscan.flags.from_arrival(xp.asarray(1.0)),
        ValueError,
        "^arrived has rank 0",
    ),
    (
        "last of another library",
        lambda xp: linscan.flags.from_arrival(xp.ones(3), other(xp).ones(1)),
        TypeError,
        "one library .* last is a ",
    ),
    (
        "axis",
        lambda xp: linscan.flags.from_arrival(xp.ones(3), axis=1),
        ValueError,
        "^axis 1 is out",
    ),
    (
        "score has time",
        lambda xp: linscan.place_terminal_reward(no(xp), xp.ones((2, 3))),
        ValueError,
        r"^score has shape \(2, 3\), which does not broadcast to \(2,\)",
    ),
    (
        "score is complex",
        lambda xp: linscan.place_terminal_reward(no(xp), xp.ones(2) * 1j),
        TypeError,
        "^score must be real",
    ),
    (
        "score is None",
        lambda xp: linscan.place_terminal_reward(no(xp), None),
        TypeError,
        "^score mu",
    ),
    (
        "mask",
        lambda xp: linscan.place_terminal_reward(xp.ones(2) * 2, 1),
        ValueError,
        "^mask must be",
    ),
    (
        "alpha",
        lambda _: linscan.length_adaptive_lam(9, alpha=0),
        ValueError,
        "^alpha must be a finit",
    ),
    ("no lengths", lambda _: linscan.length_adaptive_lam(None), TypeError, "^lengths must be a "),
    (
        "lengths are complex",
        lambda xp: linscan.length_adaptive_lam(xp.ones(2) * 1j),
        TypeError,
        "^lengths must be real",
    ),
    (
        "starts of sums",
        lambda xp: linscan.episodic_sum(xp.ones(3), xp.ones(2)),
        ValueError,
        r"^starts has shape \(2,\), which does not broadcast to \(3,\), the shape of x",
    ),
    (
        "starts of sums count",
        lambda xp: linscan.episodic_sum(xp.ones(3), xp.asarray([0, 1, 2])),
        ValueError,
        r"^starts must be 0 or 1 everywhere, but starts\[2\] is 2",
    ),
    (
        "nothing",
        lambda _: linscan.position_ids(),
        TypeError,
        "^position_ids takes either starts or c",
    ),
    ("a row", lambda xp: linscan.position_ids(xp.asarray(True)), ValueError, "^starts has rank 0"),
    (
        "offsets that fall",
        lambda _: linscan.position_ids(cu_seqlens=[0, 3, 2]),
        ValueError,
        "^cu_seqlens must ",
    ),
    (
        "offsets in two rows",
        lambda xp: linscan.position_ids(cu_seqlens=xp.asarray([[0, 1]])),
        ValueError,
        "^cu_seqlens must be one-dimensional",
    ),
    (
        "offsets that are floats",
        lambda xp: linscan.position_ids(cu_seqlens=xp.asarray([0.0, 1.0])),
        TypeError,
        "^cu_seqlens must be integers",
    ),
)
def test_flags_rewards_and_positions(misuse: Misuse, xp: Any):
    refused(misuse, xp)


# ------------------------------------------------------------------------------------------ whiten


@LIBRARIES
@table(
    ("x is a number", lambda _: linscan.whiten(1.0), TypeError, r"^x must be a NumPy array"),
    ("x is text", lambda _: linscan.whiten(["a"]), TypeError, r"^x has dtype <U1"),
    (
        "x is complex",
        lambda xp: linscan.whiten(xp.ones(3, dtype=xp.complex64)),
        TypeError,
        r"^x must be real, not .*complex64",
    ),
    (
        "mask does not broadcast",
        lambda xp: linscan.whiten(xp.ones(3), xp.ones(2, dtype=xp.bool)),
        ValueError,
        r"^mask has shape \(2,\), which does not broadcast to \(3,\), the shape of x",
    ),
    (
        "mask counts",
        lambda xp: linscan.whiten(xp.ones(3), xp.asarray([0, 1, 2])),
        ValueError,
        r"^mask must be 0 or 1 everywhere, but mask\[2\] is 2$",
    ),
    (
        "mask of another library",
        lambda xp: linscan.whiten(xp.ones(3), other(xp).ones(3)),
        TypeError,
        r"one library .* mask is a ",
    ),
    ("mask is a bool", lambda xp: linscan.whiten(xp.ones(3), True), TypeError, r"^mask must be a "),
    (
        "axis is past the end",
        lambda xp: linscan.whiten(xp.ones(3), axis=1),
        ValueError,
        r"^axis 1 i",
    ),
    (
        "axis twice",
        lambda xp: linscan.whiten(xp.ones(3), axis=(0, -1)),
        ValueError,
        r"axis twice: ",
    ),
    (
        "axis is a float",
        lambda xp: linscan.whiten(xp.ones(3), axis=0.0),
        TypeError,
        r"^axis must be",
    ),
    (
        "eps is negative",
        lambda xp: linscan.whiten(xp.ones(3), eps=-1.0),
        ValueError,
        r"^eps must be",
    ),
    ("eps is None", lambda xp: linscan.whiten(xp.ones(3), eps=None), ValueError, r"^eps must be"),
    (
        "unbiased is a string",
        lambda xp: linscan.whiten(xp.ones(3), unbiased="no"),
        TypeError,
        r"^unbiased must be True or False, not 'no'",
    ),
    (
        "shift_mean is None",
        lambda xp: linscan.whiten(xp.ones(3), shift_mean=None),
        TypeError,
        r"^shift_mean must be True or False",
    ),
    (
        "on_degenerate is misspelt",
        lambda xp: linscan.whiten(xp.ones(3), on_degenerate="warn"),
        ValueError,
        r"^on_degenerate must be one of 'zero', 'raise', not 'warn'",
    ),
    (
        "too few to whiten",
        lambda xp: linscan.whiten(xp.ones(1), on_degenerate="raise"),
        ValueError,
        r"^whitening needs at least 2 valid elements, but a set has 1",
    ),
)
def test_whiten(misuse: Misuse, xp: Any):
    refused(misuse, xp)


# ------------------------------------------------------------------------ explain, and use_backend


@LIBRARIES
@table(
    (
        "any other function",
        lambda _: linscan.explain(print),
        TypeError,
        r"^explain knows scan, gae",
    ),
    (
        "a function without a backend",
        lambda xp: linscan.explain(linscan.whiten, xp.ones(3)),
        TypeError,
        r"^explain knows scan, gae, discounted_returns, td_lambda, .*turn_gae, not .*whiten",
    ),
    ("a alone", lambda xp: linscan.explain(xp.ones(3)), TypeError, r"missing .* 'b'"),
    (
        "an estimator without gamma",
        lambda xp: linscan.explain(linscan.gae, xp.ones(3), xp.ones(3), lam=1.0),
        TypeError,
        r"missing .* 'gamma'",
    ),
    (
        "an unknown keyword",
        lambda xp: linscan.explain(0.5, xp.ones(3), dim=0),
        TypeError,
        r"unexpected keyword argument 'dim'",
    ),
    (
        "what the scan would refuse",
        lambda xp: linscan.explain(xp.ones(2), xp.ones(3)),
        ValueError,
        r"^a has shape \(2,\) and b has shape \(3,\)",
    ),
    (
        "what the estimator would refuse",
        lambda xp: linscan.explain(linscan.gae, xp.ones(3), xp.ones(2), gamma=1.0, lam=1.0),
        ValueError,
        r"^values has shape \(2,\), but rewards has shape \(3,\)",
    ),
    (
        "an option that the scan would refuse",
        lambda xp: linscan.explain(0.5, xp.ones(3), axis=[0]),
        TypeError,
        r"^axis must be an integer",
    ),
)
def test_explain(misuse: Misuse, xp: Any):
    refused(misuse, xp)


@pytest.mark.parametrize("name", ["nope", "", None, ["numpy"], np])
def test_use_backend(name: Any):
    with (
        pytest.raises(ValueError, match=r"^unknown backend .*; installed: .*numpy"),
        linscan.use_backend(name),
    ):
        pass


# ------------------------------------------------------- what is not a misuse, and must not be one


@EVERY
@LIBRARIES
def test_an_axis_or_a_chunk_size_may_be_an_integer_of_numpy(xp: Any, name: str):
    """The plan of one call must not serve another: NumPy's integers hash by value, not by type."""
    rewards = xp.asarray([[1.0, 2.0], [4.0, 8.0]])
    values = xp.zeros((2, 2))
    for axis in (0, 1):
        options = {"rewards": rewards, "axis": np.int64(axis), "chunk_size": np.int32(axis + 1)}
        if name != "discounted_returns":
            options |= {"values": values, "lam": 1.0}
        x = estimate(name, xp, **{**options, "gamma": 1.0})
        x = x[0] if name == "gae" else x
        expected = [[5.0, 10.0], [4.0, 8.0]] if axis == 0 else [[3.0, 2.0], [12.0, 8.0]]
        assert x.tolist() == expected


@LIBRARIES
def test_out_may_be_a_list_of_views(xp: Any):
    """Arrays of other strides in a second call are written to, not copies of them."""
    for step in (1, 2):
        out = [xp.zeros((2, 3 * step))[:, ::step] for _ in range(2)]
        returned = gae(xp, out=out, gamma=0.0)
        assert returned.advantages is out[0]
        assert out[0].tolist() == [[0.0] * 3] * 2
        assert out[1].tolist() == [[1.0] * 3] * 2


@TORCH
@pytest.mark.parametrize("a", [np.float32(0.5), np.float64(0.5), np.int64(2), np.bool_(True)])
def test_a_numpy_number_times_a_tensor(a: Any):
    """``gamma`` often comes out of NumPy; it is a number wherever a Python number is."""
    x = linscan.scan(a, torch.ones(3))
    assert x.dtype == torch.float32
    assert x.tolist() == [1.0, 1.0 + float(a), 1.0 + float(a) * (1.0 + float(a))]


@pytest.mark.parametrize("lengths", [2, np.int64(2), [2], (2,)])
@LIBRARIES
def test_lengths_may_be_numbers_or_lists(xp: Any, lengths: Any):
    rewards = xp.ones(3) if np.ndim(lengths) == 0 else xp.ones((1, 3))
    x = linscan.discounted_returns(rewards, gamma=1.0, lengths=lengths)
    assert x.reshape(-1).tolist() == [2.0, 1.0, 0.0]


def test_a_number_too_large_for_half_precision_is_infinite_without_a_warning():
    x = linscan.discounted_returns(np.ones(2, np.float16), gamma=1.0, last_values=1e6)
    assert x.dtype == np.float16
    assert x.tolist() == [np.inf, np.inf]


def test_in_place_on_a_memory_map(tmp_path: Any):
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=3)
    x[:] = 1.0
    linscan.scan(0.5, x, out=x)
    assert x.tolist() == [1.0, 1.5, 1.75]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linscan.scan(10**400, np.ones(3)), "^a is too large"),
        (lambda: linscan.gae([1.0], [1.0], gamma=10**400, lam=1.0), "^gamma is too large"),
        (lambda: linscan.scan(1.0, np.ones(3), check=np.ones(3)), "^check must be one of"),
        (
            lambda: linscan.gae([1.0], [1.0], gamma=1.0, lam=1.0, masked=np.ones(3)),
            "^masked must be one of",
        ),
        (lambda: linscan.whiten(np.ones(3), on_degenerate=np.ones(3)), "^on_degenerate must be"),
        (lambda: linscan.whiten(np.ones(3), eps=float("inf")), "^eps must be a finite number"),
    ],
)
def test_options_of_outlandish_kinds(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_nan_that_is_never_read_passes_the_full_check() -> None:
    nan = float("nan")
    options: dict[str, Any] = {"check": "full"}
    assert linscan.scan([nan, 0.5, 0.5], [1.0, 1, 1], **options).tolist() == [1, 1.5, 1.75]
    assert linscan.scan([0.5, nan], [1.0, 1], reverse=True, **options).tolist() == [1.5, 1]
    cut = linscan.scan([0.5, nan], [1.0, 1], 2.0, reset=[False, True], **options)
    assert cut.tolist() == [2, 1]
    over: dict[str, Any] = {"gamma": 1.0, "lam": 1.0, "terminated": [1, 0], "check": "full"}
    given = linscan.td_lambda([1.0, 1.0], next_values=[nan, 2.0], **over)
    assert given.tolist() == [1, 3]
    both = linscan.gae(
        [1.0, 1.0], [0.0, 0.0], truncated=[1, 0], truncation_values=[nan, nan], **over
    )
    assert both.advantages.tolist() == [1, 1]


def test_no_warning_from_rewards_that_are_infinite() -> None:
    inf = float("inf")
    x = linscan.discounted_returns(
        [1.0, inf, -inf, 1.0], gamma=1.0, mask=[1, 0, 0, 1], masked_reward="to_previous_valid"
    )
    assert np.isnan(x[0])
    assert x[3] == 1


def test_flags_that_say_the_same_of_every_step() -> None:
    """CleanRL's ``next_done`` is no flag of a transition."""
    x = np.ones((4, 2))
    options: dict[str, Any] = {"gamma": 1.0, "lam": 1.0, "axis": 0}
    with pytest.raises(ValueError, match=r"^terminated has shape \(2,\), without the time axis"):
        linscan.gae(x, x, terminated=[True, False], **options)
    whole = np.broadcast_to([True, False], x.shape)
    assert linscan.gae(x, x, terminated=whole, **options).advantages[:, 0].tolist() == [0] * 4
