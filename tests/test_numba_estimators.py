"""The fused estimators of the compiled CPU backend against a serial loop in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import linscan
from linscan import _host
from linscan._problem import EstimatorInputs, EstimatorProblem, Kind

pytest.importorskip("numba")

from linscan_numba import _streaming, _threads
from linscan_numba._estimators import FUSED

Array = NDArray[Any]
Source = Literal["zero", "last", "next"]
Flags = Literal["none", "terminated", "values", "current_value", "next", "both"]

LENGTHS = (0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 1023, 1024, 1025, 2049)
GAMMA, LAM, LAM_RETURNS = 0.99, 0.95, 0.9


def serial(problem: EstimatorProblem, inputs: EstimatorInputs, dtype: str) -> tuple[Array, ...]:
    """What ``EstimatorProblem`` says, one step after the other from the end, in ``dtype``."""
    p = problem
    shape = (p.outer, p.time, p.inner)
    kind = np.dtype(dtype).type

    def steps(x: Any) -> Array | None:
        return None if x is None else np.broadcast_to(np.asarray(x), shape).swapaxes(0, 1)

    def number(x: Any) -> Array:
        return np.broadcast_to(np.asarray(x, np.float64), (p.outer, 1, p.inner))[:, 0]

    rewards, values, next_values, _, terminated, truncated, final_values, mask = map(
        steps, inputs[:8]
    )
    gamma = number(inputs.gamma)
    lam = number(1.0 if p.lam is None else inputs.lam)
    lams = [lam] if p.lam_returns is None else [lam, number(inputs.lam_returns)]
    weights = [(gamma * lam).astype(dtype) for lam in lams]
    through = (gamma * (1 - lam)).astype(dtype)
    gamma = gamma.astype(dtype)

    columns = (p.outer, p.inner)
    zero = np.zeros(columns, dtype)
    never = np.zeros(columns, bool)
    states = [zero] * len(weights)
    following = zero
    if inputs.last_values is not None:
        following = np.broadcast_to(inputs.last_values, (p.outer, 1, p.inner))[:, 0].astype(dtype)
    followed, ended, cut = never, never, never
    outputs = [np.empty((p.time, *columns), dtype) for _ in range(1 + (p.estimator == "gae"))]
    for t in reversed(range(p.time)):
        valid = ~never if mask is None else mask[t]
        ends = never if terminated is None else terminated[t]
        cuts = never if truncated is None else truncated[t] & ~ends
        flag = ends | cuts
        ended, cut = np.where(flag, ends, ended), np.where(flag, cuts, cut)
        states = [np.where(flag, kind(0), x) for x in states]
        following = np.where(flag, kind(0), following)
        if p.truncation == "values":
            assert final_values is not None
            following = np.where(cuts, final_values[t].astype(dtype), following)
        n = following if next_values is None else next_values[t].astype(dtype)
        if p.truncation == "current_value":
            assert values is not None
            n = np.where(cut, values[t].astype(dtype), n)
        n = np.where(ended, kind(0), n)
        goes_on = followed & ~ended & ~cut
        value = zero if values is None else values[t].astype(dtype)
        r = rewards[t].astype(dtype)  # type: ignore[index]
        past = [np.where(goes_on, w * x, kind(0)) for w, x in zip(weights, states, strict=True)]
        if p.estimator == "gae":
            new = [r + gamma * n - value + x for x in past]
        elif p.estimator == "td_lambda":
            new = [r + np.where(goes_on, through, gamma) * n + past[0]]
        else:
            new = [r + np.where(goes_on, kind(0), gamma * n) + past[0]]
        states = [np.where(valid, x, old) for x, old in zip(new, states, strict=True)]
        shown = [x if p.masked == "carry" else np.where(valid, x, kind(0)) for x in states]
        outputs[0][t] = shown[0]
        if p.estimator == "gae":
            carried = shown[-1] + value
            outputs[1][t] = carried if p.masked == "carry" else np.where(valid, carried, kind(0))
        following = np.where(valid, value, following)
        followed = followed | valid
        ended, cut = ended & ~valid, cut & ~valid
    return tuple(x.swapaxes(0, 1) for x in outputs)


@dataclass(frozen=True)
class Case:
    """One problem with operands drawn for it, poisoned wherever they must not be read."""

    estimator: Literal["gae", "discounted_returns", "td_lambda"]
    shape: tuple[int, int, int]
    dtype: str = "float32"
    source: Source = "zero"
    flags: Flags = "none"
    masked: Literal["none", "zero", "carry"] = "none"
    coefficients: Kind = "scalar"
    lam_returns: bool = False
    rate: float = 0.1
    holes: float = 0.3
    seed: int = 0

    def build(self) -> tuple[EstimatorProblem, EstimatorInputs]:
        rng = np.random.default_rng(self.seed)
        outer, time, inner = self.shape
        reads_values = self.estimator != "discounted_returns"
        uses_next = self.source == "next"
        truncates = self.flags in ("values", "current_value", "next", "both")
        truncation: Literal["values", "current_value"] | None = None
        if truncates and not uses_next:
            truncation = "current_value" if self.flags == "current_value" else "values"
        if truncation == "current_value" and not reads_values:
            truncation = "values"

        def draw(*shape: int) -> Array:
            return rng.standard_normal(shape or self.shape).astype(self.dtype)

        def flag() -> Array:
            return rng.random(self.shape) < self.rate

        rewards = draw()
        values = draw() if reads_values else None
        next_values = draw() if uses_next else None
        last_values = draw(outer, 1, inner) if self.source == "last" else None
        terminated = flag() if self.flags not in ("none", "values", "next") else None
        truncated = flag() if truncates else None
        final_values = draw() if truncation == "values" else None
        mask = rng.random(self.shape) >= self.holes if self.masked != "none" else None
        if mask is not None and time > 40:
            mask[0, 20:40] = False
            mask[-1, 3:19] = True

        if final_values is not None:
            assert truncated is not None
            final_values[~truncated] = np.nan
            if terminated is not None:
                final_values[terminated] = np.nan
        if next_values is not None:
            next_values[where_ended(terminated, truncated, mask)] = np.nan
        if mask is not None:
            for x in (rewards, values, next_values):
                if x is not None and not (x is values and self.masked == "carry"):
                    x[~mask] = np.nan

        def coefficient(x: float) -> Any:
            if self.coefficients == "scalar":
                return x
            return rng.uniform(x - 0.05, x, (outer, 1, inner))

        has_lam = self.estimator != "discounted_returns"
        problem = EstimatorProblem(
            self.estimator,
            outer,
            time,
            inner,
            self.dtype,
            self.dtype,
            gamma=self.coefficients,
            lam=self.coefficients if has_lam else None,
            lam_returns=self.coefficients if self.lam_returns else None,
            values=reads_values,
            next_values=uses_next,
            last_values=last_values is not None,
            terminated=terminated is not None,
            truncated=truncated is not None,
            truncation=truncation,
            mask=mask is not None,
            masked="carry" if self.masked == "carry" else "zero",
        )
        inputs = EstimatorInputs(
            rewards,
            values,
            next_values,
            last_values,
            terminated,
            truncated,
            final_values,
            mask,
            coefficient(GAMMA),
            coefficient(LAM) if has_lam else None,
            coefficient(LAM_RETURNS) if self.lam_returns else None,
        )
        return problem, inputs


def where_ended(terminated: Array | None, truncated: Array | None, mask: Array | None) -> Any:
    """Where termination acts: flagged in a hole, on the last valid step before it."""
    if terminated is None or mask is None:
        return np.False_ if terminated is None else terminated
    any_flag = terminated if truncated is None else terminated | truncated
    ended = np.zeros_like(terminated)
    pending = np.zeros((terminated.shape[0], terminated.shape[2]), bool)
    for t in reversed(range(terminated.shape[1])):
        pending = np.where(any_flag[:, t], terminated[:, t], pending)
        ended[:, t] = pending & mask[:, t]
        pending = pending & ~mask[:, t]
    return ended


def run(
    problem: EstimatorProblem, inputs: EstimatorInputs, out: tuple[Array, ...] | None = None
) -> tuple[Array, ...]:
    fused = FUSED[problem.estimator](problem)
    assert not isinstance(fused, str), fused
    if out is None:
        shape = (problem.outer, problem.time, problem.inner)
        out = tuple(_host.empty(shape, problem.out_dtype, 1 + (problem.estimator == "gae")))
    fused(inputs, out)
    return out


def worst(x: Array, exact: Array) -> float:
    """The largest error, in units of the largest magnitude in its row."""
    largest = abs(exact).max(axis=1, keepdims=True)
    return float(np.max(abs(x - exact) / np.where(largest, largest, 1)))


def check(problem: EstimatorProblem, inputs: EstimatorInputs) -> None:
    """The error is at most twice the serial loop's, plus one ulp of the row's largest result."""
    exact = serial(problem, inputs, "float64" if problem.dtype == "float32" else "longdouble")
    loop = serial(problem, inputs, problem.dtype)
    for result, x, y in zip(run(problem, inputs), exact, loop, strict=True):
        assert result.dtype == problem.out_dtype
        assert result.shape == x.shape
        if result.size:
            assert np.isfinite(x).all(), "the case itself reads poison"
            assert worst(result, x) <= 2 * worst(y, x) + np.finfo(problem.dtype).eps


ESTIMATORS = ("gae", "discounted_returns", "td_lambda")
LAYOUTS = ("time last", "time first")


def shaped(layout: str, outer: int, time: int, inner: int = 21) -> tuple[int, int, int]:
    return (outer, time, 1) if layout == "time last" else (outer, time, inner)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_combination_of_features(estimator: Any, layout: str, dtype: str) -> None:
    sources, flags = ("zero", "last", "next"), ("none", "terminated", "values", "current_value")
    cases = list(product(sources, (*flags, "next", "both"), ("none", "zero", "carry")))
    for seed, (source, flag, masked) in enumerate(cases):
        if (flag == "next") > (source == "next") or (estimator, source) == (ESTIMATORS[1], "next"):
            continue
        coefficients: Kind = "row" if seed % 2 else "scalar"
        shape = shaped(layout, 2, 90)
        case = Case(estimator, shape, dtype, source, flag, masked, coefficients, seed=seed)  # type: ignore[arg-type]
        check(*case.build())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("time", LENGTHS)
def test_awkward_lengths(time: int, layout: str, dtype: str) -> None:
    plain = Case("gae", shaped(layout, 3, time), dtype, "last", seed=time)
    check(*plain.build())
    check(*replace(plain, flags="both", rate=0.02).build())
    check(*replace(plain, flags="terminated", masked="zero", rate=0.01, holes=0.05).build())
    check(*replace(plain, estimator="td_lambda", masked="carry", holes=0.7).build())


@pytest.mark.parametrize("inner", [1, 2, 7, 8, 15, 16, 17, 33, 1023, 1024, 1030, 2100])
def test_awkward_widths(inner: int) -> None:
    for dtype, masked in product(("float32", "float64"), ("none", "zero")):
        check(*Case("gae", (2, 11, inner), dtype, "last", "both", masked, "row").build())  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("masked", ["none", "zero"])
def test_what_is_not_finite_is_what_the_loop_makes_so(masked: Any, layout: str) -> None:
    rng = np.random.default_rng(1)
    case = Case("gae", shaped(layout, 4, 3000), flags="both", masked=masked, rate=0.02, holes=0.02)
    problem, inputs = case.build()
    for x in (inputs.rewards, inputs.values):
        for bad in (np.nan, np.inf, -np.inf, 3e38):
            x[rng.random(x.shape) < 3e-4] = bad
    with np.errstate(all="ignore"):
        loop = serial(problem, inputs, "float32")
    for x, y in zip(run(problem, inputs), loop, strict=True):
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
        np.testing.assert_array_equal(np.isposinf(x), np.isposinf(y))
        np.testing.assert_array_equal(np.isneginf(x), np.isneginf(y))


def test_powers_that_overflow_leave_a_zero_state_alone() -> None:
    problem, inputs = Case("gae", (2, 2000, 1)).build()
    inputs = inputs._replace(gamma=1e10, rewards=np.zeros_like(inputs.rewards))
    inputs = inputs._replace(values=np.zeros_like(inputs.rewards))
    for x in run(problem, inputs):
        assert not x.any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bits_depend_on_neither_threads_nor_batch_nor_alignment(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("gae", shaped(layout, 40, 3000, 24), flags="both", masked="zero", rate=0.01)
    problem, inputs = case.build()
    results = run(problem, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(_threads, "parts_of", lambda work: 1)
        one = run(problem, inputs)
        patch.setattr(_threads, "parts_of", lambda work: 7)
        seven = run(problem, inputs)
    alone = run(
        replace(problem, outer=1),
        EstimatorInputs(*(x[7:8] if isinstance(x, np.ndarray) else x for x in inputs)),
    )
    shifted = run(
        problem, EstimatorInputs(*(misaligned(x) if x is not None else x for x in inputs))
    )
    for x, *others, single in zip(results, one, seven, shifted, alone, strict=True):
        for other in others:
            np.testing.assert_array_equal(x, other)
        np.testing.assert_array_equal(x[7:8], single)


def misaligned(x: Any) -> Any:
    """The same numbers, one byte off, and read-only."""
    if not isinstance(x, np.ndarray):
        return x
    block = np.empty(x.nbytes + 1, np.uint8)
    y = np.ndarray(x.shape, x.dtype, buffer=block, offset=1)
    y[...] = x
    y.flags.writeable = False
    return y


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("masked", ["none", "zero"])
def test_any_strides(masked: Any, layout: str) -> None:
    case = Case("gae", shaped(layout, 5, 200), source="last", flags="both", masked=masked)
    problem, inputs = case.build()
    results = run(problem, inputs)

    def every_other(x: Array) -> Array:
        return np.repeat(x, 2, axis=1)[:, ::2]

    def backwards(x: Array) -> Array:
        return np.ascontiguousarray(x[:, ::-1])[:, ::-1]

    def transposed(x: Array) -> Array:
        return np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0)

    for change in (every_other, backwards, transposed):
        changed = EstimatorInputs(*(change(x) if isinstance(x, np.ndarray) else x for x in inputs))
        out = tuple(change(np.full_like(x, np.nan)) for x in results)
        assert run(problem, changed, out) is out
        for x, y, z in zip(results, out, run(problem, changed), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(y, z)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_that_broadcast(layout: str) -> None:
    problem, inputs = Case("gae", shaped(layout, 3, 50), flags="terminated").build()
    small = inputs._replace(
        rewards=inputs.rewards[:, :1],
        values=inputs.values[:1],
        terminated=inputs.terminated[:1, :, :1],
    )
    check(problem, small)
    check(problem, small._replace(rewards=inputs.rewards[:1, :1, :1]))


@pytest.mark.parametrize("shape", [(5, 131072, 1), (1, 512, 1056)])
def test_streamed_results_are_the_stored_ones(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_streaming, "pays", lambda size: size > 0)
    rng = np.random.default_rng(0)
    problem = EstimatorProblem("gae", *shape, "float32", "float32", "scalar", "scalar", fresh=False)
    rewards, values = (rng.standard_normal(shape, np.float32) for _ in range(2))
    inputs = EstimatorInputs(rewards, values, None, None, None, None, None, None, GAMMA, LAM, None)
    stored = tuple(np.empty(rewards.size + 1, np.float32)[1:].reshape(shape) for _ in range(2))
    run(problem, inputs, stored)
    for x, y in zip(run(problem, inputs), stored, strict=True):
        assert x.ctypes.data % 64 == 0
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    ("time", "inner", "pitch"), [(3, 1050, 1088), (3, 2054, 2112), (1, 1050, 1088)]
)
@pytest.mark.parametrize("first", [0, 16])
def test_nothing_is_streamed_beside_the_results(
    time: int, inner: int, pitch: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_streaming, "pays", lambda size: size > 0)
    x = np.random.default_rng(0).standard_normal((2, time, inner), np.float32)
    blocks = [_host.empty((1024, pitch), "float32")[0] for _ in range(2)]  # from a page's start on
    for block in blocks:
        block[...] = 7
    out: Any = tuple(block[1 : 1 + time, first : first + inner] for block in blocks)
    linscan.gae(*x, gamma=GAMMA, lam=LAM, axis=0, backend="numba", out=out)
    expected = linscan.gae(*x, gamma=GAMMA, lam=LAM, axis=0, backend="numba")
    for block, result, y in zip(blocks, out, expected, strict=True):
        np.testing.assert_array_equal(result, y)
        result[...] = 7
        assert (block == 7).all()


def test_numbers_that_overflow_are_silent() -> None:
    x = np.ones((2, 9), np.float32)
    for gamma, lam in ((1e200, 1e200), (np.inf, 0.0), (1e300, np.array([[1e300], [1.0]]))):
        linscan.gae(x, x, gamma=gamma, lam=lam, backend="numba")
        linscan.td_lambda(x, x, gamma=gamma, lam=lam, backend="numba")
    linscan.discounted_returns(x, gamma=np.inf, backend="numba")


def test_zeros_of_either_sign_are_not_the_same_discount() -> None:
    signs = []
    for n, gammas in ((9, (0.0, -0.0)), (11, (-0.0, 0.0))):
        x = np.full((2, n), -0.0, np.float32)
        found = {
            str(gamma): np.signbit(linscan.discounted_returns(x, gamma=gamma, backend="numba"))
            for gamma in gammas
        }
        signs.append([found["0.0"][0, 0], found["-0.0"][0, 0]])
    assert signs[0] == signs[1]


def test_torch_tensors_in_torch_tensors_out() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 3, 100), np.float32)
    options: dict[str, Any] = {"gamma": GAMMA, "lam": LAM, "backend": "numba"}
    expected = linscan.gae(*x, **options)
    for y, z in zip(linscan.gae(*torch.from_numpy(x), **options), expected, strict=True):
        assert isinstance(y, torch.Tensor)
        np.testing.assert_array_equal(y.numpy(), z)


@pytest.mark.parametrize(
    "change", [{"dtype": "float16"}, {"out_dtype": "float64"}, {"gamma": "step"}, {"lam": "full"}]
)
def test_what_is_left_to_the_composed_path(change: dict[str, Any]) -> None:
    problem, _ = Case("gae", (3, 100, 1)).build()
    assert isinstance(FUSED["gae"](replace(problem, **change)), str)
