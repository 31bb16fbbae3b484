"""Faults that other projects have had in their return estimators, each with the right answer.

A test is named after the fault; its docstring says where it was reported and what went wrong.
Expected values are worked out by hand, or by a float64 loop.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import linscan
from linscan.testing.engines import Engine, engines

ENGINES = [engine for engine, reason in engines() if reason is None and engine.device == "cpu"]
NONE = pytest.param(None, marks=pytest.mark.skip(reason="torch is not installed"))
TENSORS = pytest.mark.parametrize(
    "engine", [e for e in ENGINES if e.library == "torch"] or [NONE], ids=str
)
SOURCES = ["longer values", "next_values", "last_values"]
INTEGERS = ["bool", "uint8", "int32", "int64"]


@pytest.fixture(params=ENGINES, ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def close(engine: Engine, x: Any, expected: ArrayLike, rtol: float = 1e-5) -> None:
    expected = np.asarray(expected, np.float64)
    assert tuple(x.shape) == expected.shape
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    np.testing.assert_allclose(engine.numpy(x), expected, rtol=rtol, atol=rtol * scale)


def same(engine: Engine, x: Any, y: Any) -> None:
    np.testing.assert_array_equal(engine.numpy(x), engine.numpy(y))


def floats(engine: Engine, *xs: ArrayLike) -> Any:
    """float32 arrays of the engine's library; one alone is not in a list."""
    arrays = [engine.array(x, "float32") for x in xs]
    return arrays[0] if len(arrays) == 1 else arrays


def flags(engine: Engine, x: ArrayLike) -> Any:
    return engine.array(np.asarray(x, bool))


def bootstrap(engine: Engine, source: str, values: list[float], last: float) -> dict[str, Any]:
    """The same values and the same last value, said in one of the three ways."""
    if source == "longer values":
        return {"values": floats(engine, [*values, last])}
    if source == "next_values":
        return {
            "values": floats(engine, values),
            "next_values": floats(engine, [*values[1:], last]),
        }
    return {"values": floats(engine, values), "last_values": floats(engine, last)}


def gae_loop(
    r: NDArray[Any], v: NDArray[Any], gl: float, gamma: float, last: float = 0.0
) -> NDArray[Any]:
    """One row, one episode, in float64."""
    r, v = r.astype(np.float64), np.append(v.astype(np.float64), last)
    x, carry = np.zeros_like(r), 0.0
    for t in reversed(range(len(r))):
        carry = r[t] + gamma * v[t + 1] - v[t] + gl * carry
        x[t] = carry
    return x


# ------------------------------------------------------------------------------------- done flags


def test_the_value_of_the_reset_is_not_paid_as_a_bonus(engine: Engine):
    """RoboVerse 814: flags of starts were read as flags of transitions: 95 instead of -4."""
    advantages, returns = engine.gae(
        *floats(engine, [1, 1, 1], [5, 5, 100]),
        gamma=0.99,
        lam=0.95,
        terminated=flags(engine, [0, 1, 0]),
    )
    close(engine, advantages[1:2], [-4])
    close(engine, returns[1:2], [1])


@pytest.mark.parametrize(("terminated", "expected"), [(False, 10 - 4), (True, 1 - 4)])
def test_the_last_step_obeys_its_own_flag(engine: Engine, terminated: bool, expected: float):
    """stable-baselines3 185: the check for the last step sat in the wrong place."""
    advantages, _ = engine.gae(
        *floats(engine, [1, 1], [2, 4]),
        gamma=0.5,
        lam=0.5,
        last_values=floats(engine, 18),
        terminated=flags(engine, [0, terminated]),
    )
    close(engine, advantages, [1 + 0.5 * 4 - 2 + 0.25 * expected, expected])


def test_rows_that_end_at_different_steps(engine: Engine):
    """cleanrl 16: an index of -1 for the end set the last advantage of a shorter episode."""
    r, v = floats(engine, [[1, 1, 1], [1, 1, 7], [1, 7, 7]], [[2, 4, 6], [2, 4, 7], [2, 7, 7]])
    lengths, last = engine.array([3, 2, 1]), floats(engine, [8, 8, 8])
    advantages, _ = engine.gae(r, v, gamma=1, lam=0.5, lengths=lengths, last_values=last)
    close(engine, advantages, [[5.25, 4.5, 3], [5.5, 5, 0], [7, 0, 0]])


