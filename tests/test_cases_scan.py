"""Faults that other projects have had in their scans and recurrences, each with the right answer.

A test is named after the fault; its docstring says where it was reported and what went wrong.
Expected values are worked out by hand, or by a loop in float64.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import linscan
from linscan.testing.engines import Engine, engines

Array = NDArray[Any]
ENGINES = [engine for engine, reason in engines() if reason is None and engine.device == "cpu"]
LENGTHS = [0, 1, 2, 3, 31, 32, 33, 64, 65, 127, 128, 129, 1023, 1024, 1025, 2047, 2048, 2049, 65537]
NONE = pytest.param(None, marks=pytest.mark.skip(reason="torch is not installed"))
TENSORS = pytest.mark.parametrize(
    "engine", [e for e in ENGINES if e.library == "torch"] or [NONE], ids=str
)
ARRAYS = pytest.mark.parametrize("engine", [e for e in ENGINES if e.library == "numpy"], ids=str)
BOTH_WAYS = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])


@pytest.fixture(params=ENGINES, ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def loop(a: Any, b: Any, initial: Any = 0.0, *, axis: int = -1, reverse: bool = False) -> Array:
    """The definition, a step at a time, in float64 or complex128."""
    shape = np.broadcast_shapes(np.shape(a), np.shape(b))
    kind = np.result_type(np.float64, np.asarray(a).dtype, np.asarray(b).dtype)
    a, b = (np.moveaxis(np.broadcast_to(x, shape), axis, 0).astype(kind) for x in (a, b))
    x, carry = np.zeros(a.shape, kind), np.asarray(initial, kind)
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        carry = x[t] = a[t] * carry + b[t]
    return np.moveaxis(x, 0, axis)


def close(engine: Engine, x: Any, expected: Any, rtol: float = 1e-5) -> None:
    expected = np.asarray(expected)
    assert tuple(x.shape) == expected.shape
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    np.testing.assert_allclose(engine.numpy(x), expected, rtol=rtol, atol=rtol * scale)


def same(engine: Engine, x: Any, y: Any) -> None:
    np.testing.assert_array_equal(engine.numpy(x), engine.numpy(y))


def random(*shape: int, low: float = -1.0, high: float = 1.0, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape)


# --------------------------------------------------------------------------- order, direction, axis


def test_reverse_does_not_swap_the_operands(engine: Engine):
    """jax 29313: in reverse the operator saw f(f(c, b), a): x = a x' + b does not commute."""
    a, b = engine.array([2.0, 3.0, 5.0]), engine.array([1.0, 10.0, 100.0])
    close(engine, engine.scan(a, b, reverse=True), [2 * (3 * 100 + 10) + 1, 310, 100])
    close(engine, engine.scan(a, b), [1, 3 * 1 + 10, 5 * 13 + 100])


@BOTH_WAYS
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_every_axis_of_three(engine: Engine, axis: int, reverse: bool):
    """triton 8412: the axis was one off, and reverse was wrong, in three dimensions."""
    a, b = random(3, 4, 5), random(3, 4, 5, seed=1)
    x = engine.scan(engine.array(a), engine.array(b), axis=axis, reverse=reverse)
    close(engine, x, loop(a, b, axis=axis, reverse=reverse), 1e-12)


@BOTH_WAYS
@pytest.mark.parametrize("time", LENGTHS)
def test_every_length(engine: Engine, time: int, reverse: bool):
    """triton 2359: right up to 64, wrong from 128; accelerated-scan 13: powers of two only."""
    a, b = random(2, time, low=0.5), random(2, time, seed=1)
    x = engine.scan(*(engine.array(x, "float32") for x in (a, b)), reverse=reverse)
    expected = loop(np.float32(a), np.float32(b), reverse=reverse)
    close(engine, x, expected, 1e-6)
    x = engine.scan(*(engine.array(x.T, "float32") for x in (a, b)), reverse=reverse, axis=0)
    close(engine, x, expected.T, 1e-6)


@pytest.mark.parametrize("chunk_size", [None, 1, 2, 4])
def test_fewer_steps_than_a_tile(engine: Engine, chunk_size: int | None):
    """triton 2361: eight ones were summed to 1, 2, 3, 4, 4, 4, 4, 4."""
    x = engine.scan(1.0, engine.array(np.ones(8)), chunk_size=chunk_size)
    assert x.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("time", [577, 1000])
