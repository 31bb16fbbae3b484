"""The laws of a scan."""
# ruff: noqa: D103

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linscan import reference
from linscan.testing._interpreter import affordable
from linscan.testing.engines import DTYPES, SIXTEEN_BITS, Engine
from linscan.testing.problems import (
    KINDS,
    LENGTHS,
    LONG,
    Array,
    Problem,
    assert_close,
    multipliers,
    numbers,
    problem,
    rounded,
)

REVERSE = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
ALL_DTYPES = pytest.mark.parametrize("dtype", DTYPES)
DRAWN = settings(derandomize=True, deadline=None, max_examples=affordable(60, 15))


def skip_unless_taken(engine: Engine, dtype: str) -> None:
    """Skip what the backend declines; a law lets it decline 16-bit numbers only."""
    reason = engine.why_not(dtype)
    if reason is not None:
        assert dtype in SIXTEEN_BITS, f"may not decline {dtype}: {reason}"
        pytest.skip(reason)


def operands(engine: Engine, p: Problem) -> tuple[Any, Any, Any, Any]:
    """``(a, b, initial, reset)`` in the engine's library."""
    a = p.a if isinstance(p.a, (int, float, complex)) else engine.array(p.a, p.dtype)
    b, initial = engine.array(p.b, p.dtype), engine.array(p.initial, p.dtype)
    return a, b, initial, engine.array(p.reset)


def check(engine: Engine, p: Problem, factor: float = 1, **options: Any) -> None:
    """The engine's answer is the problem's, and an array like the operands."""
    skip_unless_taken(engine, p.dtype)
    a, b, initial, reset = operands(engine, p)
    x, final = engine.scan(
        a, b, initial, reset=reset, return_final=True, **{**p.options, **options}
    )
    assert type(x) is type(b)
    if not engine.tiled:  # where it takes no time, without the final state too
        alone = engine.scan(a, b, initial, reset=reset, **{**p.options, **options})
        np.testing.assert_array_equal(engine.numpy(alone), engine.numpy(x))
    assert engine.dtype_of(x) == engine.dtype_of(final) == p.dtype
    assert x.shape == p.x.shape
    assert final.shape == p.final.shape
    got, expected = (
        np.concatenate([steps, np.expand_dims(last, p.axis)], axis=p.axis)
        for steps, last in ((engine.numpy(x), engine.numpy(final)), (p.x, p.final))
    )
    assert_close(got, expected, p.dtype, p.axis, factor)


def placed(shape: tuple[int, ...], axis: int, time: int) -> tuple[int, ...]:
    """That shape, with so many steps along the axis."""
    return (*shape[:axis], time, *shape[axis + 1 :])


def exactly(engine: Engine, x: Any, y: Any) -> None:
    """The same bits, but for the sign and payload of a NaN."""
    np.testing.assert_array_equal(engine.numpy(x), engine.numpy(y))


# ---------------------------------------------------------------------------------- the recurrence


@REVERSE
@pytest.mark.parametrize("extras", [False, True], ids=["bare", "initial-reset"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("time", LENGTHS)
def test_every_length(engine: Engine, time: int, kind: str, extras: bool, reverse: bool) -> None:
    check(
        engine, problem((2, time), kind, reverse=reverse, initial=extras, reset=extras, seed=time)
    )


@REVERSE
@pytest.mark.parametrize("rows", [1, 7, 300])
@pytest.mark.parametrize("extras", [False, True], ids=["bare", "initial-reset"])
@pytest.mark.parametrize("kind", ["number", "row", "step", "full"])
def test_time_first(engine: Engine, kind: str, extras: bool, rows: int, reverse: bool) -> None:
    check(
        engine,
        problem((129, rows), kind, axis=0, reverse=reverse, initial=extras, reset=extras),
    )


@ALL_DTYPES
@REVERSE
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_dtype(engine: Engine, dtype: str, kind: str, axis: int, reverse: bool) -> None:
    shape = placed((3, 5, 2), axis, 131)
    check(engine, problem(shape, kind, dtype, axis, reverse, initial=True, reset=True))
    check(engine, problem(shape, kind, dtype, axis, reverse))


@REVERSE
@pytest.mark.parametrize(
    ("rank", "axis"),
    [(rank, axis) for rank in range(1, affordable(6, 4)) for axis in range(-rank, rank)],
)
def test_every_axis(engine: Engine, rank: int, axis: int, reverse: bool) -> None:
    shape = (2, 3, 4, 5, 6)[:rank]
    for kind in KINDS:
        p = problem(shape, kind, "float64", axis, reverse, initial=True, reset=True)
        check(engine, p, axis=axis)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (0, 5, 3), (4, 0, 3), (4, 5, 0)])
