"""The laws of the estimators, on every backend: in one pass or composed, they are the same."""
# ruff: noqa: D103

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linscan.testing._interpreter import affordable
from linscan.testing.engines import Engine
from linscan.testing.problems import Array
from linscan.testing.rollouts import (
    DECAYS,
    LAYOUTS,
    NAMES,
    SOURCES,
    TOLERANCE,
    TRUNCATIONS,
    Kind,
    Rollout,
    arguments,
    call,
    check,
    compare,
    known,
    rollout,
)
from linscan.testing.test_scan import poison_empty

EVERY = pytest.mark.parametrize("name", NAMES)
DRAWN = settings(derandomize=True, deadline=None, max_examples=100)
LENGTHS = (0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1023, 1025, 2049)


# ------------------------------------------------------------------------- against the reference


@EVERY
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_every_combination(
    engine: Engine, name: str, source: str, truncation: str, layout: str
) -> None:
    every = enumerate(product((False, True), (0, 1)))
    for i, (terminated, axis) in list(every)[:: affordable(1, 3)]:
        for decay in DECAYS[i % affordable(2, 4) :: affordable(2, 4)]:
            for lam_returns in (False, True) if name == "gae" else (False,):
                kind = Kind(source, truncation, terminated, layout, decay, lam_returns)
                if kind.suits(name):
                    check(engine, rollout(name, kind, 3, 60 + i, axis=axis, seed=i))


@EVERY
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("time", LENGTHS)
def test_every_length(engine: Engine, time: int, axis: int, name: str) -> None:
    for layout, truncation in product(("whole", "mask"), ("none", "values")):
        kind = Kind("last", truncation, truncation != "none", layout)
        check(engine, rollout(name, kind, 3, time, axis=axis))


@EVERY
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_every_dtype(engine: Engine, dtype: str, axis: int, name: str) -> None:
    if dtype == "bfloat16" and engine.library != "torch":
        pytest.skip("NumPy has no bfloat16")
    for layout, decay in product(("whole", "mask", "packed"), DECAYS):
        kind = Kind(layout=layout, decay=decay)
        check(engine, rollout(name, kind, 3, 131, dtype=dtype, axis=axis))


@EVERY
@pytest.mark.parametrize("rows", [0, 1, 2, 17, 300])
def test_every_number_of_rows(engine: Engine, rows: int, name: str) -> None:
    for axis, layout in product((0, 1), ("whole", "mask")):
        check(engine, rollout(name, Kind(layout=layout), rows, 33, axis=axis))


@DRAWN
@given(
    name=st.sampled_from(NAMES),
    rows=st.integers(0, 5),
    time=st.integers(0, 140),
    axis=st.sampled_from([0, 1]),
    seed=st.integers(0, 1 << 16),
    kind=st.builds(
        Kind,
        st.sampled_from(SOURCES),
        st.sampled_from(TRUNCATIONS),
        st.booleans(),
        st.sampled_from(LAYOUTS),
        st.sampled_from(DECAYS),
        st.booleans(),
    ),
)
def test_anything(
    engine: Engine, name: str, rows: int, time: int, axis: int, seed: int, kind: Kind
) -> None:
    if kind.suits(name):
        check(engine, rollout(name, kind, rows, time, axis=axis, seed=seed))