def test_an_advantage_does_not_run_across_episodes(engine: Engine):
    """PARL 47: GAE ran through concatenated episodes: a cut is the same as separate calls."""
    rng = np.random.default_rng(0)
    r, v = (rng.standard_normal((2, 20)) for _ in range(2))
    ends = [0, 3, 4, 11, 20]
    done = np.zeros((2, 20), bool)
    done[:, [end - 1 for end in ends[1:]]] = True
    options = {"gamma": 0.97, "lam": 0.9}
    whole, _ = engine.gae(*floats(engine, r, v), terminated=flags(engine, done), **options)
    packed, _ = engine.gae(*floats(engine, r, v), cu_seqlens=engine.array(ends), **options)
    for i, j in pairwise(ends):
        for row in range(2):
            expected = gae_loop(r[row, i:j], v[row, i:j], 0.97 * 0.9, 0.97)
            close(engine, whole[row, i:j], expected)
            close(engine, packed[row, i:j], expected)


@pytest.mark.parametrize("time", [1, 2, 5])
def test_the_last_advantage_is_not_always_zero(engine: Engine, time: int):
    """PufferLib 363, 445: H states held H - 1 transitions, so the last advantage was always 0."""
    r, v = floats(engine, np.ones(time), np.full(time, 2.0))
    advantages, _ = engine.gae(r, v, gamma=1, lam=1, last_values=floats(engine, 5))
    close(engine, advantages[-1:], [1 + 5 - 2])


def test_every_public_function_can_be_called(engine: Engine):
    """batch-ppo 32: a function with the wrong arity and no axis, that nothing ever called."""
    r = floats(engine, [[1, 2]])
    called = {
        "scan": engine.scan(0.5, r),
        "gae": engine.gae(r, r, gamma=1, lam=1),
        "discounted_returns": engine.discounted_returns(r, gamma=1),
        "td_lambda": engine.td_lambda(r, r, gamma=1, lam=1),
        "vtrace": engine.estimate("vtrace", r, r, r, gamma=1),
        "retrace": engine.estimate("retrace", r, r, r, r, gamma=1),
        "q_lambda": engine.estimate("q_lambda", r, r, gamma=1, lam=1),
        "upgo": engine.estimate("upgo", r, r),
        "n_step_returns": engine.estimate("n_step_returns", r, r, gamma=1, n=2),
        "eligibility_traces": engine.estimate("eligibility_traces", r, gamma=1, lam=1),
        "turn_gae": engine.estimate(
            *("turn_gae", r, r, engine.array([0, 1])), gamma=1, lam=1, gamma_turn=1, lam_turn=1
        ),
        "place_terminal_reward": linscan.place_terminal_reward(r > 0, 1.0),
        "length_adaptive_lam": linscan.length_adaptive_lam(30),
        "episodic_sum": linscan.episodic_sum(r, backend=engine.backend),
        "position_ids": linscan.position_ids(r > 1),
        "whiten": linscan.whiten(r),
        "explain": linscan.explain(0.5, r, backend=engine.backend),
        "backends": linscan.backends(),
        "use_backend": linscan.use_backend(engine.backend),
        "profile": linscan.profile(),
    }
    public = {name for name in vars(linscan) if not name.startswith("_") and name.islower()}
    functions = {name for name in public if callable(getattr(linscan, name))}
    assert functions == set(called)


# ------------------------------------------------------------------------ truncation and bootstrap


def test_the_value_after_a_time_limit_is_not_that_of_the_step_itself(engine: Engine):
    """rsl_rl 20 and 151, rl_games 128: r + gamma V(s_t): 22 instead of 12, a reward twice."""
    r, v = floats(engine, [10], [12])
    truncated = flags(engine, [1])
    options = {"gamma": 1, "lam": 1, "truncated": truncated}
    _, right = engine.gae(r, v, truncation_values=floats(engine, [2]), **options)
    _, known = engine.gae(r, v, on_missing_bootstrap="current_value", **options)
    close(engine, right, [12])
    close(engine, known, [22])


def test_a_time_limit_does_not_silently_lose_its_bootstrap(engine: Engine):
    """cleanrl 198, PettingZoo 1126: done = terminated or truncated; solved only once undone."""
    r, v = floats(engine, [1, 1], [1, 1])
    for truncated in ([0, 1], [0, 0]):
        with pytest.raises(ValueError, match="a truncated step bootstraps from the value of its"):
            engine.gae(r, v, gamma=1, lam=1, truncated=flags(engine, truncated))
    _, zero = engine.gae(
        r, v, gamma=1, lam=1, truncated=flags(engine, [0, 1]), on_missing_bootstrap="zero"
    )
    close(engine, zero, [2, 1])


def test_a_time_limit_does_not_bootstrap_from_the_next_episode(engine: Engine):
    """ml-agents 574, stable-baselines3 651: the value used was that of the new episode."""
    r, v = floats(engine, [1, 1], [3, 100])
    final = floats(engine, [7, np.nan])
    advantages, _ = engine.gae(
        r, v, gamma=1, lam=1, truncated=flags(engine, [1, 0]), truncation_values=final
    )
    close(engine, advantages, [1 + 7 - 3, 1 - 100])


