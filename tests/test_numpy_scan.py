"""The NumPy backend against a serial loop in wider precision."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from linscan._problem import Kind, ScanProblem
from linscan_numpy import BACKEND
from linscan_numpy._scan import choose

KINDS: tuple[Kind, ...] = ("scalar", "row", "step", "full")
DTYPES = ("float16", "float32", "float64", "complex64", "complex128")
LENGTHS = (0, 1, 2, 15, 16, 17, 64, 65, 255, 256, 257, 1023, 1024, 1025, 2049, 8191, 8192, 8193)


class Case(NamedTuple):
    problem: ScanProblem
    a: Any
    b: Any
    initial: Any
    reset: Any

    def run(self, out: Any = None) -> tuple[Any, Any]:
        return BACKEND.scan(self.problem, self.a, self.b, self.initial, self.reset, out)


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def make(
    shape: tuple[int, int, int],
    dtype: str = "float32",
    kind: Kind = "full",
    *,
    reverse: bool = False,
    reset: float = 0,
    initial: bool = False,
    low: float = 0.9,
    high: float = 1.0,
    seed: int = 0,
) -> Case:
    """Multipliers of magnitude U(low, high) and random sign or phase."""
    rng = np.random.default_rng(seed)
    outer, time, inner = shape
    sizes = {"row": (outer, 1, inner), "step": (1, time, 1), "full": shape, "scalar": (1, 1, 1)}
    phase = normal(rng, sizes[kind], dtype)
    phase = phase / np.maximum(abs(phase), 1e-3)
    a: Any = (rng.uniform(low, high, sizes[kind]) * phase).astype(dtype)
    if kind == "scalar":
        a = a.item()
    problem = ScanProblem(*shape, dtype, kind, reverse, bool(reset), initial, True)
    return Case(
        problem,
        a,
        normal(rng, shape, dtype),
        normal(rng, (outer, 1, inner), dtype) if initial else None,
        rng.random(shape) < reset if reset else None,
    )


def times(x: Any, y: Any) -> Any:
    """The product by its definition: NumPy's own rounds complex ones as their layout has it."""
    if x.dtype.kind != "c":
        return x * y
    product = np.empty_like(y)
    product.real = x.real * y.real - x.imag * y.imag
    product.imag = x.real * y.imag + x.imag * y.real
    return product


def serial(case: Case, dtype: Any) -> tuple[Any, Any]:
    """The definition: one multiplication and one addition per step, in ``dtype``."""
    problem = case.problem
    shape = problem.outer, problem.time, problem.inner
    a = np.asarray(case.a)
    if problem.a == "scalar":
        a = a.astype(problem.accumulate)
    a = np.broadcast_to(a.astype(dtype), shape)
    b = np.broadcast_to(np.asarray(case.b).astype(dtype), shape)
    reset = np.broadcast_to(False if case.reset is None else case.reset, shape)
    x = np.empty(shape, dtype)
    state = np.zeros((shape[0], shape[2]), dtype)
    if case.initial is not None:
        state = np.broadcast_to(case.initial[:, 0], state.shape).astype(dtype)
    past = case.initial is not None
    steps = range(shape[1])
    with np.errstate(all="ignore"):
        for t in reversed(steps) if problem.reverse else steps:
            kept = b[:, t] + times(a[:, t], state) if past else b[:, t]
            state = x[:, t] = np.where(reset[:, t], b[:, t], kept)
            past = True
    return x, state[:, None]


def wider(dtype: str) -> Any:
    return {
        "float16": np.float64,
        "float32": np.float64,
        "float64": np.longdouble,
        "complex64": np.complex128,
        "complex128": np.clongdouble,
    }[dtype]