def test_more_steps_than_a_block_with_multipliers_that_differ(engine: Engine, time: int):
    """accelerate 348: wrong above some 570 elements, and only where the order matters."""
    a, b = random(time), random(time, seed=1)
    close(engine, engine.scan(engine.array(a), engine.array(b)), loop(a, b), 1e-12)


@pytest.mark.parametrize(
    "shape", [(), (1,), (5, 1), (1, 3), (5, 3), (2, 1, 1), (2, 5, 1), (2, 1, 3), (1, 5, 3)]
)
def test_multipliers_that_broadcast(engine: Engine, shape: tuple[int, ...]):
    """TensorFlow Probability 1812: the operator was taken to broadcast: (T, 1) against (T, C)."""
    a, b = random(*shape), random(2, 5, 3, seed=1)
    x = engine.scan(engine.array(a), engine.array(b), axis=1)
    close(engine, x, loop(a, b, axis=1), 1e-12)


def test_multipliers_larger_than_the_inputs(engine: Engine):
    a, b = random(2, 5, 3), random(5, 1, seed=1)
    close(engine, engine.scan(engine.array(a), engine.array(b), axis=1), loop(a, b, axis=1), 1e-12)
    close(engine, engine.scan(engine.array(a), 1.0, axis=0), loop(a, 1.0, axis=0), 1e-12)


@pytest.mark.parametrize("axis", [-1, -5, 0, 2])
@pytest.mark.parametrize("rank", [5, 6])
def test_five_and_six_dimensions(engine: Engine, rank: int, axis: int):
    """pytorch 154881 and 92329: five dimensions aborted, a negative one was wrong, int64 too."""
    shape = (2, 3, 2, 3, 2, 2)[:rank]
    b = np.arange(np.prod(shape)).reshape(shape)
    x = engine.scan(0.5, engine.array(b), axis=axis)
    assert engine.dtype_of(x) == ("float32" if engine.library == "torch" else "float64")
    close(engine, x, loop(0.5, b, axis=axis))


# ------------------------------------------------------------------------ NaN, infinity, precision


@BOTH_WAYS
def test_no_initial_state_is_a_state_of_zero(engine: Engine, reverse: bool):
    """minGRU-pytorch 9: a first state of 0 differed from none, and parallel from serial."""
    a, b, initial = random(4, 70), random(4, 70, seed=1), random(4, seed=2)
    a_, b_ = engine.array(a), engine.array(b)
    zero = engine.scan(a_, b_, engine.array(np.zeros(4)), reverse=reverse)
    close(engine, zero, engine.numpy(engine.scan(a_, b_, reverse=reverse)), 1e-15)
    x, final = engine.scan(a_, b_, engine.array(initial), reverse=reverse, return_final=True)
    expected = loop(a, b, initial, reverse=reverse)
    close(engine, x, expected, 1e-12)
    same(engine, final, x[:, 0 if reverse else -1])


def test_nan_and_infinity_go_forward_only(engine: Engine):
    """pytorch 52213 and its kin: a NaN was dropped, or replaced; it poisons what follows, only."""
    b = engine.array([1.0, np.nan, 2.0])
    close(engine, engine.scan(1.0, b), [1, np.nan, np.nan])
    close(engine, engine.scan(1.0, b, reverse=True), [np.nan, np.nan, 2])
    b = engine.array([np.inf, 1.0, 1.0])
    close(engine, engine.scan(0.5, b), [np.inf] * 3)
    close(engine, engine.scan(0.0, b), [np.inf, np.nan, np.nan])
    long = np.ones((2, 300))
    long[:, 150] = np.nan
    x = engine.numpy(engine.scan(0.9, engine.array(long, "float32"), reverse=True))
    assert np.isnan(x[:, :151]).all()
    assert np.isfinite(x[:, 151:]).all()


def test_a_reset_stops_a_nan(engine: Engine):
    """scipy 3454: one NaN made everything after it NaN; 0 * NaN is NaN, so a reset selects."""
    b = engine.array([1.0, np.nan, 2.0, np.inf, 3.0, 4.0])
    reset = engine.array([False, False, True, False, True, False])
    a = engine.array([np.nan, 1.0, np.nan, 1.0, np.inf, 1.0])
    close(engine, engine.scan(a, b, reset=reset), [1, np.nan, 2, np.inf, 3, 7])
    packed = engine.scan(a, b, cu_seqlens=engine.array([0, 2, 4, 4, 6]))
    close(engine, packed, [1, np.nan, 2, np.inf, 3, 7])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("zeros", [0.05, 0.5])