@EVERY
@pytest.mark.parametrize("place", range(4))
def test_any_rank(engine: Engine, place: int, name: str) -> None:
    flat = rollout(name, Kind(layout="mask"), 24, 40)

    def shaped(key: str, x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        if key == "last_values":
            return x.reshape(2, 3, 4)
        return np.moveaxis(x.reshape(2, 3, 4, 40), -1, place)

    args = {key: shaped(key, x) for key, x in flat.args.items()} | {"axis": place}
    expected = tuple(shaped("returns", x) for x in flat.expected)
    check(engine, Rollout(name, flat.dtype, args, expected))
    check(engine, Rollout(name, flat.dtype, args | {"axis": place - 4}, expected))


@EVERY
@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_never_written(engine: Engine, layout: str, name: str) -> None:
    r = rollout(name, Kind(layout=layout), 5, 70)
    given = arguments(engine, r)
    if engine.library == "numpy":
        for x in given.values():
            if isinstance(x, np.ndarray):
                x.flags.writeable = False
    getattr(engine, name)(**given)
    for key, x in arguments(engine, r).items():
        if not isinstance(x, (int, float, str)):
            np.testing.assert_array_equal(engine.numpy(given[key]), engine.numpy(x))


@EVERY
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("layout", ["whole", "mask"])
def test_into_out(engine: Engine, layout: str, axis: int, name: str) -> None:
    r = rollout(name, Kind(layout=layout), 5, 70, axis=axis)
    steps, across = r.expected[0].shape
    memory = engine.array(np.full((2, steps + 2, 2 * across), 7.0), "float32")
    for place in ((slice(1, -1), slice(0, across)), (slice(1, -1), slice(0, None, 2))):
        targets = tuple(memory[i][place] for i in range(len(r.expected)))
        results = call(engine, r, out=targets if name == "gae" else targets[0])
        for x, target in zip(results, targets, strict=True):
            assert x is target
        compare(r, tuple(map(engine.numpy, targets)))
        for target in targets:
            target[...] = 7.0
        assert (engine.numpy(memory) == 7.0).all()


@EVERY
@pytest.mark.parametrize("layout", LAYOUTS)
def test_uninitialised_memory_is_not_read(
    engine: Engine, layout: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = [rollout(name, Kind(layout=layout), 5, 131, axis=axis) for axis in (0, 1)]
    for r in rollouts:  # first as it is: a compiler may look up what is then replaced
        check(engine, r)
    poison_empty(engine, monkeypatch)
    for r in rollouts:
        check(engine, r)


@EVERY
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_bits_every_time(engine: Engine, dtype: str, name: str) -> None:
    for rows, time in ((1, affordable(20_001, 4099)), (40, affordable(2049, 300))):
        r = rollout(name, Kind(layout="mask"), rows, time, dtype)
        first = call(engine, r)
        for _ in range(affordable(4, 1)):
            for x, y in zip(first, call(engine, r), strict=True):
                np.testing.assert_array_equal(engine.numpy(x), engine.numpy(y))


# ------------------------------------------------------------------------------- flags in holes


@EVERY
@pytest.mark.parametrize("masked", ["zero", "carry"])
@pytest.mark.parametrize("flags", ["terminated", "truncated", "both", "current_value", "next"])
def test_a_flag_in_a_hole_ends_the_episode_before_it(
    engine: Engine, flags: str, masked: str, name: str
) -> None:
    kind = Kind("next" if flags == "next" else "last", "none", False, "mask-carry")
    if not kind.suits(name) or (flags == "current_value" and name == "discounted_returns"):
        pytest.skip("needs values")
    for seed in range(8):
        args = {**rollout(name, kind, 4, 40, seed=seed).args, "masked": masked}
        rng = np.random.default_rng(seed)
        hole = ~args["mask"]
        marked = (rng.random(hole.shape) < 0.4) & (hole | (rng.random(hole.shape) < 0.1))
        ends = marked & (rng.random(hole.shape) < {"terminated": 1, "truncated": 0}.get(flags, 0.5))
        args |= {"terminated": ends, "truncated": marked}
        if flags == "current_value":
            args["on_missing_bootstrap"] = flags
        elif flags != "next":
            finals = rng.standard_normal(hole.shape).astype(np.float32)
            args["truncation_values"] = np.where(marked & ~ends, finals.astype(float), np.nan)
        check(engine, known(name, args))


# -------------------------------------------------------------------------------------- identities


def result(engine: Engine, name: str, **args: Any) -> Array:
    """The results in float64: one, or GAE's two stacked."""
    arrays = {k: engine.array(x) if isinstance(x, np.ndarray) else x for k, x in args.items()}
    results = getattr(engine, name)(**arrays)
    if name == "gae":
        return np.stack([engine.numpy(x) for x in results])
    return engine.numpy(results)


def ends(rng: np.random.Generator, shape: tuple[int, int]) -> dict[str, Any]:
    """Flags with what truncated steps lead to."""
    truncated = rng.random(shape) < 0.05
    return {
        "terminated": rng.random(shape) < 0.05,
        "truncated": truncated,
        "truncation_values": np.where(truncated, rng.standard_normal(shape), np.nan),
    }


@pytest.fixture
def batch() -> dict[str, Any]:
    """Rewards and values in float64, with flags and what follows the last step."""
    rng = np.random.default_rng(1)
    shape = (4, 90)
    return {
        "rewards": rng.standard_normal(shape),
        "values": rng.standard_normal(shape),
        "last_values": rng.standard_normal(4),
        **ends(rng, shape),
    }


def test_i1_the_lambda_return_is_gae_plus_the_value(engine: Engine, batch: dict[str, Any]) -> None:
    _, returns = result(engine, "gae", **batch, gamma=0.97, lam=0.9)
    target = result(engine, "td_lambda", **batch, gamma=0.97, lam=0.9)
    np.testing.assert_allclose(returns, target, rtol=0, atol=1e-12)


def test_i2_lambda_one_telescopes(engine: Engine, batch: dict[str, Any]) -> None:
    advantages, _ = result(engine, "gae", **batch, gamma=0.97, lam=1.0)
    values = batch.pop("values")
    returns = result(engine, "discounted_returns", **batch, gamma=0.97)
    np.testing.assert_allclose(advantages, returns - values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lam", [0.0, 1e-30])
def test_i3_lambda_zero_is_the_td_error(engine: Engine, batch: dict[str, Any], lam: float) -> None:
    r, v, gamma = batch["rewards"], batch["values"], 0.97
    n = np.concatenate([v[:, 1:], batch["last_values"][:, None]], axis=1)
    n = np.where(batch["truncated"], batch["truncation_values"], n)
    n = np.where(batch["terminated"], 0, n)
    advantages, returns = result(engine, "gae", **batch, gamma=gamma, lam=lam)
    np.testing.assert_allclose(advantages, r + gamma * n - v, rtol=0, atol=1e-13)
    np.testing.assert_allclose(returns, r + gamma * n, rtol=0, atol=1e-13)
    target = result(engine, "td_lambda", **batch, gamma=gamma, lam=lam)
    np.testing.assert_allclose(target, r + gamma * n, rtol=0, atol=1e-13)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_i3_gamma_zero_is_the_reward(engine: Engine, batch: dict[str, Any], lam: float) -> None:
    r, v = batch["rewards"], batch["values"]
    advantages, returns = result(engine, "gae", **batch, gamma=0.0, lam=lam)
    np.testing.assert_allclose(advantages, r - v, rtol=0, atol=1e-13)
    np.testing.assert_allclose(returns, r, rtol=0, atol=1e-13)


@EVERY
def test_i5_cutting_is_concatenating(engine: Engine, name: str) -> None:
    rng = np.random.default_rng(2)
    offsets = np.cumsum([0, 1, 17, 0, 40, 33])
    time = int(offsets[-1])
    r, v, finals = (rng.standard_normal((3, time)) for _ in range(3))
    last = rng.standard_normal((5, 3))
    rule = {"gamma": 0.97} if name == "discounted_returns" else {"gamma": 0.97, "lam": 0.9}

    def values(x: Array) -> dict[str, Array]:
        return {} if name == "discounted_returns" else {"values": x}

    pieces = [
        result(engine, name, rewards=r[:, i:j], **values(v[:, i:j]), last_values=last[n], **rule)
        for n, (i, j) in enumerate(pairwise(offsets))
    ]
    whole = np.concatenate(pieces, axis=-1)
    packed = result(
        engine, name, rewards=r, **values(v), last_values=last, cu_seqlens=offsets, **rule
    )
    np.testing.assert_allclose(packed, whole, rtol=0, atol=1e-12)

    truncated = np.zeros((3, time), bool)
    for n, (i, j) in enumerate(pairwise(offsets)):
        if j > i:
            truncated[:, j - 1] = True
            finals[:, j - 1] = last[n]
    cut = result(
        engine,
        name,
        rewards=r,
        **values(v),
        truncated=truncated,
        truncation_values=finals,
        **rule,
    )
    np.testing.assert_allclose(cut, whole, rtol=0, atol=1e-12)


@EVERY
def test_i6_holes_leave_the_compressed_sequence(engine: Engine, name: str) -> None:
    for seed in range(20):
        args = rollout(name, Kind(layout="mask", decay="full"), 1, 50, "float64", seed=seed).args
        valid = args["mask"][0]
        short = {k: x[:, valid] if np.ndim(x) == 2 else x for k, x in args.items()}
        del short["mask"], short["masked"]
        full, compressed = (result(engine, name, **given) for given in (args, short))
        np.testing.assert_allclose(full[..., valid], compressed, rtol=0, atol=1e-12)
        assert not full[..., ~valid].any()


@EVERY
def test_i7_linear_in_rewards_and_values(engine: Engine, name: str) -> None:
    one = rollout(name, Kind(layout="mask-carry"), 3, 70, "float64").args
    rng = np.random.default_rng(5)
    linear = {"rewards", "values", "last_values", "truncation_values"} & set(one)
    one, two = ({k: rng.standard_normal(one[k].shape) for k in sorted(linear)} for _ in range(2))
    both = {k: 2 * one[k] - 3 * two[k] for k in linear}
    rest = rollout(name, Kind(layout="mask-carry"), 3, 70, "float64").args
    x, y, z = (result(engine, name, **{**rest, **given}) for given in (both, one, two))
    np.testing.assert_allclose(x, 2 * y - 3 * z, rtol=0, atol=1e-12)


def test_i7_a_constant_shift_of_values_leaves_terminated_returns(engine: Engine) -> None:
    rng = np.random.default_rng(6)
    r, v = rng.standard_normal((2, 60)), rng.standard_normal((2, 60))
    terminated = np.zeros((2, 60), bool)
    terminated[:, [20, 59]] = True
    one, two = (
        result(engine, "gae", rewards=r, values=v + c, terminated=terminated, gamma=0.97, lam=1.0)
        for c in (0.0, 5.0)
    )
    np.testing.assert_allclose(one[1], two[1], rtol=0, atol=1e-12)