def assert_lawful(case: Case, x: Any, final: Any) -> None:
    """At most twice the serial loop's error, plus one ulp, in units of each row's largest state."""
    problem = case.problem
    exact, exact_final = serial(case, wider(problem.dtype))
    with np.errstate(over="ignore"):
        looped = serial(case, problem.accumulate)[0].astype(problem.dtype)
    assert x.dtype == final.dtype == problem.dtype
    assert x.shape == exact.shape
    assert final.shape == exact_final.shape
    if not exact.size:
        return
    size = np.maximum(abs(exact).max(axis=1, keepdims=True), np.finfo(exact.dtype).tiny)
    allowed = 2 * (abs(looped - exact) / size).max() + np.finfo(problem.dtype).eps
    assert (abs(x - exact) / size).max() <= allowed
    assert (abs(final - exact_final) / size).max() <= allowed


ALGORITHMS = ("plain loop", "row loop", "transposed replay", "power matrix")


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every algorithm in turn, whatever the shape."""
    monkeypatch.setattr("linscan_numpy._scan.choose", lambda *_: request.param)
    return str(request.param)


def kinds(algorithm: str) -> tuple[Kind, ...]:
    return ("scalar",) if algorithm == "power matrix" else KINDS


def resets(algorithm: str) -> tuple[float, ...]:
    return (0,) if algorithm == "power matrix" else (0, 0.02)


@pytest.mark.parametrize("time", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_chosen_algorithm(dtype: str, time: int) -> None:
    for i, (kind, reverse, reset, initial) in enumerate(
        itertools.product(KINDS, (False, True), (0, 0.02), (False, True))
    ):
        some = 1 if time < 100 else 8 if time < 3000 else 16
        if i % some != time % some:
            continue
        case = make((2, time, 1), dtype, kind, reverse=reverse, reset=reset, initial=initial)
        assert_lawful(case, *case.run())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 1, 2), (1, 17, 20), (5, 33, 3), (70, 130, 1), (2, 300, 17)])
def test_each_algorithm(algorithm: str, dtype: str, shape: tuple[int, int, int]) -> None:
    for kind, reverse, reset, initial in itertools.product(
        kinds(algorithm), (False, True), resets(algorithm), (False, True)
    ):
        if kind in ("row", "step") and reverse == initial:
            continue
        case = make(shape, dtype, kind, reverse=reverse, reset=reset, initial=initial)
        assert_lawful(case, *case.run())


@pytest.mark.parametrize(
    ("time", "kind", "reverse"),
    [(65535, "full", True), (524_300, "scalar", True), (600_001, "full", False)],
)
def test_several_tiles(time: int, kind: Kind, reverse: bool) -> None:
    case = make((1, time, 1), "float32", kind, reverse=reverse, initial=True)
    assert_lawful(case, *case.run())


@pytest.mark.parametrize("inner", [1, 3, 16, 20])
def test_a_last_tile_of_any_length(inner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linscan_numpy._scan.choose", lambda *_: "transposed replay")
    monkeypatch.setattr("linscan_numpy._transposed_replay.TILE", 1 << 14)  # 128 chunks
    span = 128 // inner * 16
    for rest in range(18):
        case = make((1, 2 * span + rest, inner), "float32", initial=True)
        assert_lawful(case, *case.run())


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((2, 70_001, 2), "scalar"),
        ((2, 70_001, 2), "full"),
        *itertools.product([(1, 10_001, 17), (17, 10_001, 1)], KINDS),
    ],
)
def test_several_tiles_of_several_lanes(shape: tuple[int, int, int], kind: Kind) -> None:
    case = make(shape, "float32", kind, reverse=True, reset=0.001 * (kind != "scalar"))
    assert_lawful(case, *case.run())


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize(
    ("low", "high", "sign", "reset"),
    [
        (0, 1, 1, 0),
        (0.9, 1, 1, 0),
        (0.99, 0.99, 1, 0),
        (0.999, 0.999, 1, 0),
        (0.999, 0.999, 0, 0),
        (1, 1, 1, 0),
        (-1, -1, 1, 0),
        (0.99, 0.99, 1, 0.01),
        (1, 1, 1, 0.001),
        (0.1, 3, 0, 0.3),
    ],
)
def test_error_law(dtype: str, low: float, high: float, sign: int, reset: float) -> None:
    """Equal multipliers near 1 are the hard case: their products are all rounded the same way."""
    time = 10_000
    rng = np.random.default_rng(1)
    signs = sign or rng.choice([-1, 1], time)
    a = (rng.uniform(low, high, time) * signs).astype(dtype)[None, :, None]
    full = make((1, time, 1), dtype, "full", reset=reset, initial=True)._replace(a=a)
    assert_lawful(full, *full.run())
    if low == high and sign and not reset:
        scalar = make((1, time, 1), dtype, "scalar", initial=True)._replace(a=low)
        assert_lawful(scalar, *scalar.run())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("signs", [(1, 1), (-1, 1)])
def test_error_law_for_many_memories(dtype: str, signs: tuple[int, int]) -> None:
    """Some multipliers near 1 have products that are rounded unluckily, and always the same way."""
    rng = np.random.default_rng(3)
    case = make((64, 1 << 13, 1), dtype)
    a = 1 - 10 ** rng.uniform(-4, -1, (64, 1, 1)) * np.ones_like(case.b)
    case = case._replace(a=(a * rng.choice(signs, a.shape)).astype(dtype))
    assert_lawful(case, *case.run())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("a", "sign"), [(-1.0, 1), (-0.9999, 1), (0.9999, -1)])
def test_error_law_for_periodic_data(dtype: str, a: float, sign: int) -> None:
    """Every chunk is rounded alike, while the loop may round once and then never again."""
    shape = 8, 20_000, 1
    b = np.resize([1, sign], shape[1])[:, None] * np.ones(shape)
    full = make(shape, dtype, initial=True)._replace(a=np.full(shape, a, dtype), b=b.astype(dtype))
    assert_lawful(full, *full.run())
    scalar = full._replace(problem=make(shape, dtype, "scalar", initial=True).problem, a=a)
    assert_lawful(scalar, *scalar.run())


def test_step_and_row_multipliers_of_a_single_lane_agree_with_full() -> None:
    step = make((1, 3000, 1), kind="step")
    full = step._replace(problem=make((1, 3000, 1), kind="full").problem)
    np.testing.assert_array_equal(step.run()[0], full.run()[0])


def strided(x: Any, layout: str) -> Any:
    """The same values in another layout, except that ``expanded`` keeps one lane of them."""
    if not isinstance(x, np.ndarray):
        return x
    if layout == "transposed":
        return np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0)
    if layout == "time first":
        return np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)
    if layout == "negative":
        return np.ascontiguousarray(x[::-1, ::-1, ::-1])[::-1, ::-1, ::-1]
    if layout == "sliced":
        wide = np.zeros((x.shape[0], 2 * x.shape[1], x.shape[2] + 3), x.dtype)
        wide[:, ::2, 1:-2] = x
        return wide[:, ::2, 1:-2]
    if layout == "misaligned":
        raw = np.zeros(x.nbytes + 1, np.uint8)
        y = raw[1:].view(x.dtype).reshape(x.shape)
        y[...] = x
        return y
    if layout == "read-only":
        y = x.copy()
        y.flags.writeable = False
        return y
    assert layout == "expanded"
    return x[:1, :, :1] if x.shape[1] > 1 else x


@pytest.mark.parametrize(
    "layout",
    ["transposed", "time first", "negative", "sliced", "misaligned", "read-only", "expanded"],
)
def test_layouts(algorithm: str, layout: str) -> None:
    for shape, dtype, kind, reverse in itertools.product(
        [(40, 67, 3), (3, 40, 35)], ("float16", "float32"), kinds(algorithm), (False, True)
    ):
        reset = resets(algorithm)[-1]
        case = make(shape, dtype, kind, reverse=reverse, reset=reset, initial=True)
        case = Case(case.problem, *(strided(x, layout) for x in case[1:]))
        assert_lawful(case, *case.run())
        outs = ("transposed", "negative", "sliced", "misaligned")
        out = strided(np.full(shape, np.nan, dtype), layout if layout in outs else "sliced")
        x, final = case.run(out)
        assert x is out
        assert_lawful(case, x, final)


def test_in_place(algorithm: str) -> None:
    for shape, dtype, kind in itertools.product(
        [(4, 100, 3), (1, 5000, 1)], ("float16", "float32"), kinds(algorithm)
    ):
        if algorithm == "row loop" and shape[1] > 1000:
            continue
        case = make(shape, dtype, kind, reset=resets(algorithm)[-1])
        buffer = case.b.copy()
        x, final = case._replace(b=buffer).run(buffer)
        assert x is buffer
        assert_lawful(case, x, final)


def test_inputs_are_left_alone_and_results_are_fresh_and_contiguous(algorithm: str) -> None:
    case = make((3, 500, 2), kind=kinds(algorithm)[-1], initial=True)
    kept = [np.copy(x) for x in case[1:4]]
    x, final = case.run()
    for before, after in zip(kept, case[1:4], strict=True):
        np.testing.assert_array_equal(before, after)
    assert x.flags.c_contiguous
    assert x.flags.writeable
    assert not np.shares_memory(x, case.b)
    assert not np.shares_memory(final, case.initial)


def assert_same_as_serial(case: Case) -> None:
    """Finite, infinite and not a number in the same places; lawful where finite."""
    x, final = case.run()
    exact, exact_final = serial(case, case.problem.accumulate)
    for ours, theirs in ((x, exact), (final, exact_final)):
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
        np.testing.assert_array_equal(np.isinf(ours), np.isinf(theirs))
        finite = np.isfinite(theirs)
        np.testing.assert_array_equal(np.sign(ours[~finite]), np.sign(theirs[~finite]))
        np.testing.assert_allclose(ours[finite], theirs[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(1, 1500, 1), (3, 200, 2), (2, 40, 20)])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_poison_spreads_no_further_than_in_the_loop(
    algorithm: str, shape: tuple[int, int, int], reverse: bool, poison: float
) -> None:
    for kind, reset in itertools.product(kinds(algorithm), resets(algorithm)):
        case = make(shape, kind=kind, reset=reset, reverse=reverse, initial=True)
        case.b[0, shape[1] // 3, 0] = poison
        case.b[-1, -2, -1] = poison
        assert_same_as_serial(case)
        case.initial[0] = poison
        assert_same_as_serial(case)


def test_an_infinite_state_that_ends(algorithm: str) -> None:
    case = make((2, 600, 3), kind=kinds(algorithm)[-1])
    case.b[0, 5, 0], case.b[0, 300, 0] = np.inf, np.nan
    assert_same_as_serial(case)


def test_reset_keeps_poison_out(algorithm: str) -> None:
    if algorithm == "power matrix":
        pytest.skip("has no resets")
    for reverse in (False, True):
        case = make((2, 700, 3), reset=0.05, reverse=reverse, initial=True)
        cut = np.argwhere(case.reset)
        case.a[tuple(cut[::2].T)] = np.nan
        case.a[tuple(cut[1::2].T)] = np.inf
        assert np.isfinite(case.run()[0]).all()
        assert_lawful(case, *case.run())
        before = case.reset[:, ::-1] if reverse else case.reset
        lane = case.b[:, ::-1] if reverse else case.b
        last = np.argmax(before[0, :, 0][5:]) + 4
        lane[0, last, 0] = np.inf
        assert_same_as_serial(case)


@pytest.mark.parametrize("shape", [(1, 4000, 1), (4, 200, 1), (1, 50, 20)])
def test_an_overflowing_product_of_multipliers_harms_no_zero_state(
    algorithm: str, shape: tuple[int, int, int]
) -> None:
    case = make(shape, kind=kinds(algorithm)[-1])
    zero = np.zeros(shape, np.float32)
    a = 1e10 if case.problem.a == "scalar" else np.full(shape, 1e10, np.float32)
    np.testing.assert_array_equal(case._replace(a=a, b=zero).run()[0], zero)
    if algorithm == "power matrix":
        return
    late = zero.copy()
    late[:, -2:] = 1
    assert_same_as_serial(case._replace(a=a, b=late))
    mixed = np.full(shape, 0.5, np.float32)
    mixed[:, : shape[1] // 2] = 1e10
    late[:, shape[1] // 2 + 1] = 3
    assert_same_as_serial(case._replace(a=mixed, b=late))


def test_overflow_of_the_state_is_that_of_the_loop(algorithm: str) -> None:
    if algorithm == "power matrix":
        b = make((2, 400, 1)).b
        b[:, 100], b[:, 101], b[:, 102] = 3e38, 3e38, -3e38
        assert_same_as_serial(make((2, 400, 1), kind="scalar")._replace(a=1.0, b=b))
    else:
        assert_same_as_serial(make((2, 400, 1), low=1.5, high=1.6))


def test_the_first_multiplier_is_not_read_without_initial(algorithm: str) -> None:
    for kind in set(kinds(algorithm)) & {"step", "full"}:
        case = make((2, 90, 3), kind=kind)
        case.a[:, 0] = np.nan
        assert np.isfinite(case.run()[0]).all()
    if algorithm == "power matrix":
        return
    single = make((2, 1, 3), kind="scalar")._replace(a=float("nan"))
    np.testing.assert_array_equal(single.run()[0], single.b)


def test_no_steps() -> None:
    case = make((2, 0, 3), initial=True)
    x, final = case.run()
    assert x.shape == (2, 0, 3)
    np.testing.assert_array_equal(final, case.initial)
    np.testing.assert_array_equal(make((2, 0, 3)).run()[1], np.zeros((2, 1, 3)))


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 5, 0), (0, 0, 0)])
def test_no_lanes(shape: tuple[int, int, int]) -> None:
    for kind in KINDS:
        x, final = make(shape, kind=kind, initial=True, reset=0.5).run()
        assert x.shape == shape
        assert final.shape == (shape[0], 1, shape[2])


def test_16_bit_results_are_rounded_once(algorithm: str) -> None:
    case = make((2, 300, 3), "float16", kinds(algorithm)[-1])
    wide = case._replace(
        problem=make((2, 300, 3), "float32", case.problem.a).problem,
        a=case.a if case.problem.a == "scalar" else case.a.astype(np.float32),
        b=case.b.astype(np.float32),
    )
    for ours, theirs in zip(case.run(), wide.run(), strict=True):
        np.testing.assert_array_equal(ours, theirs.astype(np.float16))


def test_same_bits_every_time(algorithm: str) -> None:
    case = make((3, 4000, 2), kind=kinds(algorithm)[-1], reset=resets(algorithm)[-1])
    first = case.run()
    for _ in range(3):
        for x, y in zip(first, case.run(), strict=True):
            assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_torch_tensors_are_shared_and_come_back_as_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    case = make((3, 400, 2), dtype, initial=True, reset=0.02)
    tensors = Case(case.problem, *(torch.from_numpy(x) for x in case[1:]))
    x, final = tensors.run()
    assert isinstance(x, torch.Tensor)
    assert isinstance(final, torch.Tensor)
    assert_lawful(case, x.numpy(), final.numpy())
    assert tensors.run(tensors.b)[0] is tensors.b
    np.testing.assert_array_equal(tensors.b.numpy(), x.numpy())


def test_every_shape_gets_an_algorithm_that_suits_it() -> None:
    def chosen(outer: int, time: int, inner: int, powers: bool = False) -> str:
        return choose(outer * inner, time, inner > 1, powers)

    assert chosen(1, 1 << 24, 1, powers=True) == "power matrix"
    assert chosen(1, 1 << 24, 1) == "transposed replay"
    assert chosen(1, 2048, 4096) == "row loop"
    assert chosen(1, 128, 1) == "plain loop"


def test_backend() -> None:
    assert BACKEND.name == "numpy"
    assert BACKEND.why_not() is None
    assert BACKEND.owns(np.zeros(1))
    assert not BACKEND.owns([0.0])
    assert BACKEND.supports(ScanProblem(1, 2, 3, "float16", "full")) is None
    assert "bfloat16" in (BACKEND.supports(ScanProblem(1, 2, 3, "bfloat16", "full")) or "")
    kernel = BACKEND.explain(ScanProblem(1, 1 << 20, 1, "float32", "full"))
    assert kernel.name == "transposed replay"
    assert kernel.bytes_per_element == 12