def test_multipliers_of_zero(engine: Engine, dtype: str, zeros: float):
    """mamba-mini 1 and 6, rl-triton: cumulative products and logarithms break at an exact 0."""
    a, b = random(3, 65536, low=0.9), random(3, 65536, seed=1)
    a[random(3, 65536, low=0, seed=2) < zeros] = 0
    x = engine.scan(engine.array(a, dtype), engine.array(b, dtype))
    kind = np.dtype(dtype)
    expected = loop(a.astype(kind), b.astype(kind))
    close(engine, x, expected, 1e-6 if dtype == "float32" else 1e-13)


def test_many_steps_close_to_one(engine: Engine):
    """mamba-mini 6: dividing by a cumulative product needed a fudge and chunks below 64."""
    a, b = random(10_000, low=0.9), random(10_000, seed=1)
    x = engine.scan(engine.array(a, "float32"), engine.array(b, "float32"))
    close(engine, x, loop(np.float32(a), np.float32(b)), 1e-6)


@pytest.mark.parametrize("a", [-1.0, -0.5, 1.0, 1.01, -1.01, 2.0, 0.0])
def test_multipliers_of_any_sign_and_size(engine: Engine, a: float):
    """torchaudio's lfilter clamped to [-1, 1] unless it was told not to: nothing is clipped."""
    b = random(2, 100, seed=1)
    close(engine, engine.scan(a, engine.array(b)), loop(a, b), 1e-12)
    full = engine.array(np.full((2, 100), a))
    close(engine, engine.scan(full, engine.array(b)), loop(a, b), 1e-12)


@pytest.mark.parametrize("axis", [0, 1])
def test_an_overflowing_product_times_a_state_of_zero(engine: Engine, axis: int):
    """A parallel scan multiplies before it knows the state: inf * 0 where the loop has 0."""
    b = np.zeros((2, 200))
    x = engine.scan(engine.array(np.full((2, 200), 1e30), "float32"), engine.array(b, "float32"))
    close(engine, x, b)
    transposed = engine.array(b.T, "float32")
    close(engine, engine.scan(1e30, transposed, axis=0), b.T)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_half_precision_is_right_to_its_last_bit(engine: Engine, dtype: str, axis: int):
    """triton 3398, accelerated-scan 8: bfloat16 crashed or drifted: accumulate in float32."""
    if engine.why_not(dtype):
        pytest.skip(str(engine.why_not(dtype)))
    a, b = (engine.array(x, dtype) for x in (random(500, 3, low=0.9), random(500, 3, seed=1)))
    x = engine.scan(a, b, axis=0) if axis == 0 else engine.scan(a.T, b.T).T
    assert engine.dtype_of(x) == dtype
    expected = loop(engine.numpy(a), engine.numpy(b), axis=0)
    bits = {"float16": 10, "bfloat16": 7}[dtype]
    ulp = 2.0 ** (np.floor(np.log2(np.abs(expected))) - bits)
    assert (np.abs(engine.numpy(x) - expected) <= np.maximum(ulp, 1e-5)).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_the_dtype_of_the_inputs_is_that_of_the_result(engine: Engine, dtype: str):
    """scipy 3158: float64 came back for float32; cupy 8162: the first call of a dtype failed."""
    if engine.why_not(dtype):
        pytest.skip(str(engine.why_not(dtype)))
    b = engine.array(np.ones(3), dtype)
    for a in (0.5, engine.array(np.full(3, 0.5), dtype), True, 1):
        x, final = engine.scan(a, b, return_final=True)
        assert engine.dtype_of(x) == engine.dtype_of(final) == dtype
        close(engine, x, loop(engine.numpy(a) if hasattr(a, "shape") else a, np.ones(3)), 1e-3)


def test_dtypes_mix_as_their_library_mixes_them(engine: Engine):
    b = engine.array(np.ones(3), "float32")
    assert engine.dtype_of(engine.scan(engine.array(np.ones(3)), b)) == "float64"
    assert engine.dtype_of(engine.scan(1j, b)) == "complex64"
    assert engine.dtype_of(engine.scan(engine.array(np.ones(3), "complex64"), b)) == "complex64"
    assert engine.dtype_of(engine.scan(0.5, b, engine.array(0.0, "float32"))) == "float32"
    default = "float32" if engine.library == "torch" else "float64"
    for dtype in ("bool", "uint8", "int32", "int64"):
        assert engine.dtype_of(engine.scan(2, engine.array([1, 1], dtype))) == default


