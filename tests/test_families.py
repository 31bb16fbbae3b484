"""The estimators beyond GAE and λ-returns, and what goes with them, on numbers done by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

import linscan
from linscan import reference
from linscan.testing.engines import Engine, engines

ENGINES = [engine for engine, reason in engines() if reason is None and engine.device == "cpu"]
NAN = float("nan")


@pytest.fixture(params=ENGINES, ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def close(engine: Engine, x: Any, expected: ArrayLike) -> None:
    np.testing.assert_allclose(engine.numpy(x), np.asarray(expected, float), rtol=1e-6, atol=1e-6)


def floats(engine: Engine, *xs: ArrayLike) -> list[Any]:
    return [engine.array(x, "float32") for x in xs]


def flags(engine: Engine, x: ArrayLike) -> Any:
    return engine.array(np.asarray(x, bool))


# ----------------------------------------------------------------------------------------- V-trace


INF = float("inf")


@pytest.mark.parametrize(
    ("options", "vs", "advantages"),
    [
        ({}, [4, 7], [4, 3]),
        ({"lam": 0.5}, [3.25, 7], [3.25, 3]),
        ({"rho_clip": INF, "c_clip": INF, "pg_rho_clip": INF}, [5.5, 10], [5.5, 6]),
        ({"leak": 0.5}, [4.75, 8.5], [4.75, 3]),
        ({"leak": 1}, [5.5, 10], [5.5, 3]),
        ({"rho_clip": 0}, [0, 4], [2.5, 3]),
    ],
)
def test_vtrace(engine: Engine, options: Any, vs: list[float], advantages: list[float]):
    log_rhos, r, v = floats(engine, np.log([0.5, 2]), [1, 1], [0, 4])
    last = engine.array(6.0, "float32")
    got = engine.estimate("vtrace", log_rhos, r, v, gamma=1, last_values=last, **options)
    close(engine, got.vs, vs)
    close(engine, got.pg_advantages, advantages)
    close(engine, got.errors, np.subtract(vs, [0, 4]))


def test_vtrace_survives_a_ratio_without_bounds(engine: Engine):
    log_rhos, r, v = floats(engine, [1000, -1000], [1, 1], [0, 4])
    got = engine.estimate("vtrace", log_rhos, r, v, gamma=1)
    close(engine, got.errors, [5, 0])


@pytest.mark.parametrize("shape", [(1, 40_000), (300, 150), (2, 150, 150)])
def test_vtrace_of_many_elements(engine: Engine, shape: tuple[int, ...]):
    """Enough of them for several threads, which decide no bit."""
    rng = np.random.default_rng(3)
    log_rhos, r, v = rng.standard_normal((3, *shape)).astype(np.float32)
    terminated = rng.random(shape) < 0.05
    axis = min(1, len(shape) - 1)
    rule: dict[str, Any] = {"gamma": 0.99, "lam": 0.95, "axis": axis}
    expected = reference.vtrace(log_rhos, r, v, terminated=terminated, **rule)
    given = *floats(engine, log_rhos, r, v), flags(engine, terminated)
    got = engine.estimate("vtrace", *given[:3], terminated=given[3], **rule)
    for x, y in zip(got, expected, strict=True):
        np.testing.assert_allclose(engine.numpy(x), y, rtol=0, atol=1e-4)
    if len(shape) == 2 and engine.backend == "numba":
        one = engine.estimate(
            "vtrace", *(x[:1] for x in given[:3]), terminated=given[3][:1], **rule
        )
        for x, y in zip(got, one, strict=True):
            np.testing.assert_array_equal(engine.numpy(x[:1]), engine.numpy(y))


def test_one_ratio_for_each_sequence(engine: Engine):
    r, v = floats(engine, np.ones((2, 3)), np.zeros((2, 3)))
    whole = floats(engine, np.log([[0.5] * 3, [2] * 3]))[0]
    one = floats(engine, np.log([[0.5], [2]]))[0]
    for x, y in zip(
        engine.estimate("vtrace", whole, r, v, gamma=0.9),
        engine.estimate("vtrace", one, r, v, gamma=0.9),
        strict=True,
    ):
        close(engine, x, engine.numpy(y))


# ----------------------------------------------------------------------------- returns for actions


@pytest.mark.parametrize(
    ("kind", "options", "first"),
    [
        ("retrace", {"log_rhos": [9, 0.5]}, 3 + 0.5 * 3),
        ("retrace", {"log_rhos": [0.1, 2]}, 3 + 3),
        ("importance", {"log_rhos": [9, 2]}, 3 + 2 * 3),
        ("tree-backup", {"log_pi": [0.9, 0.25]}, 3 + 0.25 * 3),
        ("harutyunyan", {}, 3 + 3),
    ],
)
def test_the_trace_of_retrace_is_that_of_the_next_action(
    engine: Engine, kind: str, options: dict[str, list[float]], first: float
):
    r, q, e = floats(engine, [1, 1], [0, 2], [2, 4])
    given = {key: floats(engine, np.log(x))[0] for key, x in options.items()}
    close(engine, engine.estimate("retrace", r, q, e, gamma=1, kind=kind, **given), [first, 5])
    halved = engine.estimate("retrace", r, q, e, gamma=1, lam=0.5, kind=kind, **given)
    close(engine, halved, [3 + (first - 3) / 2, 5])


def test_q_lambda(engine: Engine):
    """rejax 35: the value of the wrong state, and the last bootstrap used twice."""
    r, m = floats(engine, [1, 2, 3], [10, 20, 30])
    rule = {"gamma": 0.5, "lam": 0.5}
    close(engine, engine.estimate("q_lambda", r, m, **rule), [6.375, 11.5, 18])
    greedy = flags(engine, [0, 1, 1])
    got = engine.estimate("q_lambda", r, m, kind="watkins", greedy_next=greedy, **rule)
    close(engine, got, [6, 11.5, 18])
    got = engine.estimate("q_lambda", r, m, terminated=flags(engine, [0, 1, 0]), **rule)
    close(engine, got, [1 + 0.5 * (0.5 * 10 + 0.5 * 2), 2, 18])


def test_what_is_not_greedy_is_selected_away(engine: Engine):
    r, m = floats(engine, [1, INF], [10, 20])
    greedy = flags(engine, [0, 0])
    rule = {"gamma": 0.5, "lam": 0.5, "kind": "watkins"}
    close(engine, engine.estimate("q_lambda", r, m, greedy_next=greedy, **rule), [6, INF])


# -------------------------------------------------------------------------------------------- UPGO


def test_upgo(engine: Engine):
    r, v, tied = floats(engine, [1, 0, 4], [0, 3, 2], [0, 2, 2])
    got = engine.estimate("upgo", r, v)
    close(engine, got.returns, [4, 4, 4])
    close(engine, got.advantages, [4, 1, 2])
    close(engine, engine.estimate("upgo", r, tied).returns, [5, 4, 4])
    rhos = floats(engine, [0.5, 2, 1])[0]
    close(engine, engine.estimate("upgo", r, v, rhos=rhos).advantages, [2, 2, 2])


def test_upgo_compares_in_the_dtype_of_the_data(engine: Engine):
    if engine.why_not("float16"):
        pytest.skip("no float16")
    r, v = (engine.array(x, "float16") for x in ([0.0, 2048, 1000], [0.0, 2052, 3]))
    close(engine, engine.estimate("upgo", r, v).returns, [3048, 3048, 1000])


def test_upgo_does_not_read_a_worse_return(engine: Engine):
    r, v = floats(engine, [1, -INF, 1], [0, 3, 2])
    close(engine, engine.estimate("upgo", r, v).returns, [4, -INF, 1])


# ----------------------------------------------------------------------------------------- n steps


def test_n_steps_stop_at_a_time_limit(engine: Engine):
    """tf-agents 939: transitions of n steps ran on across it, since the discount was still 1."""
    r, n = floats(engine, [1, 1, 1], [8, 8, 8])
    got = engine.estimate("n_step_returns", r, n, gamma=0.5, n=2)
    close(engine, got, [3.5, 3.5, 5])
    middle = flags(engine, [0, 1, 0])
    got = engine.estimate("n_step_returns", r, n, gamma=0.5, n=3, truncated=middle)
    close(engine, got, [3.5, 5, 5])
    got = engine.estimate("n_step_returns", r, n, gamma=0.5, n=3, terminated=middle)
    close(engine, got, [1.5, 1, 5])


def test_n_steps_do_not_cancel(engine: Engine):
    r, n = np.ones(100), np.zeros(100)
    r[50] = 1e20
    got = engine.estimate("n_step_returns", *floats(engine, r, n), gamma=1, n=5)
    close(engine, got[:46], np.full(46, 5))
    close(engine, got[51:95], np.full(44, 5))


# -------------------------------------------------------------------------------------- the others


def test_a_trace_decays_into_a_step(engine: Engine):
    """asi 2840: it decayed by the discount out of the step."""
    x, gamma = floats(engine, [3, 5], [0.25, 1])
    close(
        engine,
        engine.estimate("eligibility_traces", x, gamma=gamma, lam=0.9),
        [3, 0.25 * 0.9 * 3 + 5],
    )


def test_a_trace_ends_with_its_episode(engine: Engine):
    x = floats(engine, [INF, 1, 1, 1])[0]
    ends = {"terminated": flags(engine, [1, 0, 0, 0]), "truncated": flags(engine, [0, 0, 1, 0])}
    got = engine.estimate("eligibility_traces", x, gamma=1, lam=0.5, **ends)
    close(engine, got, [INF, 1, 1.5, 1])


@pytest.mark.parametrize(
    ("variant", "advantages"),
    [
        ("end", [1, 0, -3, -4]),
        ("start", [0, -1, -3, -4]),
        ("turn", [0.75, 0.75, -3, -3]),
        ("token", [0, -1, -3, -4]),
    ],
)
@pytest.mark.parametrize("holes", [False, True])
def test_a_turn_without_a_reward_is_still_a_turn(
    engine: Engine, variant: str, advantages: list[float], holes: bool
):
    """VAGEN: turns were found by their rewards, so that one of exactly 0 was none."""
    r, v, ids, mask = [0, 1, 0, 0], [1, 2, 3, 4], [7, 7, 2, 2], [1, 1, 1, 1]
    if holes:  # what a tool says, between the turns and after them
        r, v, ids = [*r[:2], NAN, *r[2:], NAN], [*v[:2], NAN, *v[2:], NAN], [7, 7, 2, 2, 2, 7]
        mask = [1, 1, 0, 1, 1, 0]
        advantages = [*advantages[:2], 0, *advantages[2:], 0]
    rule = {"gamma": 1, "lam": 1, "gamma_turn": 0.5, "lam_turn": 0.5, "variant": variant}
    if variant == "token":
        rule |= {"gamma": 1.0}
        expected = engine.gae(*floats(engine, r, v), gamma=1, lam=1, mask=flags(engine, mask))
        advantages = engine.numpy(expected.advantages).tolist()
    given = *floats(engine, r, v), engine.array(ids)
    got = engine.estimate("turn_gae", *given, mask=flags(engine, mask), **rule)
    close(engine, got.advantages, advantages)
    close(engine, got.returns, np.where(np.asarray(mask) == 1, np.add(advantages, v), 0))


def test_the_advantage_of_vapo(engine: Engine):
    """Its λ was 1 - 1 / (0.05 l): -19 at a length of 1."""
    r, v = (np.random.default_rng(0).standard_normal((3, 40)) for _ in range(2))
    lengths = np.array([1, 25, 40])
    lam = linscan.length_adaptive_lam(engine.array(lengths))
    np.testing.assert_allclose(engine.numpy(lam), [0, 0.2, 0.5], rtol=1e-6)
    given = {"gamma": 1, "lengths": engine.array(lengths)}
    got = engine.gae(*floats(engine, r, v), lam=lam[:, None], lam_returns=1.0, **given)
    for i, (n, own) in enumerate(zip(lengths, (0.0, 0.2, 0.5), strict=True)):
        row = floats(engine, r[i, :n], v[i, :n])
        advantages, _ = engine.gae(*row, gamma=1, lam=own)
        _, returns = engine.gae(*row, gamma=1, lam=1)
        close(engine, got.advantages[i, :n], engine.numpy(advantages))
        close(engine, got.returns[i, :n], engine.numpy(returns))


def test_the_returns_of_reinforce_plus_plus(engine: Engine):
    """verl 7278: the return was reset where a tool speaks, so that no reward crossed it."""
    mask = flags(engine, [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    rewards = linscan.place_terminal_reward(mask, floats(engine, [1, 2, 3])[0])
    close(engine, rewards, [[0, 0, 1, 0], [0, 0, 0, 2], [0, 0, 0, 0]])
    got = engine.discounted_returns(rewards, gamma=0.5, mask=mask)
    close(engine, got, [[0.5, 0, 1, 0], [0.25, 0.5, 1, 2], [0, 0, 0, 0]])


def test_two_streams_in_one_call(engine: Engine):
    """Random network distillation: the intrinsic stream has a γ of its own, and never ends."""
    rng = np.random.default_rng(1)
    r, v = rng.standard_normal((2, 2, 20, 3))
    done, last = rng.random((20, 3)) < 0.2, rng.standard_normal((2, 3))
    both = engine.gae(
        *floats(engine, r, v),
        gamma=floats(engine, [[[0.999]], [[0.99]]])[0],
        lam=0.95,
        last_values=floats(engine, last)[0],
        terminated=flags(engine, [done, np.zeros_like(done)]),
        axis=1,
    )
    for i, (gamma, ends) in enumerate([(0.999, {"terminated": flags(engine, done)}), (0.99, {})]):
        rule = {"gamma": gamma, "lam": 0.95, "axis": 0, **ends}
        own = engine.gae(
            *floats(engine, r[i], v[i]), last_values=floats(engine, last[i])[0], **rule
        )
        close(engine, both.advantages[i], engine.numpy(own.advantages))
        close(engine, both.returns[i], engine.numpy(own.returns))


# ---------------------------------------------------------------------------- flags and sequences


def test_flags_of_starts_are_flags_of_transitions(engine: Engine):
    """CleanRL and Stable-Baselines3: ``dones[t + 1]`` belongs to step t."""
    rng = np.random.default_rng(2)
    r, v = rng.standard_normal((2, 15, 3))
    starts, last_done = rng.random((15, 3)) < 0.3, rng.random(3) < 0.5
    last = rng.standard_normal(3)
    expected, carry = np.zeros_like(r), np.zeros(3)
    for t in reversed(range(15)):
        alive = 1.0 - (last_done if t == 14 else starts[t + 1])
        following = last if t == 14 else v[t + 1]
        carry = r[t] + 0.9 * following * alive - v[t] + 0.9 * 0.8 * alive * carry
        expected[t] = carry
    given = flags(engine, starts), flags(engine, last_done)
    got = engine.gae(
        *floats(engine, r, v),
        gamma=0.9,
        lam=0.8,
        last_values=floats(engine, last)[0],
        terminated=linscan.flags.from_episode_starts(*given, axis=0),
        axis=0,
    )
    close(engine, got.advantages, expected)


def test_what_arrives_with_an_observation_belongs_to_the_step_before(engine: Engine):
    x = engine.array(np.arange(6).reshape(2, 3))
    assert linscan.flags.from_arrival(x).tolist() == [[1, 2], [4, 5]]
    assert linscan.flags.from_arrival(x, axis=0).tolist() == [[3, 4, 5]]
    assert linscan.flags.from_arrival(x, engine.array([7, 8])).tolist() == [[1, 2, 7], [4, 5, 8]]
    assert linscan.flags.from_arrival(x, 9, axis=0).tolist() == [[3, 4, 5], [9, 9, 9]]
    assert linscan.flags.from_arrival(x[:, :0]).shape == (2, 0)
    assert linscan.flags.from_arrival(x[:, :0], 1).shape == (2, 0)
    assert linscan.flags.from_episode_starts(x[:, :0] > 0, True).shape == (2, 0)
    assert linscan.flags.from_episode_starts(x[:, :2] == 1, 1).tolist() == [[1, 1], [0, 1]]
    later = linscan.flags.from_arrival(x)
    later[...] = 0
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_score_goes_to_the_last_valid_step(engine: Engine):
    """trl 3750: it was put one step too far."""
    mask = engine.array([[1, 1, 0], [0, 0, 0], [1, 0, 1]])
    scores = floats(engine, [1, 2, 3])[0]
    got = linscan.place_terminal_reward(mask, scores)
    assert engine.dtype_of(got) == "float32"
    close(engine, got, [[0, 1, 0], [0, 0, 0], [0, 0, 3]])
    close(
        engine,
        linscan.place_terminal_reward(mask, scores, axis=0),
        [[0, 2, 0], [0, 0, 0], [1, 0, 3]],
    )
    close(engine, linscan.place_terminal_reward(mask, 5), [[0, 5, 0], [0, 0, 0], [0, 0, 5]])
    assert linscan.place_terminal_reward(mask[:, :0], scores).shape == (3, 0)


def test_sums_and_positions_in_packed_sequences(engine: Engine):
    starts = engine.array([[0, 0, 1, 0], [1, 1, 0, 0]])
    x = floats(engine, [[1, 2, 3, 4], [NAN, 6, 7, 8]])[0]
    got = linscan.episodic_sum(x, starts, backend=engine.backend)
    close(engine, got, [[1, 3, 3, 7], [NAN, 6, 13, 21]])
    got = linscan.episodic_sum(x[0], cu_seqlens=engine.array([0, 1, 1, 4]))
    close(engine, got, [1, 2, 5, 9])
    assert linscan.position_ids(starts).tolist() == [[0, 1, 0, 1], [0, 0, 1, 2]]
    assert linscan.position_ids(starts, axis=0).tolist() == [[0, 0, 0, 0], [0, 0, 1, 1]]
    assert linscan.position_ids(cu_seqlens=engine.array([0, 0, 3, 4])).tolist() == [0, 1, 2, 0]
    assert linscan.position_ids(cu_seqlens=engine.array([0])).tolist() == []
    assert engine.dtype_of(linscan.position_ids(starts)) == "int64"


# ------------------------------------------------------------------------------------------- calls


def test_one_plan_for_each_option() -> None:
    """Options are part of a call's signature, whatever kind of integer they are."""
    r, n = np.ones(4), np.full(4, 8.0)
    integers: list[Any] = [1, np.int64(2), 3, np.int32(1), np.int64(3)]
    for steps in integers:
        got = linscan.n_step_returns(r, n, gamma=0.5, n=steps)
        assert got[0] == [0, 5, 3.5, 2.75][int(steps)]
    given = {"turn_ids": [0, 0, 1, 1], "gamma": 1, "lam": 1, "gamma_turn": 0.5, "lam_turn": 1}
    for _ in range(2):
        firsts = [
            float(linscan.turn_gae(r, n, variant=variant, **given).advantages[0])
            for variant in ("end", "start", "turn", "token")
        ]
        assert firsts == [1 - 3 - 0.5 * 7, 1 + 1 - 6, 2 + 4 - 8 - 0.5 * 6, 4 - 8]


