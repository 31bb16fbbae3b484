"""The laws of the estimators beyond GAE and λ-returns, on every backend."""
# ruff: noqa: D103

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linscan._dispatch import registry
from linscan.testing._interpreter import affordable
from linscan.testing.engines import SIXTEEN_BITS, Engine
from linscan.testing.families import CASES, GIVEN_NEXT, RENAMED, call_of, suits
from linscan.testing.problems import Array
from linscan.testing.rollouts import (
    DECAYS,
    LAYOUTS,
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
)

EVERY = pytest.mark.parametrize("case", list(CASES))


def plain(case: str, layout: str = "whole", **changes: Any) -> Kind:
    """A kind of call that the estimator takes."""
    name = CASES[case][0]
    source = "next" if name in GIVEN_NEXT else "last"
    truncation = "none" if name == "turn_gae" else "values"
    return Kind(**{"source": source, "truncation": truncation, "layout": layout, **changes})


# ------------------------------------------------------------------------- against the reference


@EVERY
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_combination(engine: Engine, case: str, layout: str) -> None:
    every = enumerate(product(SOURCES, TRUNCATIONS, (False, True)))
    for i, (source, truncation, terminated) in list(every)[:: affordable(1, 3)]:
        kind = Kind(source, truncation, terminated, layout, DECAYS[i % 4])
        if suits(case, kind):
            check(engine, call_of(case, kind, 3, 41, axis=i // 4 % 2, seed=i))


@EVERY
def test_every_length(engine: Engine, case: str) -> None:
    times = (0, 1, 2, 3, 33, 129)[:: affordable(1, 2)]
    for time, layout in product(times, ("whole", "mask")):
        check(engine, call_of(case, plain(case, layout), 2, time))


@EVERY
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_every_dtype(engine: Engine, dtype: str, case: str) -> None:
    if dtype == "bfloat16" and engine.library != "torch":
        pytest.skip("NumPy has no bfloat16")
    if case == "upgo" and dtype in SIXTEEN_BITS:
        pytest.skip("a comparison that is nearly a tie goes either way")
    for axis, layout in ((0, "mask"), (1, "packed")):
        check(engine, call_of(case, plain(case, layout), 3, 70, dtype, axis))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    case=st.sampled_from(list(CASES)),
    rows=st.integers(0, 4),
    time=st.integers(0, 70),
    axis=st.sampled_from([0, 1]),
    seed=st.integers(0, 1 << 16),
    layout=st.sampled_from(LAYOUTS),
    decay=st.sampled_from(DECAYS),
    terminated=st.booleans(),
)
def test_anything(
    engine: Engine,
    case: str,
    rows: int,
    time: int,
    axis: int,
    seed: int,
    layout: str,
    decay: str,
    terminated: bool,
) -> None:
    kind = plain(case, layout, decay=decay, terminated=terminated)
    if suits(case, kind):
        check(engine, call_of(case, kind, rows, time, axis=axis, seed=seed))


@EVERY
def test_a_flag_in_a_hole_ends_the_episode_before_it(engine: Engine, case: str) -> None:
    name = CASES[case][0]
    for seed in range(3):
        args = dict(call_of(case, plain(case, "mask"), 4, 40, seed=seed).args)
        rng = np.random.default_rng(seed)
        hole = ~args["mask"]
        args["terminated"] = (rng.random(hole.shape) < 0.4) & hole
        if name != "turn_gae":
            args["truncated"] = (rng.random(hole.shape) < 0.4) & hole
        if "truncation_values" in args:
            finals = rng.standard_normal(hole.shape).astype(np.float32).astype(float)
            args["truncation_values"] = np.where(args["truncated"], finals, np.nan)
        for follows in ("expected_next_q", "next_q_max", "next_values"):
            if follows in args:
                args[follows] = rng.standard_normal(hole.shape).astype(np.float32).astype(float)
        check(engine, known(name, args))


@EVERY
def test_any_rank(engine: Engine, case: str) -> None:
    flat = call_of(case, plain(case, "mask"), 6, 20)

    def shaped(key: str, x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        if key == "last_values":
            return x.reshape(2, 3)
        return x.reshape(2, 3, 20).swapaxes(1, 2) if len(x) > 1 else x.reshape(20, 1)

    args = {key: shaped(key, x) for key, x in flat.args.items()} | {"axis": -2}
    expected = tuple(shaped("", x) for x in flat.expected)
    check(engine, Rollout(flat.name, flat.dtype, {**args, "axis": 1}, expected))
    results = call(engine, Rollout(flat.name, flat.dtype, args, expected))
    for got, known_ in zip(results, expected, strict=True):
        np.testing.assert_allclose(engine.numpy(got), known_, rtol=0, atol=1e-4)


@EVERY
def test_inputs_are_never_written(engine: Engine, case: str) -> None:
    r = call_of(case, plain(case, "mask"), 3, 40)
    given = arguments(engine, r)
    if engine.library == "numpy":
        for x in given.values():
            if isinstance(x, np.ndarray):
                x.flags.writeable = False
    engine.estimate(r.name, **given)
    for key, x in arguments(engine, r).items():
        if not (x is None or isinstance(x, (int, float, str))):
            np.testing.assert_array_equal(engine.numpy(given[key]), engine.numpy(x))


@EVERY
def test_into_out(engine: Engine, case: str) -> None:
    r = call_of(case, plain(case, "mask"), 3, 40)
    targets = tuple(engine.array(np.full((3, 80), 7.0), "float32")[:, ::2] for _ in r.expected)
    results = call(engine, r, out=targets[0] if len(targets) == 1 else targets)
    for x, target in zip(results, targets, strict=True):
        assert x is target
    compare(r, tuple(map(engine.numpy, targets)))


@EVERY
def test_the_same_bits_every_time(engine: Engine, case: str) -> None:
    r = call_of(case, plain(case, "mask"), 3, 300)
    first = call(engine, r)
    for x, y in zip(first, call(engine, r), strict=True):
        np.testing.assert_array_equal(engine.numpy(x), engine.numpy(y))


# -------------------------------------------------------------------------------------- identities


def results(engine: Engine, name: str, **args: Any) -> Array:
    """The results in float64, stacked."""
    arrays = {k: engine.array(x) if isinstance(x, np.ndarray) else x for k, x in args.items()}
    found = engine.estimate(name, **arrays)
    return np.stack([engine.numpy(x) for x in (found if isinstance(found, tuple) else (found,))])


def equal(x: Array, y: Array) -> None:
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-11)


@pytest.fixture
def batch() -> dict[str, Any]:
    """Rewards and values in float64, with flags and what follows the last step."""
    rng = np.random.default_rng(1)
    shape = (4, 60)
    truncated = rng.random(shape) < 0.05
    return {
        "rewards": rng.standard_normal(shape),
        "values": rng.standard_normal(shape),
        "last_values": rng.standard_normal(4),
        "terminated": rng.random(shape) < 0.05,
        "truncated": truncated,
        "truncation_values": np.where(truncated, rng.standard_normal(shape), np.nan),
        "mask": rng.random(shape) < 0.8,
    }


def followers(batch: dict[str, Any]) -> Array:
    """The value of what follows each step of a batch without holes."""
    n = np.concatenate([batch["values"][:, 1:], batch["last_values"][:, None]], axis=1)
    return np.where(batch["truncated"], batch["truncation_values"], n)


def given_next(batch: dict[str, Any]) -> dict[str, Any]:
    """Rewards and flags of a batch without holes."""
    return {k: batch[k] for k in ("rewards", "terminated", "truncated")}


@pytest.mark.parametrize("lam", [0.0, 0.9, 1.0])
def test_i1_targets_of_q_are_lambda_returns(
    engine: Engine, batch: dict[str, Any], lam: float
) -> None:
    del batch["mask"]
    rule = {"gamma": 0.97, "lam": lam}
    target = results(engine, "td_lambda", **batch, **rule)
    rest, n = given_next(batch), followers(batch)
    equal(results(engine, "q_lambda", **rest, next_q_max=n, **rule), target)
    everywhere = np.ones(n.shape, bool)
    watkins = {"kind": "watkins", "greedy_next": everywhere}
    equal(results(engine, "q_lambda", **rest, next_q_max=n, **watkins, **rule), target)
    q = {"q_values": batch["values"], "expected_next_q": n}
    for kind in ("harutyunyan", "retrace", "importance"):
        given = {"log_rhos": 0.0, "kind": kind}
        equal(results(engine, "retrace", **rest, **q, **given, **rule), target)
    equal(results(engine, "retrace", **rest, **q, log_pi=0.0, kind="tree-backup", **rule), target)


def test_i2_all_steps_are_the_discounted_return(engine: Engine, batch: dict[str, Any]) -> None:
    del batch["mask"]
    rest, n = given_next(batch), followers(batch)
    values = batch.pop("values")
    returns = results(engine, "discounted_returns", **batch, gamma=0.97)
    for steps in (59, 60, 10**9):
        equal(
            results(engine, "n_step_returns", **rest, next_values=n, gamma=0.97, n=steps), returns
        )
    lowest = np.full_like(values, -1e9)  # everything is better than expected, and is followed
    batch |= {"truncation_values": n, "values": lowest}
    upgoing = results(engine, "upgo", **batch, gamma=0.97)
    equal(upgoing[1], returns[0])


@pytest.mark.parametrize("lam", [0.0, 1e-30])
def test_i3_lambda_zero_is_one_step(engine: Engine, batch: dict[str, Any], lam: float) -> None:
    del batch["mask"]
    rest, v = given_next(batch), batch["values"]
    n = followers(batch)
    one = batch["rewards"] + 0.97 * np.where(batch["terminated"], 0, n)
    rule = {"gamma": 0.97, "lam": lam}
    log_rhos = np.random.default_rng(3).standard_normal(v.shape)
    vs, advantages, errors = results(engine, "vtrace", **batch, log_rhos=log_rhos, **rule)
    clipped = np.exp(np.minimum(log_rhos, 0))
    equal(errors, clipped * (one - v))
    equal(vs, v + errors)
    equal(advantages, errors)
    q = {"q_values": v, "expected_next_q": n, "log_rhos": log_rhos}
    equal(results(engine, "retrace", **rest, **q, **rule)[0], one)
    equal(results(engine, "q_lambda", **rest, next_q_max=n, **rule)[0], one)
    equal(results(engine, "n_step_returns", **rest, next_values=n, gamma=0.97, n=1)[0], one)
    decays = {"x": v, "terminated": batch["terminated"], **rule}
    equal(results(engine, "eligibility_traces", **decays)[0], v)


@EVERY
def test_i3_gamma_zero_looks_nowhere(engine: Engine, case: str) -> None:
    r = call_of(case, plain(case, "mask"), 3, 40, "float64")
    args = {**r.args, "gamma": 0.0}
    if "gamma_turn" in args:
        args["gamma_turn"] = 0.0
    if case in ("turns by start", "turns"):
        args["variant"] = "end"  # a turn still adds up its own rewards
    got = results(engine, r.name, **args)
    mask = args["mask"]
    reward = np.where(mask, args["x" if case == "traces" else "rewards"], 0)
    if r.name == "vtrace":
        rho = np.exp(np.where(mask, args["log_rhos"], 0))
        leak, values = args.get("leak", 0.0), np.where(mask, args["values"], 0)
        clipped = leak * rho + (1 - leak) * np.minimum(args.get("rho_clip", 1.0), rho)
        equal(got[2], clipped * (reward - values))
    else:
        equal(got[-1], reward)


@pytest.mark.parametrize("lam", [0.9, 1.0])
def test_i4_on_policy_vtrace_is_gae(engine: Engine, batch: dict[str, Any], lam: float) -> None:
    rule = {"gamma": 0.97, "lam": lam}
    advantages, returns = results(engine, "gae", **batch, **rule)
    vs, _, errors = results(engine, "vtrace", log_rhos=0.0, **batch, **rule)
    equal(errors, advantages)
    equal(vs, returns)


def test_i4_at_lambda_one_the_policy_gradient_has_the_advantages(
    engine: Engine, batch: dict[str, Any]
) -> None:
    advantages, _ = results(engine, "gae", **batch, gamma=0.97, lam=1.0)
    equal(results(engine, "vtrace", log_rhos=0.0, **batch, gamma=0.97)[1], advantages)


def test_i4_turns_of_one_token_are_tokens(engine: Engine, batch: dict[str, Any]) -> None:
    for key in ("truncated", "truncation_values"):
        del batch[key]
    advantages = results(engine, "gae", **batch, gamma=0.97, lam=0.9)
    rule = {"gamma": 0.97, "lam": 0.9, "gamma_turn": 0.97, "lam_turn": 0.9}
    each, one = np.arange(60), np.zeros(60, np.int64)
    for ids, variant in ((each, "end"), (each, "start"), (each, "turn"), (one, "end")):
        got = results(engine, "turn_gae", turn_ids=ids, variant=variant, **batch, **rule)
        equal(got, advantages)


@EVERY
def test_i5_cutting_is_concatenating(engine: Engine, case: str) -> None:
    r = call_of(case, plain(case, "packed"), 3, 40, "float64", seed=4)
    offsets = r.args["cu_seqlens"]
    whole = results(engine, r.name, **r.args)
    for n, (i, j) in enumerate(pairwise(offsets.tolist())):
        piece: dict[str, Any] = {}
        for key, x in r.args.items():
            if key == "last_values":
                piece[key] = x[n]
            elif key != "cu_seqlens":
                piece[key] = x[:, i:j] if np.ndim(x) == 2 and x.shape[1] == 40 else x
        equal(results(engine, r.name, **piece), whole[:, :, i:j])


@EVERY
def test_i6_holes_leave_the_compressed_sequence(engine: Engine, case: str) -> None:
    for seed in range(4):
        kind = plain(case, "mask", decay="full")
        r = call_of(case, kind, 1, 50, "float64", seed=seed)
        valid = r.args["mask"][0]
        short = {k: x[:, valid] if np.ndim(x) == 2 else x for k, x in r.args.items()}
        del short["mask"]
        full, compressed = (results(engine, r.name, **given) for given in (r.args, short))
        equal(full[..., valid], compressed)
        assert not full[..., ~valid].any()


@EVERY
def test_i7_linear_in_rewards_and_values(engine: Engine, case: str) -> None:
    r = call_of(case, plain(case, "mask"), 3, 50, "float64")
    names = {"rewards", "values", "last_values", "truncation_values", "next_values"}
    renamed = RENAMED.get(r.name, {})
    linear = sorted({renamed.get(k, k) for k in names} & set(r.args))
    rng = np.random.default_rng(5)
    one, two = ({k: rng.standard_normal(r.args[k].shape) for k in linear} for _ in range(2))
    if r.name == "upgo":  # which is linear for positive numbers on one ray
        two = {k: one[k] for k in linear}
    both = {k: 2 * one[k] + 3 * two[k] for k in linear}
    x, y, z = (results(engine, r.name, **{**r.args, **given}) for given in (both, one, two))
    equal(x, 2 * y + 3 * z)


def test_i7_a_constant_shift_of_values_leaves_terminated_targets(engine: Engine) -> None:
    rng = np.random.default_rng(6)
    r, v = rng.standard_normal((2, 2, 60))
    terminated = np.zeros((2, 60), bool)
    terminated[:, [20, 59]] = True
    rest = {"rewards": r, "terminated": terminated, "gamma": 0.97, "log_rhos": 0.0}
    one, two = (results(engine, "vtrace", values=v + c, **rest) for c in (0.0, 5.0))
    equal(one[0], two[0])


# --------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("case", list(CASES)[:: affordable(1, 4)])
def test_gradients(engine: Engine, case: str) -> None:
    if engine.library != "torch" or not hasattr(registry()[engine.backend], "differentiable"):
        pytest.skip("gradients are torch's, on backends that compute them")
    r = call_of(case, plain(case, "mask"), 2, 9, "float64", seed=2)
    given = arguments(engine, r)
    real = [k for k, x in given.items() if getattr(x, "is_floating_point", bool)()]
    inputs = [given[k].nan_to_num().requires_grad_() for k in real]

    def run(*xs: Any) -> Any:
        return engine.estimate(
            r.name, **{**given, **dict(zip(real, xs, strict=True))}, differentiable=True
        )

    assert engine.xp.autograd.gradcheck(run, inputs, fast_mode=bool(affordable(False, True)))
    inputs = [x.detach().requires_grad_() for x in (given[k] for k in real)]
    found = run(*inputs)
    total = sum(x.sum() for x in (found if isinstance(found, tuple) else (found,)))
    for x, gradient in zip(inputs, engine.xp.autograd.grad(total, inputs), strict=True):
        assert not gradient.isnan().any(), "what must not be read has no gradient"
        assert not gradient[x.isnan()].any()