@BOTH_WAYS
def test_complex_multipliers(engine: Engine, reverse: bool):
    a, b = random(2, 50) + 1j * random(2, 50, seed=2), random(2, 50, seed=1) * (1 - 2j)
    x = engine.scan(engine.array(a), engine.array(b), reverse=reverse)
    close(engine, x, loop(a, b, reverse=reverse), 1e-12)


def test_a_long_sum_is_as_exact_as_the_serial_one(engine: Engine):
    """labs-molt 29: a sum of 128K steps was 4e-5 off the serial one: compare both to float64."""
    b = random(2, 131072).astype(np.float32)
    expected = np.cumsum(b, axis=1, dtype=np.float64)
    serial = np.abs(np.add.accumulate(b, axis=1) - expected).max()
    ulp = np.spacing(np.abs(expected).max().astype(np.float32))
    error = np.abs(engine.numpy(engine.scan(1.0, engine.array(b))) - expected).max()
    assert error <= 2 * serial + ulp


def test_a_decay_is_not_rounded_to_the_precision_of_the_rewards(engine: Engine):
    """bfloat16(0.999) is 1: a Python number keeps its own precision."""
    if engine.why_not("float16"):
        pytest.skip(str(engine.why_not("float16")))
    b = engine.array(np.ones(4000) / 64, "float16")
    x = engine.numpy(engine.scan(0.9999, b))[-1]
    expected = (1 - 0.9999**4000) / (1 - 0.9999) / 64
    assert abs(x - expected) < expected * 2**-10


# --------------------------------------------------------------------------------- size and memory


@pytest.mark.parametrize("rows", [65_535, 65_536, 1_000_000])
def test_very_many_rows(engine: Engine, rows: int):
    """mamba 505, flash-linear-attention 172, triton 3299, mlx 3858: more rows than a grid has."""
    b = engine.array(np.ones((rows, 2)), "float32")
    x = engine.numpy(engine.scan(0.5, b))
    assert (x == np.array([1.0, 1.5])).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_views(engine: Engine, axis: int):
    """rl_games 358, fpscan: views that are not contiguous, or not aligned, were silently wrong."""
    base = random(7, 40)
    flat = engine.array(np.concatenate([[9.0], base.ravel()]), "float32")
    kept, turned = engine.array(base, "float32"), engine.array(base.T.copy(), "float32")
    wide = engine.array(np.repeat(base, 2, axis=1), "float32")
    views = {
        "whole": kept,
        "transposed": turned.T,
        "every second": wide[:, ::2],
        "four bytes off": flat[1:].reshape(7, 40),
        "with holes between rows": engine.array(np.pad(base, ((0, 0), (0, 3))), "float32")[:, :40],
    }
    expected = loop(0.9, np.float32(base), axis=axis)
    for name, b in views.items():
        x = engine.scan(0.9, b, axis=axis)
        np.testing.assert_allclose(engine.numpy(x), expected, 1e-5, 1e-5, err_msg=name)
        full = engine.scan(b, b, axis=axis)
        powers = loop(np.float32(base), np.float32(base), axis=axis)
        np.testing.assert_allclose(engine.numpy(full), powers, 1e-5, 1e-5, err_msg=name)
    expanded = engine.xp.broadcast_to(kept[:1], (5, 40))
    close(
        engine,
        engine.scan(0.9, expanded, axis=axis),
        loop(0.9, np.tile(np.float32(base[:1]), (5, 1)), axis=axis),
    )


@ARRAYS
def test_negative_strides_in_and_positive_strides_out(engine: Engine):
    """garage 1317: ``lfilter(x[::-1])[::-1]`` has strides that torch.from_numpy refuses."""
    b = random(3, 30)[:, ::-1]
    x = engine.scan(0.9, b, reverse=True)
    close(engine, x, loop(0.9, b, reverse=True), 1e-12)
    assert all(step > 0 for step in x.strides)
    close(engine, engine.scan(b, b[::-1], axis=0), loop(b, b[::-1], axis=0), 1e-12)