@pytest.mark.parametrize("source", SOURCES)
def test_the_last_value_is_the_one_after_the_last_step(engine: Engine, source: str):
    """TF-Agents 953: the last value but one was passed as the final one: 3, 1 for 11, 9.

    ElegantRL 183: the value after the last step was ignored: 1, -1.
    """
    given = bootstrap(engine, source, [1, 2], 10)
    advantages, returns = engine.gae(floats(engine, [1, 1]), gamma=1, lam=1, **given)
    close(engine, advantages, [11, 9])
    close(engine, returns, [12, 11])


def test_the_value_of_a_terminal_state_is_still_a_target_for_its_predecessor(engine: Engine):
    """Ray 57683: the value of a terminal step was zeroed before it was used: 0 for 0.99."""
    r, v = floats(engine, [0, 1], [5, 1])
    terminated = flags(engine, [0, 1])
    close(engine, engine.td_lambda(r, v, gamma=0.99, lam=0, terminated=terminated), [0.99, 1])
    _, returns = engine.gae(r, v, gamma=0.99, lam=0, terminated=terminated)
    close(engine, returns, [0.99, 1])


def test_the_last_reward_is_not_lost(engine: Engine):
    """Ray 36013: the last step was sacrificed as bootstrap, and its reward with it."""
    r, v = floats(engine, [0, 0, 8], [0, 0, 0])
    close(engine, engine.discounted_returns(r, gamma=0.5), [2, 4, 8])
    close(engine, engine.td_lambda(r, v, gamma=0.5, lam=1), [2, 4, 8])
    close(engine, engine.gae(r, v, gamma=0.5, lam=1).advantages, [2, 4, 8])


def test_the_delta_of_a_truncated_step_does_not_see_the_next_episode(engine: Engine):
    """Stoix 142, torchrl 4209: with T + 1 values, delta crossed episodes or was nulled."""
    r, v = floats(engine, [1, 2, 3, 4], [10, 20, 30, 40])
    options = {"gamma": 0.5, "lam": 0.5, "truncated": flags(engine, [0, 1, 0, 0])}
    expected = [1 - 0.25 * 15.5, 2 + 2.5 - 20, -7 - 0.25 * 11, 4 + 25 - 40]
    final = floats(engine, [0, 5, 0, 0])
    ways: list[dict[str, Any]] = [
        {"values": v, "last_values": floats(engine, 50), "truncation_values": final},
        {"values": floats(engine, [10, 20, 30, 40, 50]), "truncation_values": final},
        {"values": v, "next_values": floats(engine, [20, 5, 40, 50])},
    ]
    for way in ways:
        close(engine, engine.gae(r, **way, **options).advantages, expected)


def test_a_terminal_step_does_not_need_a_masked_next_value(engine: Engine):
    """Tianshou 869: no (1 - done) in delta: right only for callers who masked v': 0.98 for -1."""
    r, v = floats(engine, [1, 1, 1], [2, 2, 2])
    options = {"gamma": 0.99, "lam": 0.95, "terminated": flags(engine, [0, 0, 1])}
    advantages, _ = engine.gae(r, v, next_values=v, **options)
    close(engine, advantages[2:], [-1])
    advantages, _ = engine.gae(r, v, next_values=floats(engine, [2, 2, np.nan]), **options)
    close(engine, advantages[2:], [-1])


def test_missing_values_are_never_made_up_by_rolling(engine: Engine):
    """Tianshou 886: without values, the next ones were rolled: 5, 2, 3, 0 from 2, 3, 0, 5."""
    r, following = floats(engine, [1, 1, 1, 1], [2, 3, 0, 5])
    with pytest.raises(ValueError, match=r"^values is None"):
        engine.gae(r, None, gamma=0.5, lam=0.5, next_values=following)
    one_step = engine.td_lambda(r, gamma=0.5, lam=0, next_values=following)
    close(engine, one_step, [2, 2.5, 1, 3.5])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("lam", [0, 0.3, 1])
def test_the_bootstrap_is_counted_once(engine: Engine, source: str, lam: float):
    """dreamerv3 102 and 190, navix 152, sheeprl 67: with T = 1, G = r + gamma v for every lam."""
    given = bootstrap(engine, source, [3], 4)
    close(engine, engine.td_lambda(floats(engine, [1]), gamma=0.5, lam=lam, **given), [3])


def test_a_lambda_return_of_q_values_by_hand(engine: Engine):
    """rejax 35: Q of the wrong state was cached, and the last bootstrap was used twice."""
    r, following = floats(engine, [1, 2, 4], [8, 16, 32])
    targets = engine.td_lambda(r, gamma=0.5, lam=0.5, next_values=following)
    close(engine, targets, [1 + 0.5 * (4 + 5.5), 2 + 0.5 * (8 + 10), 4 + 16])