def test_empty_arrays(engine: Engine, shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        for kind in KINDS:
            check(engine, problem(shape, kind, axis=axis, initial=True, reset=True))
            check(engine, problem(shape, kind, axis=axis))


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 257])
def test_every_number_of_rows(engine: Engine, rows: int) -> None:
    for kind in ("row", "step", "full"):
        check(engine, problem((rows, 67), kind, initial=True, reset=True))


@DRAWN
@given(data=st.data())
def test_anything(engine: Engine, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 70), min_size=1, max_size=3), "shape"))
    sizes = st.tuples(*(st.sampled_from([n, 1]) for n in shape))
    a, b = data.draw(sizes, "a"), data.draw(sizes, "b")
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), "axis")
    reverse, initial, reset = (data.draw(st.booleans()) for _ in range(3))
    seed = data.draw(st.integers(0, 1 << 16), "seed")
    rng = np.random.default_rng(seed)
    whole = np.broadcast_shapes(a, b)
    time = axis % len(whole)
    rest = whole[:time] + whole[time + 1 :]
    # float64 holds their products exactly: fused with a sum or not, one step gives the same.
    m, n = multipliers(rng, a, "float32"), numbers(rng, b, "float32")
    start = numbers(rng, rest, "float32") if initial else None
    cut = rng.random(whole) < 0.1 if reset else None
    x, final = reference.serial(m, n, start, axis=axis, reverse=reverse, reset=cut)
    # A multiplier that is the same at every step may be 1 or more, and then errors add up.
    check(engine, Problem("float64", axis, reverse, m, n, start, cut, x, final), factor=8)


@pytest.mark.parametrize("chunk_size", [1, 2, 7, 64, 100_000])
def test_any_chunk_size(engine: Engine, chunk_size: int) -> None:
    for kind in ("number", "row", "full"):
        p = problem((3, 1025), kind, initial=True, reset=True)
        check(engine, p, chunk_size=chunk_size)


def test_python_numbers_stay_weak(engine: Engine) -> None:
    for number in (1, 0.5, True):
        x = engine.scan(number, engine.array([1.0, 2.0], "float32"))
        assert engine.dtype_of(x) == "float32"
        np.testing.assert_allclose(engine.numpy(x), [1.0, 2.0 + number])


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_a_number_is_not_rounded_to_16_bits(engine: Engine, dtype: str) -> None:
    skip_unless_taken(engine, dtype)
    b = np.zeros(2049)
    b[0] = 1.0
    x = engine.numpy(engine.scan(0.9995, engine.array(b, dtype)))
    assert_close(x, rounded(0.9995 ** np.arange(2049), dtype), dtype)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_the_state_is_not_rounded_to_16_bits(engine: Engine, dtype: str) -> None:
    skip_unless_taken(engine, dtype)
    x = engine.numpy(engine.scan(1.0, engine.array(np.full(4097, 0.125), dtype)))
    assert_close(x, 0.125 * np.arange(1, 4098), dtype)


# --------------------------------------------------------------------------------------- memory