@ARRAYS
def test_misaligned_and_swapped_bytes(engine: Engine):
    b = random(2, 30).astype(np.float32)
    record = np.zeros((2, 30), np.dtype([("flag", "i1"), ("reward", "f4")]))
    record["reward"] = b
    assert not record["reward"].flags.aligned
    close(engine, engine.scan(0.9, record["reward"]), loop(0.9, b))
    swapped = engine.scan(0.9, b.astype(">f4"))
    close(engine, swapped, loop(0.9, b))
    assert swapped.dtype.isnative


def test_an_initial_state_that_is_a_strided_view(engine: Engine):
    """torchlpc: a first state that was not contiguous was read as if it were."""
    a, b = random(4, 3, 20), random(4, 3, 20, seed=1)
    states = random(3, 4, 5, seed=2)
    initial = engine.array(states)[:, :, 1].T
    x = engine.scan(engine.array(a), engine.array(b), initial)
    close(engine, x, loop(a, b, states[:, :, 1].T), 1e-12)


@BOTH_WAYS
@pytest.mark.parametrize("axis", [0, 1])
def test_what_lies_behind_the_end_is_not_read(engine: Engine, axis: int, reverse: bool):
    """cccl 5017: the operator ran on the uninitialised tail of a tile."""
    for time in (1, 15, 17, 33, 129):
        b = random(5, time) if axis else random(time, 5)
        around = np.full((b.shape[0] + 64, b.shape[1] + 64), np.nan)
        around[32:-32, 32:-32] = b
        inside = engine.array(around, "float32")[32:-32, 32:-32]
        x = engine.scan(inside, inside, axis=axis, reverse=reverse)
        close(engine, x, loop(np.float32(b), np.float32(b), axis=axis, reverse=reverse))


def test_out_takes_any_strides_and_nothing_else_is_written(engine: Engine):
    """PufferLib: ``t.contiguous()`` threw its copy away, so results never arrived."""
    b = random(3, 20).astype(np.float32)
    expected = loop(0.9, b)
    frame = engine.array(np.full((5, 44), 7.0), "float32")
    out = frame[1:4, 2:42:2]
    assert engine.scan(0.9, engine.array(b), out=out) is out
    close(engine, out, expected)
    untouched = engine.numpy(frame).copy()
    untouched[1:4, 2:42:2] = 7
    assert (untouched == 7).all()
    turned = engine.array(np.zeros((20, 3)), "float32")
    engine.scan(0.9, engine.array(b), out=turned.T)
    close(engine, turned.T, expected)
    inside = engine.array(b)
    assert engine.scan(0.9, inside, out=inside) is inside
    close(engine, inside, expected)


@ARRAYS
def test_read_only_inputs(engine: Engine):
    a, b, initial = random(3, 20), random(3, 20, seed=1), random(3, seed=2)
    reset = np.zeros((3, 20), bool)
    for x in (a, b, initial, reset):
        x.flags.writeable = False
    close(engine, engine.scan(a, b, initial, reset=reset), loop(a, b, initial), 1e-12)


# ------------------------------------------------------------------ packing, streaming, repeating


@BOTH_WAYS
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_packed_sequences_do_not_mix(engine: Engine, dtype: str, reverse: bool):
    """PARL 47, AReaL: states ran from one sequence into the next; offsets were 32-bit only."""
    offsets = [0, 0, 3, 4, 4, 20, 20]
    a, b, initial = random(20), random(2, 20, seed=1), random(6, 2, seed=2)
    x, final = engine.scan(
        engine.array(a),
        engine.array(b),
        engine.array(initial),
        cu_seqlens=engine.array(offsets, dtype),
        reverse=reverse,
        return_final=True,
    )
    for n, (i, j) in enumerate(pairwise(offsets)):
        expected = loop(a[i:j], b[:, i:j], initial[n], reverse=reverse)
        close(engine, x[:, i:j], expected, 1e-12)
        last = expected[:, 0 if reverse else -1] if j > i else initial[n]
        close(engine, final[n], last, 1e-12)


def test_a_stream_in_pieces_is_the_whole(engine: Engine):
    """torchaudio 1517 and mamba: the state at the end could not be fed to the next call."""
    a, b = random(2, 100), random(2, 100, seed=1)
    whole = loop(a, b)
    state = None
    for i, j in pairwise([0, 1, 33, 33, 64, 100]):
        pieces = engine.array(a[:, i:j]), engine.array(b[:, i:j])
        x, state = engine.scan(*pieces, state, return_final=True)
        close(engine, x, whole[:, i:j], 1e-12)