def test_a_response_cut_by_its_length_has_a_bootstrap_of_its_own(engine: Engine):
    """TRL 1536: no bootstrap where a response ended without an end token."""
    r, v = floats(engine, [[1, 1], [1, 1]], [[0, 0], [0, 0]])
    last = floats(engine, [2, 0])
    returns = engine.td_lambda(r, v, gamma=1, lam=1, last_values=last)
    close(engine, returns, [[4, 3], [2, 1]])


def test_terminated_wins_over_truncated(engine: Engine):
    """Ray 59958: a step both terminated and truncated was bootstrapped."""
    r, v = floats(engine, [1, 1], [2, 2])
    both = flags(engine, [0, 1])
    advantages, _ = engine.gae(
        r, v, gamma=1, lam=1, terminated=both, truncated=both, truncation_values=v * 50
    )
    close(engine, advantages, [0, -1])


# ------------------------------------------------------------------------------ masks with holes


def test_a_reward_crosses_a_tool_observation(engine: Engine):
    """verl 7278 and 7300: returns were reset in a hole: 0, 0.5, 1 and 0, 0, 0, 1, 1, 1."""
    r, mask = floats(engine, [0, 0, 1]), flags(engine, [1, 0, 1])
    close(engine, engine.discounted_returns(r, gamma=0.5, mask=mask), [0.5, 0, 1])
    carried = engine.discounted_returns(r, gamma=0.5, mask=mask, masked="carry")
    close(engine, carried, [0.5, 1, 1])
    r, mask = floats(engine, [0, 0, 0, 0, 0, 1]), flags(engine, [1, 1, 0, 0, 1, 1])
    close(engine, engine.discounted_returns(r, gamma=1, mask=mask), [1, 1, 0, 0, 1, 1])


def test_a_mask_counts_when_gamma_and_lambda_are_not_one(engine: Engine):
    """Relax 235: the mask was ignored, which at gamma = lam = 1 nobody could see."""
    rng = np.random.default_rng(0)
    r, v = (rng.standard_normal((3, 50)) for _ in range(2))
    mask = rng.random((3, 50)) < 0.6
    advantages, returns = engine.gae(
        *floats(engine, r, v), gamma=0.99, lam=0.95, mask=flags(engine, mask)
    )
    for row in range(3):
        valid = mask[row]
        expected = np.zeros(50)
        expected[valid] = gae_loop(r[row, valid], v[row, valid], 0.99 * 0.95, 0.99)
        close(engine, advantages[row], expected)
        close(engine, returns[row], np.where(valid, expected + v[row], 0))


@pytest.mark.parametrize("poison", [7.0, np.nan, np.inf, -np.inf])
def test_what_is_masked_does_not_leak(engine: Engine, poison: float):
    """slime 1372, rlhf-book 216, SkyRL 1635: KL of masked tokens, and 0 * NaN, entered returns."""
    r, v = np.array([[1.0, 2, 3, 4, 5]]), np.array([[5.0, 4, 3, 2, 1]])
    mask = np.array([[True, False, True, True, False]])
    options = {"gamma": 0.9, "lam": 0.8, "mask": flags(engine, mask)}
    clean = engine.gae(*floats(engine, r * mask, v * mask), **options)
    dirty = engine.gae(
        *floats(engine, np.where(mask, r, poison), np.where(mask, v, poison)), **options
    )
    same(engine, clean.advantages, dirty.advantages)
    same(engine, clean.returns, dirty.returns)
    carried = engine.gae(
        *floats(engine, np.where(mask, r, poison), np.where(mask, v, poison)),
        masked="carry",
        **options,
    )
    for clean_x, carried_x in zip(clean, carried, strict=True):
        same(engine, clean_x[options["mask"]], carried_x[options["mask"]])


@pytest.mark.parametrize("poison", [7.0, np.nan, np.inf])
def test_padding_does_not_leak(engine: Engine, poison: float):
    """rlhf-book 216, ROLL 447: rewards and values in the padding entered the returns."""
    r, v = np.full((2, 4), poison), np.full((2, 4), poison)
    r[0], v[0], r[1, :2], v[1, :2] = 1, 2, 1, 2
    lengths = engine.array([4, 2])
    advantages, _ = engine.gae(*floats(engine, r, v), gamma=1, lam=1, lengths=lengths)
    close(engine, advantages, [[2, 1, 0, -1], [0, -1, 0, 0]])