def every_layout(engine: Engine, x: Any) -> Iterator[tuple[str, Any]]:
    """``x`` in memory of many kinds; what surrounds it is NaN."""
    xp, rank = engine.xp, x.ndim
    order = tuple(range(rank))[::-1]
    if engine.library == "torch":
        yield "transposed", x.permute(order).contiguous().permute(order)
    else:
        yield "transposed", xp.array(x.transpose(order), order="C").transpose(order)
        backwards = (slice(None, None, -1),) * rank
        yield "backwards", x[backwards].copy()[backwards]
    if engine.library == "numpy":
        memory = np.zeros(x.nbytes + 1, np.uint8)
        odd = np.ndarray(x.shape, x.dtype, buffer=memory, offset=1)
    else:
        size = int(np.prod(x.shape)) + 1
        odd = engine.array(np.zeros(size), engine.dtype_of(x))[1:].reshape(x.shape)
    odd[...] = x
    yield "misaligned", odd
    surroundings = False if "bool" in str(x.dtype) else float("nan")
    for name, step in (("inside", 1), ("every third", 3)):
        shape = tuple(step * n + 2 for n in x.shape)
        place = (Ellipsis, *(slice(1, 1 + step * n, step) for n in x.shape))
        larger = engine.array(np.full(shape, surroundings), engine.dtype_of(x))
        larger[place] = x
        yield name, larger[place]


@REVERSE
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("operand", ["a", "b", "initial", "reset"])
def test_every_layout(engine: Engine, operand: str, dtype: str, axis: int, reverse: bool) -> None:
    shape = placed((3, 4, 5), axis, 40)
    for kind in ("full", "partial", "row")[:: affordable(1, 3)]:
        p = problem(shape, kind, dtype, axis, reverse, initial=True, reset=True)
        names = ("a", "b", "initial", "reset")
        given: dict[str, Any] = dict(zip(names, operands(engine, p), strict=True))
        for name, laid_out in every_layout(engine, given[operand]):
            x = engine.scan(**{**given, operand: laid_out}, **p.options)
            try:
                assert_close(engine.numpy(x), p.x, dtype, axis)
            except AssertionError as error:
                raise AssertionError(f"{operand} is {name}: {error}") from None


@REVERSE
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_expanded_operands(engine: Engine, axis: int, reverse: bool) -> None:
    shape = placed((3, 4, 5), axis, 40)
    p = problem(shape, "partial", axis=axis, reverse=reverse, reset=True, initial=True)
    a, b, initial, reset = operands(engine, p)
    for along in range(3):
        one = tuple(slice(0, 1) if i == along else slice(None) for i in range(3))
        x, _ = reference.serial(
            p.a, np.broadcast_to(p.b[one], shape), p.initial, reset=p.reset, **p.options
        )
        y = engine.scan(
            engine.xp.broadcast_to(a, shape),
            engine.xp.broadcast_to(b[one], shape),
            initial,
            reset=reset,
            **p.options,
        )
        assert_close(engine.numpy(y), x, "float32", axis)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_out_of_every_layout(engine: Engine, axis: int, dtype: str) -> None:
    skip_unless_taken(engine, dtype)
    p = problem((67, 68), "full", dtype, axis, initial=True)
    a, b, initial, _ = operands(engine, p)
    for _, out in every_layout(engine, engine.array(np.zeros(p.x.shape), dtype)):
        x, final = engine.scan(a, b, initial, axis=axis, out=out, return_final=True)
        assert x is out
        assert_close(engine.numpy(out), p.x, dtype, axis)
        assert_close(engine.numpy(final), p.final, dtype, axis=0, factor=4)


def test_nothing_is_written_beside_out(engine: Engine) -> None:
    p = problem((35, 133), "full")
    a, b, _, _ = operands(engine, p)
    for rows, steps in ((slice(1, 36), slice(1, 134)), (slice(2, 72, 2), slice(3, 402, 3))):
        memory = engine.array(np.full((80, 410), 7.0), "float32")
        engine.scan(a, b, out=memory[rows, steps])
        expected = np.full((80, 410), 7.0)
        expected[rows, steps] = p.x
        assert_close(engine.numpy(memory), expected, "float32")


@REVERSE
@pytest.mark.parametrize("kind", ["number", "row", "step", "full"])
@pytest.mark.parametrize("axis", [0, 1])
def test_in_place(engine: Engine, axis: int, kind: str, reverse: bool) -> None:
    for initial in (False, True):
        p = problem((200, 201), kind, axis=axis, reverse=reverse, initial=initial)
        a, b, start, _ = operands(engine, p)
        assert engine.scan(a, b, start, out=b, **p.options) is b
        assert_close(engine.numpy(b), p.x, "float32", axis)