def test_explain_knows_them() -> None:
    x = np.ones((2, 3))
    rule = {"gamma": 0.9, "lam": 0.9, "backend": "numpy"}
    ids = np.zeros((2, 3), int)
    for found in (
        linscan.explain(linscan.vtrace, x, x, x, **rule),
        linscan.explain(linscan.retrace, x, x, x, x, kind="importance", **rule),
        linscan.explain(linscan.turn_gae, x, x, ids, gamma_turn=1, lam_turn=1, **rule),
    ):
        assert found.backend == "numpy"
        assert "between elementwise passes (it has no fused pass)" in found.kernel


def test_they_join_graphs() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    r, v, log_rhos = torch.randn(3, 3, 17, generator=torch.Generator().manual_seed(0))
    mask, ids = log_rhos < 0.8, torch.arange(17) // 4
    turns = {"gamma": 0.9, "lam": 0.9, "gamma_turn": 0.8, "lam_turn": 0.8, "variant": "start"}

    def run(r: Any, v: Any, log_rhos: Any, mask: Any, ids: Any) -> Any:
        return (
            *linscan.vtrace(log_rhos, r, v, gamma=0.9, mask=mask),
            *linscan.turn_gae(r, v, ids, mask=mask, **turns),
            linscan.n_step_returns(r, v, gamma=0.9, n=3),
        )

    given = r, v, log_rhos, mask, ids
    compiled = torch.compile(run, fullgraph=True, backend="eager")(*given)
    for x, y in zip(compiled, run(*given), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5)