def test_a_row_without_a_valid_step_is_zero(engine: Engine):
    """OpenRLHF 1239 and 1240: an all-masked row gave NaN, and still moved the baseline."""
    r, v = floats(engine, [[1, 1], [np.nan, 5]], [[0, 0], [np.nan, 5]])
    mask = flags(engine, [[1, 1], [0, 0]])
    advantages, returns = engine.gae(r, v, gamma=1, lam=1, mask=mask)
    close(engine, advantages, [[2, 1], [0, 0]])
    close(engine, returns, [[2, 1], [0, 0]])
    close(engine, linscan.whiten(advantages, mask, unbiased=False, eps=0), [[1, -1], [0, 0]])
    lengths = engine.array([2, 0])
    close(engine, engine.gae(r, v, gamma=1, lam=1, lengths=lengths).advantages, [[2, 1], [0, 0]])


@pytest.mark.parametrize("way", [{"masked_reward": "raise"}, {"check": "full"}])
def test_a_score_on_a_masked_step_can_be_refused(engine: Engine, way: dict[str, Any]):
    """Agent-R1 65: the score was placed by one mask and multiplied away by another."""
    r, v = floats(engine, [0, 0, 1], [0, 0, 0])
    mask = flags(engine, [1, 1, 0])
    with pytest.raises(ValueError, match=r"^rewards\[2\] is 1.0 on a masked step"):
        engine.gae(r, v, gamma=1, lam=1, mask=mask, **way)
    moved = engine.gae(r, v, gamma=0.5, lam=1, mask=mask, masked_reward="to_previous_valid")
    close(engine, moved.advantages, [0.5, 1, 0])


# -------------------------------------------------------------------------------------- whitening

LIBRARY_ENGINES = list({engine.library: engine for engine in ENGINES}.values())
BY_LIBRARY = pytest.mark.parametrize("library", LIBRARY_ENGINES, ids=lambda e: e.library)


@BY_LIBRARY
@pytest.mark.parametrize("garbage", [100.0, np.nan, np.inf])
def test_padding_does_not_move_the_mean(library: Engine, garbage: float):
    """SkyRL 1305, sb3-contrib 78: the mean was over the padding too, the variance was not."""
    mask = flags(library, [[1, 1, 0], [1, 0, 0]])
    x = floats(library, [[1, 3, garbage], [5, garbage, garbage]])
    expected = np.array([[-1, 0, 0], [1, 0, 0]])
    close(library, linscan.whiten(x, mask), expected)
    expected = np.where([[1, 1, 0], [1, 0, 0]], expected + 3.0, 0.0)
    close(library, linscan.whiten(x, mask, shift_mean=False), expected)


@BY_LIBRARY
def test_padding_is_not_averaged_into_a_sequence(library: Engine):
    """AReaL 1346: the advantage of a sequence was averaged with its padding: not 1."""
    x, mask = floats(library, [[1, 1, 10, 10]]), flags(library, [[1, 1, 0, 0]])
    close(library, linscan.whiten(x, mask, axis=1, shift_mean=False), [[1, 1, 0, 0]])


@BY_LIBRARY
@pytest.mark.parametrize("valid", [0, 1])
def test_too_few_valid_steps_to_whiten(library: Engine, valid: int):
    """verl's and TRL's masked whitening: an error, or a division by zero in n / (n - 1)."""
    x, mask = floats(library, [3, np.nan]), flags(library, [valid, 0])
    close(library, linscan.whiten(x, mask), [0, 0])
    with pytest.raises(ValueError, match=f"at least 2 valid elements, but a set has {valid}"):
        linscan.whiten(x, mask, on_degenerate="raise")


# -------------------------------------------------------------------------- numerics and fast paths


@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0), (0, 0.9), (0, 0), (1e-4, 1e-4), (1e-30, 1)])
def test_a_discount_of_zero_or_almost(engine: Engine, gamma: float, lam: float):
    """torchrl's vectorised estimators: an IndexError at gamma * lam of 0 or below 1e-7."""
    r, v = np.array([[1.0, 2, 3]]), np.array([[4.0, 5, 6]])
    advantages, _ = engine.gae(*floats(engine, r, v), gamma=gamma, lam=lam)
    delta = r + gamma * np.array([[5.0, 6, 0]]) - v
    close(engine, advantages, delta, 1e-6)
    targets = engine.td_lambda(*floats(engine, r, v), gamma=gamma, lam=lam)
    close(engine, targets, delta + v, 1e-6)
    close(engine, engine.discounted_returns(floats(engine, r), gamma=0), r)