@REVERSE
@pytest.mark.parametrize("kind", ["number", "full"])
def test_in_place_over_a_row_long_enough_to_be_shared_out(
    engine: Engine, kind: str, reverse: bool
) -> None:
    p = problem((1, affordable(200_000, 70_001)), kind, reverse=reverse, initial=True)
    a, b, start, _ = operands(engine, p)
    engine.scan(a, b, start, out=b, **p.options)
    assert_close(engine.numpy(b), p.x, "float32", -1)


def test_in_place_when_products_overflow(engine: Engine) -> None:
    a = engine.array(np.full((1, 200), 1e30, np.float32))
    b = engine.array(np.zeros((1, 200), np.float32))
    engine.scan(a, b, out=b)
    assert (engine.numpy(b) == 0).all()


@REVERSE
@pytest.mark.parametrize("kind", ["number", "row", "step", "full"])
def test_inputs_are_never_written(engine: Engine, kind: str, reverse: bool) -> None:
    for axis in (0, 1):
        p = problem((70, 71), kind, axis=axis, reverse=reverse, initial=True, reset=True)
        given = operands(engine, p)
        if engine.library == "numpy":
            for x in given:
                if isinstance(x, np.ndarray):
                    x.flags.writeable = False
        engine.scan(*given[:3], reset=given[3], return_final=True, **p.options)
        for x, before in zip(given, operands(engine, p), strict=True):
            if not isinstance(x, float):
                exactly(engine, x, before)


def test_results_are_fresh_and_contiguous(engine: Engine) -> None:
    p = problem((5, 64), "full", initial=True)
    a, b, initial, _ = operands(engine, p)
    x, final = engine.scan(a, b, initial, return_final=True)
    flag = x.is_contiguous() if engine.library == "torch" else x.flags.c_contiguous
    assert flag
    before = engine.numpy(final).copy()
    for y in (x, a, b, initial):
        y[...] = 0
    np.testing.assert_array_equal(engine.numpy(final), before)
    x, final = engine.scan(a[:, :0], b[:, :0], initial, return_final=True)
    final[...] = 1
    assert not engine.numpy(initial).any()