def test_the_state_after_no_steps_is_the_one_before(engine: Engine):
    """torchrl and slime: T = 0 was an error in one path and not in the other."""
    nothing, initial = engine.array(np.zeros((3, 0))), engine.array([1.0, 2.0, 3.0])
    x, final = engine.scan(0.5, nothing, initial, return_final=True)
    assert tuple(x.shape) == (3, 0)
    assert final.tolist() == [1, 2, 3]
    _, final = engine.scan(0.5, nothing, return_final=True)
    assert final.tolist() == [0, 0, 0]
    for shape in ((0,), (0, 3), (2, 0, 3)):
        x = engine.scan(0.5, engine.array(np.zeros(shape)), axis=0)
        assert tuple(x.shape) == shape


def test_nothing_of_operands_that_are_not_empty(engine: Engine):
    """An axis of length 0 is broadcast to from 1, beside axes that are not."""
    for shape, axis in (((0, 2, 1), -1), ((9, 3, 0, 5), -3), ((4, 1, 0, 5), -1), ((2, 0), 0)):
        a, reset = np.ones((*shape[:-2], 1, shape[-1])), np.ones((*shape[1:-1], 1), bool)
        a = a if 0 in a.shape else a[..., :1]
        x, final = engine.scan(
            engine.array(a),
            engine.array(np.zeros(shape)),
            engine.array(np.zeros(np.delete(shape, axis)[-1:])),
            axis=axis,
            reset=engine.array(reset),
            return_final=True,
        )
        assert tuple(x.shape) == shape
        assert tuple(final.shape) == tuple(np.delete(shape, axis))


@pytest.mark.parametrize("shape", [(1, 20_000), (64, 200), (200, 64)])
def test_the_same_input_gives_the_same_bits(engine: Engine, shape: tuple[int, int]):
    """cub 454, thrust 1587, cccl 6761: float scans differed from run to run."""
    a, b = (engine.array(random(*shape, seed=s), "float32") for s in (0, 1))
    for axis in (0, 1):
        first = engine.scan(a, b, axis=axis)
        for _ in range(50):
            same(engine, engine.scan(a, b, axis=axis), first)


# -------------------------------------------------------------------------------------- the library


def test_unknown_arguments_are_not_swallowed(engine: Engine):
    """assoc-scan: ``return_next`` was accepted and ignored."""
    scan: Any = linscan.scan
    with pytest.raises(TypeError, match="unexpected keyword argument 'return_next'"):
        scan(0.5, engine.array([1.0]), return_next=True, backend=engine.backend)


@TENSORS
def test_a_gradient_is_not_silently_lost(engine: Engine):
    """torchaudio 704: a filter without a gradient returned none, without a word."""
    b = engine.array([1.0, 2.0]).requires_grad_()
    engine.scan(0.5, b).sum().backward()
    assert b.grad.tolist() == [1.5, 1.0]


@TENSORS
@pytest.mark.parametrize("precision", ["medium", "high"])
def test_fast_matrix_products_change_nothing(engine: Engine, precision: str):
    """TF32, simulated: a chunk scan by matrix products lost three digits to that setting."""
    torch = engine.xp
    a, b = engine.array(0.94), engine.array(random(4, 2048), "float32")
    before, exact = torch.get_float32_matmul_precision(), engine.scan(a, b)
    torch.set_float32_matmul_precision(precision)
    try:
        same(engine, engine.scan(a, b), exact)
    finally:
        torch.set_float32_matmul_precision(before)


@TENSORS
def test_autocast_changes_nothing(engine: Engine):
    """rl-triton: autocast made inputs bfloat16 and hit an assert."""
    a, b = (engine.array(random(2, 300, seed=s), "float32") for s in (0, 1))
    exact = engine.scan(a, b), *engine.gae(a, b, gamma=0.99, lam=0.95)
    with engine.xp.autocast("cpu", dtype=engine.xp.bfloat16):
        under = engine.scan(a, b), *engine.gae(a, b, gamma=0.99, lam=0.95)
    for x, y in zip(exact, under, strict=True):
        assert engine.dtype_of(y) == "float32"
        same(engine, x, y)