@pytest.mark.parametrize("shape", [(1, 40), (3, 1), (3, 40)], ids=["step", "row", "full"])
@pytest.mark.parametrize("of", ["gamma", "lam", "both"])
def test_discounts_that_are_tensors(engine: Engine, shape: tuple[int, ...], of: str):
    """torchrl 401: gamma at t and t + 1 were mixed; and a tensor for lambda was refused."""
    rng = np.random.default_rng(0)
    r, v, following = (rng.standard_normal((3, 40)) for _ in range(3))
    terminated, truncated = (rng.random((3, 40)) < 0.1 for _ in range(2))
    gamma = rng.uniform(0.8, 1, shape) if of != "lam" else 0.9
    lam = rng.uniform(0.8, 1, shape) if of != "gamma" else 0.9
    expected, carry = np.zeros((3, 40)), np.zeros(3)
    g, w = np.broadcast_to(gamma, (3, 40)), np.broadcast_to(lam, (3, 40))
    for t in reversed(range(40)):
        on = ~(terminated | truncated)[:, t] & (t < 39)
        n = np.where(terminated[:, t], 0, following[:, t])
        carry = r[:, t] + g[:, t] * np.where(on, (1 - w[:, t]) * n + w[:, t] * carry, n)
        expected[:, t] = carry
    r, v, following = (engine.array(x, "float64") for x in (r, v, following))
    x = engine.td_lambda(
        r,
        v,
        gamma=engine.array(gamma) if np.ndim(gamma) else gamma,
        lam=engine.array(lam) if np.ndim(lam) else lam,
        next_values=following,
        terminated=flags(engine, terminated),
        truncated=flags(engine, truncated),
    )
    close(engine, x, expected, 1e-12)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3), (2, 3, 0)])
@pytest.mark.parametrize("axis", [0, -1])
def test_nothing_in_nothing_out(engine: Engine, shape: tuple[int, ...], axis: int):
    """torchrl and slime: T = 0 was an IndexError in one path and not in the other."""
    r = floats(engine, np.zeros(shape))
    rest = tuple(np.delete(shape, axis))
    last, mask = floats(engine, np.zeros(rest)), flags(engine, np.zeros(shape))
    lengths = engine.array(np.zeros(rest, int))
    for options in ({}, {"last_values": last}, {"mask": mask}, {"lengths": lengths}):
        advantages, returns = engine.gae(r, r, gamma=1, lam=1, axis=axis, **options)
        assert tuple(advantages.shape) == tuple(returns.shape) == shape
        x = engine.discounted_returns(r, gamma=1, axis=axis, **options)
        assert tuple(x.shape) == shape


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("lam", [0, 1])
def test_rewards_may_be_integers(engine: Engine, dtype: str, lam: int):
    """Tianshou 85: integer rewards made integer returns when lambda was 0; slime refused them."""
    r = engine.array([1, 0, 1], dtype)
    v = floats(engine, [0.5, 0.5, 0.5])
    advantages, returns = engine.gae(r, v, gamma=0.5, lam=lam)
    one_step = [0.75, -0.25, 0.5]
    close(engine, advantages, [0.75 - 0.125 + 0.125, -0.25 + 0.25, 0.5] if lam else one_step)
    wide = engine.library == "numpy" and dtype in ("int32", "int64")
    assert engine.dtype_of(returns) == ("float64" if wide else "float32")
    x = engine.discounted_returns(r, gamma=0.5)
    close(engine, x, [1.25, 0.5, 1])
    assert engine.dtype_of(x) == ("float32" if engine.library == "torch" else "float64")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_accumulated_in_single(engine: Engine, dtype: str):
    """slime, verl and PufferLib in bfloat16: 183% wrong at 0.999, which rounds to 1 there."""
    if engine.why_not(dtype):
        pytest.skip(str(engine.why_not(dtype)))
    r = engine.array(np.ones((2, 4096)), dtype)
    x = engine.discounted_returns(r, gamma=0.999)
    assert engine.dtype_of(x) == dtype
    expected = (1 - 0.999 ** np.arange(4096, 0, -1)) / (1 - 0.999)
    np.testing.assert_allclose(engine.numpy(x), np.stack([expected] * 2), rtol=2**-8)


@pytest.mark.parametrize("rows", [1, 2, 3, 257])
@pytest.mark.parametrize("time", [1, 2])
def test_few_steps_and_odd_numbers_of_rows(engine: Engine, rows: int, time: int):
    """PufferLib 2: one step divided by zero in the launch, and odd batches failed an assert."""
    r, v = floats(engine, np.ones((rows, time)), np.zeros((rows, time)))
    expected = np.tile(np.arange(time, 0, -1), (rows, 1))
    close(engine, engine.gae(r, v, gamma=1, lam=1).advantages, expected)
    close(engine, engine.gae(r.T, v.T, gamma=1, lam=1, axis=0).advantages, expected.T)