@ALL_DTYPES
def test_uninitialised_memory_is_not_read(
    engine: Engine, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_taken(engine, dtype)
    problems = [
        problem(shape, kind, dtype, axis, reverse, initial=not reverse, reset=not reverse)
        for shape, axis in (((3, 1025), 1), ((129, 40), 0), ((129, 40), 1), ((1, LONG), 1))
        for kind, reverse in (("full", False), ("row", True))
    ]
    for p in problems:  # first as it is: a compiler may look up what is then replaced
        check(engine, p)
    poison_empty(engine, monkeypatch)
    for p in problems:
        check(engine, p)


def poison_empty(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what ``empty`` and ``empty_like`` return with NaN, or with 99 or true."""

    def poisoned(empty: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            x = empty(*args, **kwargs)
            if getattr(x, "is_meta", False):
                return x
            dtype = str(x.dtype)
            fill = x.fill_ if hasattr(x, "fill_") else x.fill
            fill(99 if "int" in dtype else True if "bool" in dtype else float("nan"))
            return x

        return call

    for xp in {np, engine.xp}:
        for name in ("empty", "empty_like"):
            monkeypatch.setattr(xp, name, poisoned(getattr(xp, name)))


# ----------------------------------------------------------------------------------- selection


@REVERSE
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nothing_crosses_a_reset(engine: Engine, bad: float, axis: int, reverse: bool) -> None:
    p = problem((131, 131), "full", axis=axis, reverse=reverse, reset=True, seed=1)
    assert p.reset is not None
    b = p.b.copy()
    a = np.where(p.reset, bad, p.a)
    rng = np.random.default_rng(0)
    b[(rng.random(b.shape) < 0.02) & ~p.reset] = bad
    x, _ = reference.serial(a, b, reset=p.reset, **p.options)
    y = engine.scan(
        engine.array(a, "float32"),
        engine.array(b, "float32"),
        reset=engine.array(p.reset),
        **p.options,
    )
    assert 0.1 < np.isfinite(x).mean() < 0.99
    assert_close(engine.numpy(y), x, "float32", axis)


@REVERSE
@pytest.mark.parametrize("time", [1, 2, 15, 16, 17, 64, 65, 1025])
def test_without_initial_the_first_multiplier_is_not_read(
    engine: Engine, time: int, reverse: bool
) -> None:
    for axis, shape in ((1, (3, time)), (0, (time, 3))):
        p = problem(shape, "full", axis=axis, reverse=reverse)
        a = p.a.copy()
        np.moveaxis(a, axis, 0)[-1 if reverse else 0] = np.nan
        x = engine.scan(engine.array(a, "float32"), engine.array(p.b, "float32"), **p.options)
        assert_close(engine.numpy(x), p.x, "float32", axis)


@REVERSE
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_and_infinity_run_forward_only(
    engine: Engine, axis: int, bad: float, reverse: bool
) -> None:
    n = affordable(150, 70)
    p = problem((n, n + 1), "full", axis=axis, reverse=reverse)
    for operand in ("a", "b"):
        for at in (0, 1, 15, 16, 31, 32, 70, n - 1)[:: affordable(1, 4)]:
            given = {"a": p.a.copy(), "b": p.b.copy()}
            np.moveaxis(given[operand], axis, 0)[at] = bad
            x, _ = reference.serial(**given, **p.options)
            y = engine.scan(
                engine.array(given["a"], "float32"),
                engine.array(given["b"], "float32"),
                **p.options,
            )
            assert_close(engine.numpy(y), x, "float32", axis)


@ALL_DTYPES
@REVERSE
@pytest.mark.parametrize("axis", [0, 1])
def test_a_product_that_overflows_times_zero_is_zero(
    engine: Engine, axis: int, dtype: str, reverse: bool
) -> None:
    skip_unless_taken(engine, dtype)
    n = affordable(200, 40)
    b = np.zeros((n, n))
    huge = 1e4 if dtype == "float16" else 1e30
    kinds = [np.full((n, n), huge), np.full((n, 1) if axis else (1, n), huge), huge]
    for a in kinds:
        m = a if isinstance(a, float) else engine.array(a, dtype)
        x = engine.scan(m, engine.array(b, dtype), axis=axis, reverse=reverse)
        assert not engine.numpy(x).any()


@REVERSE
def test_a_product_that_overflows_times_a_tiny_state(engine: Engine, reverse: bool) -> None:
    if engine.device != "cpu":
        pytest.skip("documented to overflow on devices other than CPUs")
    a = np.where(np.arange(400) % 40 < 20, 16.0, 1 / 16) * np.ones((3, 1))
    b = np.zeros((3, 400))
    b[:, -1 if reverse else 0] = 2.0**-140
    if reverse:
        a = a[:, ::-1].copy()
    x, _ = reference.serial(a, b, reverse=reverse)
    y = engine.scan(engine.array(a, "float32"), engine.array(b, "float32"), reverse=reverse)
    np.testing.assert_array_equal(engine.numpy(y), x)


# ------------------------------------------------------------------------------ packed sequences


@REVERSE
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("initial", [False, True])
def test_packed(engine: Engine, kind: str, axis: int, initial: bool, reverse: bool) -> None:
    offsets = [0, 0, 1, 2, 2, 2, 40, 57, 131, 131]
    shape = (131, 3) if axis == 0 else (3, 131)
    p = problem(shape, kind, axis=axis, reverse=reverse, seed=2)
    a, b, _, _ = operands(engine, p)
    whole = np.broadcast_shapes(np.shape(p.a), p.b.shape)
    start = numbers(np.random.default_rng(0), (9, 3), "float32") if initial else None
    x, finals = engine.scan(
        a,
        b,
        engine.array(start, "float32"),
        cu_seqlens=engine.array(np.array(offsets)),
        return_final=True,
        **p.options,
    )
    assert finals.shape == (9, 3)
    every_a, every_b = np.broadcast_to(p.a, whole), np.broadcast_to(p.b, whole)
    for i in range(9):
        piece = [slice(None)] * 2
        piece[axis] = slice(offsets[i], offsets[i + 1])
        expected, final = reference.serial(
            every_a[tuple(piece)],
            every_b[tuple(piece)],
            None if start is None else start[i],
            **p.options,
        )
        assert_close(engine.numpy(x)[tuple(piece)], expected, "float32", axis, factor=2)
        np.testing.assert_allclose(engine.numpy(finals)[i], final, rtol=1e-4, atol=1e-5)


@REVERSE
def test_packed_sequences_do_not_see_each_other(engine: Engine, reverse: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-1, 1, (4, 300)), rng.standard_normal((4, 300))
    b[:, 100:200] = np.nan
    a[:, [0, 99, 100, 199, 200, 299]] = np.nan
    a[:, [99, 299] if not reverse else [0, 200]] = 0.5
    x = engine.scan(
        engine.array(a),
        engine.array(b),
        cu_seqlens=engine.array(np.array([0, 100, 200, 300])),
        reverse=reverse,
    )
    bad = np.isnan(engine.numpy(x)).any(axis=0)
    np.testing.assert_array_equal(bad, (np.arange(300) >= 100) & (np.arange(300) < 200))


# ---------------------------------------------------------------------------------- identities


@REVERSE
@pytest.mark.parametrize("kind", ["number", "row", "step", "full"])
@pytest.mark.parametrize("axis", [0, 1])
def test_two_halves_make_the_whole(engine: Engine, axis: int, kind: str, reverse: bool) -> None:
    p = problem((129, 130), kind, "float64", axis, reverse, initial=True, reset=True)
    a, b, initial, reset = operands(engine, p)
    for middle in (0, 1, 64, 65, 129)[:: affordable(1, 2)]:
        pieces, state = [], initial
        halves = [slice(0, middle), slice(middle, None)]
        for half in reversed(halves) if reverse else halves:
            where = (half, slice(None)) if axis == 0 else (slice(None), half)
            m = a if isinstance(a, float) or kind == "row" else a[where]
            x, state = engine.scan(
                m, b[where], state, reset=reset[where], return_final=True, **p.options
            )
            pieces.append(engine.numpy(x))
        whole = np.concatenate(pieces[::-1] if reverse else pieces, axis=axis)
        assert_close(whole, p.x, "float64", axis)


@pytest.mark.parametrize("kind", ["number", "row", "step", "full"])
@pytest.mark.parametrize("axis", [0, 1])
def test_reverse_is_flip_scan_flip(engine: Engine, axis: int, kind: str) -> None:
    p = problem((129, 130), kind, "float64", axis, reverse=True, initial=True, reset=True)
    a, b, initial, reset = operands(engine, p)

    def flip(x: Any) -> Any:
        return engine.array(np.flip(engine.numpy(x), axis))

    m = a if isinstance(a, float) else flip(a)
    x = engine.scan(m, flip(b), initial, axis=axis, reset=flip(reset))
    assert_close(np.flip(engine.numpy(x), axis), p.x, "float64", axis)


@REVERSE
@pytest.mark.parametrize("axis", [0, 1])
def test_linear_in_b_and_the_initial_state(engine: Engine, axis: int, reverse: bool) -> None:
    p = problem((129, 130), "full", "float64", axis, reverse, initial=True)
    q = problem((129, 130), "full", "float64", axis, reverse, initial=True, seed=9)
    a, b, initial, _ = operands(engine, p)
    _, other, start, _ = operands(engine, q)
    x = engine.numpy(engine.scan(a, 2 * b - 3 * other, 2 * initial - 3 * start, **p.options))
    y, z = (engine.scan(a, v, s, **p.options) for v, s in ((b, initial), (other, start)))
    np.testing.assert_allclose(x, 2 * engine.numpy(y) - 3 * engine.numpy(z), rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("kind", ["number", "row", "full"])
def test_the_same_bits_every_time(engine: Engine, kind: str, dtype: str) -> None:
    for shape, axis in (((1, LONG), 1), ((40, 2049), 1), ((affordable(700, 70), 80), 0)):
        p = problem(shape, kind, dtype, axis)
        a, b, _, _ = operands(engine, p)
        x = engine.scan(a, b, axis=axis)
        for _ in range(affordable(5, 1)):
            exactly(engine, engine.scan(a, b, axis=axis), x)


def test_no_initial_state_is_a_zero_one(engine: Engine) -> None:
    p = problem((3, 130), "full", "float64")
    a, b, _, _ = operands(engine, p)
    exactly(engine, engine.scan(a, b), engine.scan(a, b, engine.array(np.zeros(3))))


# --------------------------------------------------------------------------------------- errors

WIDER = {
    "float32": "float64",
    "complex64": "complex128",
    "float64": "longdouble",
    "complex128": "clongdouble",
}
HARD: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "uniform in (0, 1)": lambda rng, shape: rng.random(shape),
    "uniform in (.9, 1)": lambda rng, shape: rng.uniform(0.9, 1, shape),
    "0.9405": lambda rng, shape: np.full(shape, 0.9405),
    "0.99": lambda rng, shape: np.full(shape, 0.99),
    "0.9999": lambda rng, shape: np.full(shape, 0.9999),
    "0.999 of either sign": lambda rng, shape: rng.choice([-0.999, 0.999], shape),
    "1": lambda rng, shape: np.ones(shape),
    "-1": lambda rng, shape: -np.ones(shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "5 % zeros": lambda rng, shape: rng.uniform(0.9, 1, shape) * (rng.random(shape) > 0.05),
}
"""Multipliers; those of equal magnitude near 1 make rounding errors that add up."""


@cache
def hard(name: str, dtype: str, constant: bool) -> tuple[Array, Array, Array, float]:
    """``(a, b, x)`` with x more exact than the dtype, and the error of the loop in it."""
    rng = np.random.default_rng(len(name))
    shape = (affordable(16, 4), affordable(8193, 2049))
    a = HARD[name](rng, (shape[0], 1) if constant else shape).astype(dtype)
    b = rng.standard_normal(shape).astype(dtype)
    if "complex" in dtype:
        b = (b + 1j * rng.standard_normal(shape)).astype(dtype)
        turn = np.exp(1j * rng.uniform(0, 2 * np.pi, a.shape))
        a = (a * turn).astype(dtype)
    x = loop(a, b, WIDER[dtype])
    return a, b, x, worst(loop(a, b, dtype), x)


def loop(a: Array, b: Array, dtype: str) -> Array:
    """One step after the other, each a multiplication and an addition, all in that dtype."""
    a, b = np.broadcast_to(a, b.shape).T.astype(dtype), b.T.astype(dtype)
    x = b.copy()
    for t in range(1, len(b)):
        x[t] = a[t] * x[t - 1] + b[t]
    return x.T


def worst(x: Array, exact: Array) -> float:
    """The largest error, in units of the row's largest magnitude."""
    return float((np.abs(x - exact).max(axis=1) / np.abs(exact).max(axis=1)).max())


@pytest.mark.parametrize("dtype", list(WIDER))
@pytest.mark.parametrize("name", list(HARD))
def test_at_most_twice_the_error_of_the_loop(engine: Engine, name: str, dtype: str) -> None:
    if np.finfo(WIDER[dtype]).eps >= np.finfo(dtype).eps:
        pytest.skip(f"no type is more exact than {dtype} on this machine")
    ulp = float(np.finfo(dtype).eps)
    times, plus = (4, 4) if engine.tiled else (2, 1)
    for constant in (False, True) if name[0] in "0-1" else (False,):
        a, b, exact, error = hard(name, dtype, constant)
        for axis in (1, 0):
            m, n = (engine.array(v if axis else v.T.copy(), dtype) for v in (a, b))
            x = engine.numpy(engine.scan(m, n, axis=axis))
            ours = worst((x if axis else x.T).astype(WIDER[dtype]), exact)
            assert ours <= times * error + plus * ulp, (
                f"{ours / ulp:.2f} ulp, but the loop has {error / ulp:.2f} (axis {axis})"
            )


@pytest.mark.parametrize("setting", ["medium", "high"])
def test_full_precision_whatever_is_allowed(engine: Engine, setting: str) -> None:
    if engine.library != "torch":
        pytest.skip("a setting of torch")
    torch = engine.xp
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        check(engine, problem((64, 2049), "row", seed=5))
        check(engine, problem((64, 2049), "full", seed=5))
    finally:
        torch.set_float32_matmul_precision(before)