def test_inputs_are_never_written(engine: Engine):
    """sample-factory, ElegantRL, SB3, AReaL: rewards or log-probabilities were edited in place."""
    rng = np.random.default_rng(0)
    r, v, n = (floats(engine, rng.standard_normal((2, 9))) for _ in range(3))
    cut, mask = (flags(engine, rng.random((2, 9)) < p) for p in (0.2, 0.8))
    inputs = {"rewards": r, "values": v, "terminated": cut, "truncated": cut, "mask": mask}
    inputs |= {"truncation_values": n, "last_values": v[:, 0]}
    if engine.library == "numpy":
        for x in inputs.values():
            x.flags.writeable = False
    before = {name: engine.numpy(x).copy() for name, x in inputs.items()}
    for masked_reward in ("drop", "to_previous_valid"):
        engine.gae(**inputs, gamma=0.9, lam=0.9, masked_reward=masked_reward)
        engine.td_lambda(**inputs, gamma=0.9, lam=0.9, masked_reward=masked_reward)
    for name, x in inputs.items():
        np.testing.assert_array_equal(engine.numpy(x), before[name], name)


def test_rewards_that_are_expanded(engine: Engine):
    """AReaL: an in-place product on an expanded tensor wrote to memory many rows shared."""
    r = engine.xp.broadcast_to(floats(engine, [1, 2, 3]), (4, 3))
    close(engine, engine.discounted_returns(r, gamma=1), [[6, 5, 3]] * 4)
    close(engine, engine.gae(r, r, gamma=1, lam=0).advantages, [[2, 3, 0]] * 4)


@TENSORS
@pytest.mark.parametrize("needs", ["rewards", "values", "both"])
def test_results_are_detached(engine: Engine, needs: str):
    """Ray 7238: a missing no_grad leaked memory; PPO-PyTorch 29: must advantages be detached?"""
    r, v = floats(engine, [1, 2], [3, 4])
    for name, x in (("rewards", r), ("values", v)):
        x.requires_grad_(needs in (name, "both"))
    for x in (
        *engine.gae(r, v, gamma=1, lam=1),
        engine.td_lambda(r, v, gamma=1, lam=1),
        engine.discounted_returns(r, gamma=1),
        linscan.whiten(r),
    ):
        assert not x.requires_grad


def test_long_returns_are_exact_to_rounding(engine: Engine):
    """torchrl 365: a truncated geometric series was wrong by 1e-4."""
    rng = np.random.default_rng(0)
    r, v = (rng.standard_normal(65536).astype(np.float32) for _ in range(2))
    advantages, _ = engine.gae(*floats(engine, r, v), gamma=1, lam=0.999)
    expected = gae_loop(r, v, 0.999, 1)
    serial, carry = np.zeros_like(r), np.float32(0)
    following, decay = np.append(v[1:], np.float32(0)), np.float32(0.999)
    for t in reversed(range(len(r))):
        carry = r[t] + following[t] - v[t] + decay * carry
        serial[t] = carry
    scale = np.abs(expected).max()
    error = np.abs(engine.numpy(advantages) - expected).max()
    allowed = 2 * np.abs(serial - expected).max() + np.spacing(np.float32(scale))
    assert error <= allowed


# ----------------------------------------------------------------- what reinforcement learners pass


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_any_axis_of_three(engine: Engine, axis: int):
    """rsl_rl and skrl keep ``[T, N, 1]``, torchrl ``[B, T, 1]``, rl_games ``[H, N, V]``."""
    rng = np.random.default_rng(axis + 3)
    r, v = (rng.standard_normal((4, 5, 3)) for _ in range(2))
    last = rng.standard_normal(tuple(np.delete((4, 5, 3), axis)))
    advantages, _ = engine.gae(
        *floats(engine, r, v), gamma=0.9, lam=0.8, axis=axis, last_values=floats(engine, last)
    )
    rows = np.moveaxis(r, axis, -1), np.moveaxis(v, axis, -1), last[..., None]
    expected = np.zeros(rows[0].shape)
    for i in np.ndindex(last.shape):
        expected[i] = gae_loop(rows[0][i], rows[1][i], 0.72, 0.9, rows[2][i][0])
    close(engine, advantages, np.moveaxis(expected, -1, axis))


def test_the_shape_with_a_last_axis_of_one(engine: Engine):
    """``[T, N, 1]`` with ``last_values`` of ``[N, 1]``: what rsl_rl's storage holds."""
    r, v = floats(engine, np.ones((3, 2, 1)), np.zeros((3, 2, 1)))
    x = engine.gae(r, v, gamma=1, lam=1, axis=0, last_values=floats(engine, [[1], [2]]))
    close(engine, x.returns[..., 0], [[4, 5], [3, 4], [2, 3]])


def test_lists_of_numbers():
    x = linscan.gae([1, 1], [1.0, 2.0], gamma=1, lam=1, last_values=10, terminated=[0, 0])
    assert [y.tolist() for y in x] == [[11, 9], [12, 11]]
    assert linscan.discounted_returns([True, False], gamma=0.5, mask=[1, 1]).tolist() == [1, 0]


def test_numbers_from_anywhere(engine: Engine):
    """γ and λ as Python, NumPy or zero-dimensional numbers do not change the dtype of a result."""
    r, v = floats(engine, [1, 1, 1], [2, 2, 2])
    expected = engine.gae(r, v, gamma=0.5, lam=1.0).advantages
    numbers = [np.float64(0.5), np.float32(0.5), np.array(0.5), engine.array(0.5, "float64")]
    for number in numbers:
        x = engine.gae(r, v, gamma=number, lam=engine.array(1)).advantages
        assert engine.dtype_of(x) == "float32"
        same(engine, x, expected)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "float64"])
def test_flags_that_are_numbers(engine: Engine, dtype: str):
    r, v = floats(engine, [1, 1, 1], [2, 2, 2])
    expected = engine.gae(r, v, gamma=1, lam=1, terminated=flags(engine, [0, 1, 0])).advantages
    x = engine.gae(r, v, gamma=1, lam=1, terminated=engine.array([0, 1, 0], dtype)).advantages
    same(engine, x, expected)


@pytest.mark.parametrize("one", [True, 1, 1.0, np.bool_(True), np.int64(1), [1], [[True]]])
def test_one_flag_for_every_step(engine: Engine, one: Any):
    r, v = floats(engine, [[1, 1]], [[2, 3]])
    if isinstance(one, list):
        one = engine.array(one)
    advantages, _ = engine.gae(r, v, gamma=1, lam=1, terminated=one, mask=one)
    close(engine, advantages, [[-1, -2]])
    options = {"truncated": one, "on_missing_bootstrap": "zero", "last_values": 9}
    close(engine, engine.discounted_returns(r, gamma=1, terminated=one, **options), [[1, 1]])


def test_views_of_a_rollout_buffer(engine: Engine):
    """rl_games 358: views that are not contiguous gave wrong advantages without an error."""
    rng = np.random.default_rng(0)
    buffer = rng.standard_normal((6, 8, 10))
    r, v = buffer[1], buffer[2]
    expected = np.stack([gae_loop(r[i], v[i], 0.72, 0.9) for i in range(8)])
    kept = floats(engine, buffer)
    moved = floats(engine, np.ascontiguousarray(np.moveaxis(buffer, 0, -1)))
    turned = floats(engine, np.ascontiguousarray(buffer.transpose(0, 2, 1)))
    sparse = floats(engine, np.full((6, 8, 20), np.nan))
    sparse[:, :, ::2] = kept
    views = {
        "a slice": (kept[1], kept[2]),
        "interleaved": (moved[..., 1], moved[..., 2]),
        "transposed": (turned[1].T, turned[2].T),
        "every second step": (sparse[1][:, ::2], sparse[2][:, ::2]),
        "rows from the middle": (kept[1:2].reshape(8, 10), kept[2:3][0]),
    }
    for name, (rewards, values) in views.items():
        x = engine.gae(rewards, values, gamma=0.9, lam=0.8).advantages
        np.testing.assert_allclose(engine.numpy(x), expected, 1e-5, 1e-5, err_msg=name)
    if engine.library == "numpy":
        x = engine.gae(kept[1][:, ::-1], kept[2][:, ::-1], gamma=0.9, lam=0.8).advantages
        backwards = [gae_loop(r[i, ::-1], v[i, ::-1], 0.72, 0.9) for i in range(8)]
        close(engine, x, np.stack(backwards))
        swapped = kept.astype(">f4")
        x = engine.gae(swapped[1], swapped[2], gamma=0.9, lam=0.8).advantages
        close(engine, x, expected)
        assert x.dtype.isnative


def test_mixed_precision_is_promoted(engine: Engine):
    r, v = engine.array([1, 1], "float32"), engine.array([0.5, 0.5], "float64")
    assert engine.dtype_of(engine.gae(r, v, gamma=1, lam=1).returns) == "float64"
    x = engine.gae(r, v, gamma=1, lam=1, out_dtype="float32").returns
    assert engine.dtype_of(x) == "float32"
    close(engine, x, [2, 1])


def test_offsets_of_either_width(engine: Engine):
    """AReaL's kernels took 32-bit offsets only; an empty sequence is legal."""
    r, v = floats(engine, [1, 1, 1, 1], [0, 0, 0, 0])
    last = floats(engine, [10, 20, 30])
    for dtype in ("int32", "int64"):
        offsets = engine.array([0, 3, 3, 4], dtype)
        x = engine.gae(r, v, gamma=1, lam=1, cu_seqlens=offsets, last_values=last).returns
        close(engine, x, [13, 12, 11, 31])
