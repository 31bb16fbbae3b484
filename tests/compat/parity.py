"""Every function of linscan.compat beside its oracle; as a script, the table of the differences.

python tests/compat/parity.py            # print it
python tests/compat/parity.py --write    # and put it into docs/compat.md
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import oracles
import torch

from linscan.compat import (
    areal,
    brax,
    cleanrl,
    nemo_rl,
    openrlhf,
    pufferlib,
    rl_games,
    rlax,
    rsl_rl,
    sample_factory,
    skrl,
    slime,
    tf_agents,
    tianshou,
    torchrl,
    trl,
    verl,
)

PAGE = Path(__file__).parents[2] / "docs" / "compat.md"
SEEDS = range(6)
EPSILON = {"bfloat16": 2.0**-8, "float32": 2.0**-23, "float64": 2.0**-52}
DECAYS = [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.9), (0.999, 0.99), (0.5, 1.5)]
TIMES = [65, 1, 2, 17, 200, 64]

Array = np.ndarray
Pairs = Iterator[tuple[Any, Any]]


class Draw:
    """Random arguments of one call: in float64, and as what the dtype holds exactly."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.rows, self.time = [3, 1, 4, 2, 5, 3][seed % 6], TIMES[seed % 6]
        self.gamma, self.lam = DECAYS[seed % 6]

    def normal(self, *shape: int) -> Array:
        """Numbers of both signs."""
        return self._exact(self.rng.standard_normal(shape))

    def positive(self, *shape: int) -> Array:
        """Importance weights, around 1."""
        return self._exact(np.exp(0.5 * self.rng.standard_normal(shape)))

    def between(self, low: float, high: float, *shape: int) -> Array:
        """Discounts."""
        return self._exact(self.rng.uniform(low, high, shape))

    def flags(self, *shape: int, rate: float = 0.15) -> Array:
        """Where something happens."""
        return self.rng.random(shape) < rate

    def mask(self, rows: int, time: int) -> Array:
        """Valid steps with holes, at least two of them, and a row that has none."""
        mask = self.rng.random((rows, time)) < 0.7
        if rows > 1:
            mask[-1] = False
        mask[0, -1] = mask[0, 0] = True
        return mask

    def torch(self, x: Array) -> Any:
        """As a tensor: of the dtype, or of flags."""
        tensor = torch.from_numpy(np.ascontiguousarray(x))
        return tensor.to(getattr(torch, self.dtype)) if x.dtype == np.float64 else tensor

    def numbers(self, flags: Array) -> Any:
        """Flags as a tensor of the dtype."""
        return self.torch(flags.astype(np.float64))

    def numpy(self, x: Array) -> Any:
        """As a NumPy array of the dtype."""
        return x.astype(self.dtype) if x.dtype == np.float64 else x

    def _exact(self, x: Array) -> Array:
        return torch.from_numpy(x).to(getattr(torch, self.dtype)).double().numpy()


class Case(NamedTuple):
    """One function, or one mode of it."""

    framework: str
    function: str
    pairs: Callable[[Draw], Pairs]
    """Ours and the oracle's results of one draw."""
    dtypes: tuple[str, ...]
    factor: int
    """How many times the rounding error of one step is allowed."""


CASES: list[Case] = []
LANGUAGE = ("float32", "float64", "bfloat16")
CONTROL = ("float32", "float64")


def case(
    framework: str, function: str, dtypes: tuple[str, ...] = CONTROL, factor: int = 64
) -> Callable[[Callable[[Draw], Pairs]], Callable[[Draw], Pairs]]:
    """Enter a function into the table."""

    def enter(pairs: Callable[[Draw], Pairs]) -> Callable[[Draw], Pairs]:
        CASES.append(Case(framework, function, pairs, dtypes, factor))
        return pairs

    return enter


# Language models ---------------------------------------------------------------------------------


def _rewards_and_values(d: Draw) -> tuple[Array, Array]:
    return d.normal(d.rows, d.time), d.normal(d.rows, d.time)


@case("slime", "vanilla_gae", LANGUAGE)
def _vanilla(d: Draw) -> Pairs:
    r, v = _rewards_and_values(d)
    got = slime.vanilla_gae(d.torch(r), d.torch(v), d.gamma, d.lam)
    yield got, oracles.zero_after_the_end(r, v, d.gamma, d.lam)


@case("slime", "chunked_gae", LANGUAGE)
def _chunked(d: Draw) -> Pairs:
    r, v = _rewards_and_values(d)
    expected = oracles.zero_after_the_end(r, v, d.gamma, d.lam)
    yield slime.chunked_gae(d.torch(r), d.torch(v), d.gamma, d.lam), expected
    yield slime.chunked_gae(d.torch(r), d.torch(v), d.gamma, d.lam, chunk_size=128), expected


@case("slime", "chunked_discounted_returns", LANGUAGE)
def _chunked_returns(d: Draw) -> Pairs:
    r = d.normal(d.rows, d.time)
    got = slime.chunked_discounted_returns(d.torch(r), d.gamma, 64)
    yield got, oracles.returns_to_go(r, d.gamma)


def _ragged(d: Draw) -> tuple[list[int], list[Array]]:
    lengths = [*map(int, d.rng.integers(1, d.time + 1, d.rows)), d.time]
    return lengths, [d.normal(length) for length in lengths]


@case("slime", "get_advantages_and_returns_batch", LANGUAGE)
def _ragged_batch(d: Draw) -> Pairs:
    lengths, v = _ragged(d)
    r = [d.normal(length) for length in lengths]
    totals = [length + 7 for length in lengths]
    got = slime.get_advantages_and_returns_batch(
        totals, lengths, [*map(d.torch, v)], [*map(d.torch, r)], d.gamma, d.lam
    )
    for i in range(len(lengths)):
        expected = oracles.zero_after_the_end(r[i][None], v[i][None], d.gamma, d.lam)
        yield (got[0][i], got[1][i]), tuple(x[0] for x in expected)


def _hook(d: Draw, hook: Callable[[Any, Any], None], reads_masks: bool) -> Pairs:
    lengths, v = _ragged(d)
    kl = [d.normal(length) for length in lengths]
    masks = [d.mask(2, length)[i % 2] for i, length in enumerate(lengths)]
    scores = d.normal(len(lengths))
    data: dict[str, Any] = {
        "kl": [*map(d.torch, kl)],
        "values": [*map(d.torch, v)],
        "loss_masks": [torch.from_numpy(mask).int() for mask in masks],
        "rewards": scores.tolist(),
        "response_lengths": lengths,
        "total_lengths": [length + 3 for length in lengths],
    }
    kept = [x.clone() for x in data["kl"]]
    hook(SimpleNamespace(kl_coef=0.125, gamma=d.gamma, lambd=d.lam), data)
    assert all(map(torch.equal, kept, data["kl"]))
    for i, mask in enumerate(masks):
        valid = mask if reads_masks else np.ones_like(mask)
        r, own = -0.125 * kl[i][valid], v[i][valid]
        if len(r):
            r[-1] += scores[i]
        expected = [np.zeros(lengths[i]), np.zeros(lengths[i])]
        for whole, part in zip(
            expected,
            oracles.zero_after_the_end(r[None], own[None], d.gamma, d.lam),
            strict=True,
        ):
            whole[valid] = part[0]
        yield (data["advantages"][i], data["returns"][i]), tuple(expected)


@case("slime", "ppo_advantages", CONTROL)
def _ppo_hook(d: Draw) -> Pairs:
    return _hook(d, slime.ppo_advantages, reads_masks=False)


@case("slime", "ppo_advantages, fix=True", CONTROL)
def _masked_ppo_hook(d: Draw) -> Pairs:
    return _hook(d, slime.masked_ppo_advantages, reads_masks=True)


@case("verl", "compute_gae_advantage_return", CONTROL, factor=1024)
def _verl(d: Draw) -> Pairs:
    r, v = _rewards_and_values(d)
    mask = d.mask(d.rows, max(d.time, 2))[:, : d.time]
    if mask.sum() < 2:
        return
    advantages, returns = oracles.carried(r, v, mask, d.gamma, d.lam)
    for form in (d.torch(mask), d.torch(mask).long(), d.numbers(mask)):
        got = verl.compute_gae_advantage_return(d.torch(r), d.torch(v), form, d.gamma, d.lam)
        yield got, (oracles.whitened(advantages, mask), returns)


@case("verl", "compute_gae_advantage_return, fix=True", CONTROL, factor=1024)
def _verl_mended(d: Draw) -> Pairs:
    r, v = _rewards_and_values(d)
    mask = d.mask(d.rows, max(d.time, 2))[:, : d.time]
    if mask.sum() < 2:
        return
    advantages, returns = oracles.carried(r, v, mask, d.gamma, d.lam)
    got = verl.compute_gae_advantage_return(
        d.torch(r), d.torch(v), d.torch(mask), d.gamma, d.lam, fix=True
    )
    yield got, (oracles.whitened(advantages, mask) * mask, returns * mask)


@case("verl", "compute_reinforce_plus_plus_outcome_advantage", CONTROL, factor=1024)
def _verl_reinforce(d: Draw) -> Pairs:
    r, mask = d.normal(d.rows, d.time), d.mask(d.rows, d.time)
    if mask.sum() < 2:
        return
    returns = oracles.carried_returns(r, mask, d.gamma)
    got = verl.compute_reinforce_plus_plus_outcome_advantage(
        d.torch(r), d.torch(mask), SimpleNamespace(gamma=d.gamma), index=None
    )
    yield got, (oracles.whitened(returns, mask) * mask, returns)


@case("OpenRLHF", "get_advantages_and_returns", LANGUAGE)
def _openrlhf(d: Draw) -> Pairs:
    (r, v), mask = _rewards_and_values(d), d.mask(d.rows, d.time)
    given = d.torch(v), d.torch(r)
    got = openrlhf.get_advantages_and_returns(*given, d.torch(mask), d.gamma, d.lam)
    yield got, oracles.zero_after_the_end(r * mask, v * mask, d.gamma, d.lam)
    got = openrlhf.get_advantages_and_returns(*given, None, d.gamma, d.lam)
    yield got, oracles.zero_after_the_end(r, v, d.gamma, d.lam)


@case("OpenRLHF", "get_advantages_and_returns, fix=True", LANGUAGE)
def _openrlhf_mended(d: Draw) -> Pairs:
    (r, v), mask = _rewards_and_values(d), d.mask(d.rows, d.time)
    got = openrlhf.get_advantages_and_returns(
        d.torch(v), d.torch(r), d.torch(mask), d.gamma, d.lam, fix=True
    )
    yield got, tuple(x * mask for x in oracles.carried(r, v, mask, d.gamma, d.lam))


@case("OpenRLHF", "get_cumulative_returns", LANGUAGE)
def _openrlhf_returns(d: Draw) -> Pairs:
    r, mask = d.normal(d.rows, d.time), d.mask(d.rows, d.time)
    got = openrlhf.get_cumulative_returns(d.torch(r), d.torch(mask).int(), d.gamma)
    yield got, oracles.returns_to_go(r * mask, d.gamma)
    got = openrlhf.get_cumulative_returns(d.torch(r), d.torch(mask), d.gamma, fix=True)
    yield got, oracles.carried_returns(r, mask, d.gamma)


@case("NeMo-RL", "compute_gae", CONTROL)
def _nemo(d: Draw) -> Pairs:
    (r, v), mask = _rewards_and_values(d), d.mask(d.rows, d.time)
    method = SimpleNamespace(gae_gamma=d.gamma, gae_lambda=d.lam)
    for form in (d.torch(mask), d.numbers(mask)):
        got = nemo_rl.compute_gae(method, d.torch(r), d.torch(v), form)
        yield got, oracles.carried(r, v, mask, d.gamma, d.lam)
    lam = d.between(0.5, 1.0, d.rows)
    got = nemo_rl.compute_gae(method, d.torch(r), d.torch(v), d.numbers(mask), d.torch(lam))
    yield got, oracles.carried(r, v, mask, d.gamma, lam)


@case("NeMo-RL", "compute_gae, mask of fractions", CONTROL)
def _nemo_weights(d: Draw) -> Pairs:
    r, v = _rewards_and_values(d)
    weights = d.mask(d.rows, d.time) * d.between(0.25, 1.0, d.rows, 1)
    method = SimpleNamespace(gae_gamma=d.gamma, gae_lambda=d.lam)
    got = nemo_rl.compute_gae(method, d.torch(r), d.torch(v), d.torch(weights))
    yield got, oracles.carried(r, v, weights, d.gamma, d.lam)


@case("TRL", "advantages_and_returns", CONTROL, factor=1024)
def _trl(d: Draw) -> Pairs:
    r, v = _rewards_and_values(d)
    mask = np.arange(d.time) < d.rng.integers(1, d.time + 1, (d.rows, 1))
    if mask.sum() < 2:
        return
    advantages, returns = oracles.zero_after_the_end(r, v, d.gamma, d.lam)
    got = trl.advantages_and_returns(d.torch(r), d.torch(v), d.torch(~mask), d.gamma, d.lam)
    yield got, (oracles.whitened(advantages, mask) * mask, returns)


@case("TRL", "advantages_and_returns, fix=True", CONTROL, factor=1024)
def _trl_mended(d: Draw) -> Pairs:
    r, v = _rewards_and_values(d)
    lengths = d.rng.integers(1, d.time + 1, d.rows)
    mask = np.arange(d.time) < lengths[:, None]
    if mask.sum() < 2:
        return
    moved = np.zeros_like(r)  # rewards behind the last token, to be found on it
    for row, length in enumerate(lengths):
        moved[row, :length] = r[row, :length]
        moved[row, length - 1] += r[row, length:].sum()
    advantages, returns = oracles.carried(moved, v, mask, d.gamma, d.lam)
    got = trl.advantages_and_returns(
        d.torch(r), d.torch(v), d.torch(~mask), d.gamma, d.lam, fix=True
    )
    yield got, (oracles.whitened(advantages, mask) * mask, returns * mask)


@case("AReaL", "cugae1d_nolp_misalign_func", LANGUAGE)
def _areal(d: Draw) -> Pairs:
    lengths = [*map(int, d.rng.integers(0, d.time + 1, d.rows)), d.time]
    offsets, bootstrap = np.cumsum([0, *lengths], dtype=np.int32), d.flags(len(lengths), rate=0.5)
    r, v = d.normal(sum(lengths)), d.normal(sum(lengths) + len(lengths))
    given = d.torch(r), d.torch(v), d.torch(offsets), d.torch(bootstrap)
    expected = oracles.packed(r, v, offsets, bootstrap, d.gamma, d.lam)
    yield areal.cugae1d_nolp_misalign_func(*given, d.gamma, d.lam), expected
    reordered = given[1], given[0], given[2], d.numbers(bootstrap)
    yield areal.get_packed_advantages_and_returns(d.gamma, d.lam, *reordered), expected


# Control -----------------------------------------------------------------------------------------


def _torchrl(d: Draw) -> tuple[tuple[Array, Array, Array], Array, Array]:
    shape = d.rows, d.time, 2
    done = d.flags(*shape)
    return (d.normal(*shape), d.normal(*shape), d.normal(*shape)), done, done & d.flags(*shape)


def _decays(d: Draw) -> Iterator[tuple[Any, Any, Any, Any]]:
    """γ and λ for the oracle and for torchrl: numbers, and one for each element."""
    yield d.gamma, d.lam, d.gamma, d.lam
    gamma, lam = d.between(0.5, 1, d.rows, d.time, 2), d.between(0.5, 1, d.rows, d.time, 2)
    yield gamma, lam, d.torch(gamma), d.torch(lam)


def _both_gae(d: Draw, function: Callable[..., Any]) -> Pairs:
    (v, n, r), done, term = _torchrl(d)
    tensors = [*map(d.torch, (v, n, r, done, term))]
    for gamma, lam, own_gamma, own_lam in _decays(d):
        expected = oracles.torchrl_gae(gamma, lam, v, n, r, done, term)
        yield function(own_gamma, own_lam, *tensors), expected
        expected = oracles.torchrl_gae(gamma, lam, v, n, r, done, done)
        yield function(own_gamma, own_lam, *tensors[:4]), expected
    last = [x.movedim(1, -1).contiguous() for x in tensors]
    expected = oracles.torchrl_gae(d.gamma, d.lam, v, n, r, done, term)
    got = function(d.gamma, d.lam, *last, time_dim=-1)
    yield tuple(x.movedim(-1, 1) for x in got), expected


@case("torchrl", "generalized_advantage_estimate")
def _torchrl_gae(d: Draw) -> Pairs:
    return _both_gae(d, torchrl.generalized_advantage_estimate)


@case("torchrl", "vec_generalized_advantage_estimate")
def _torchrl_vec_gae(d: Draw) -> Pairs:
    return _both_gae(d, torchrl.vec_generalized_advantage_estimate)


def _both_td_lambda(d: Draw, function: Callable[..., Any], with_values: bool) -> Pairs:
    (v, n, r), done, term = _torchrl(d)
    head = [d.torch(v)] if with_values else []
    tensors = [*map(d.torch, (n, r, done))]
    subtract = v if with_values else 0
    for gamma, lam, own_gamma, own_lam in _decays(d):
        expected = oracles.torchrl_td_lambda(gamma, lam, n, r, done, term) - subtract
        yield function(own_gamma, own_lam, *head, *tensors, d.torch(term)), expected
        expected = oracles.torchrl_td_lambda(gamma, lam, n, r, done, done) - subtract
        yield function(own_gamma, own_lam, *head, *tensors, rolling_gamma=True), expected
    gamma = d.between(0.5, 1, *r.shape)
    expected = oracles.torchrl_own_gamma(gamma, d.lam, n, r, done, term) - subtract
    got = function(d.torch(gamma), d.lam, *head, *tensors, d.torch(term), rolling_gamma=False)
    yield got, expected


@case("torchrl", "td_lambda_return_estimate")
def _td_lambda(d: Draw) -> Pairs:
    return _both_td_lambda(d, torchrl.td_lambda_return_estimate, with_values=False)


@case("torchrl", "vec_td_lambda_return_estimate")
def _vec_td_lambda(d: Draw) -> Pairs:
    return _both_td_lambda(d, torchrl.vec_td_lambda_return_estimate, with_values=False)


@case("torchrl", "td_lambda_advantage_estimate")
def _td_lambda_advantage(d: Draw) -> Pairs:
    return _both_td_lambda(d, torchrl.td_lambda_advantage_estimate, with_values=True)


@case("torchrl", "vec_td_lambda_advantage_estimate")
def _vec_td_lambda_advantage(d: Draw) -> Pairs:
    return _both_td_lambda(d, torchrl.vec_td_lambda_advantage_estimate, with_values=True)


@case("torchrl", "vtrace_advantage_estimate")
def _torchrl_vtrace(d: Draw) -> Pairs:
    (v, n, r), done, term = _torchrl(d)
    pi, mu = 0.5 * d.normal(*r.shape), 0.5 * d.normal(*r.shape)
    tensors = [*map(d.torch, (pi, mu, v, n, r, done))]
    expected = oracles.torchrl_vtrace(d.gamma, pi - mu, v, n, r, done, term, (1.0, 1.0))
    got = torchrl.vtrace_advantage_estimate(d.gamma, *tensors, terminated=d.torch(term))
    yield got, expected
    expected = oracles.torchrl_vtrace(d.gamma, pi - mu, v, n, r, done, done, (1.5, 0.75))
    got = torchrl.vtrace_advantage_estimate(
        d.gamma, *tensors, rho_thresh=torch.tensor(1.5), c_thresh=0.75
    )
    yield got, expected


@case("torchrl", "reward2go")
def _reward2go(d: Draw) -> Pairs:
    r, done = d.normal(d.rows, d.time, 2), d.flags(d.rows, d.time, 2)
    expected = oracles.cut_returns(r, done, d.gamma)
    yield torchrl.reward2go(d.torch(r), d.torch(done), d.gamma), expected
    got = torchrl.reward2go(d.torch(r[..., 0]), d.torch(done[..., 0]), d.gamma, time_dim=-1)
    yield got, expected[..., 0]


def _started(d: Draw, *shape: int) -> tuple[Array, ...]:
    r, v = d.normal(*shape), d.normal(*shape)
    return r, v, d.flags(*shape[:2]), d.normal(*shape[1:]), d.flags(shape[1], rate=0.5)


@case("CleanRL", "gae")
def _cleanrl(d: Draw) -> Pairs:
    r, v, start, last, ended = _started(d, d.time, d.rows)
    expected = oracles.starts(r, v, start, last, ended, d.gamma, d.lam)
    got = cleanrl.gae(
        d.torch(r), d.torch(v), d.numbers(start), d.torch(last)[None], d.numbers(ended),
        d.gamma, d.lam,
    )  # fmt: skip
    yield got, expected
    arrays = [*map(d.numpy, (r, v, start, last, ended))]
    yield cleanrl.gae(*arrays, gamma=d.gamma, gae_lambda=d.lam), expected


@case("rl_games", "compute_gae")
def _rl_games(d: Draw) -> Pairs:
    r, v, start, last, ended = _started(d, d.time, d.rows, 2)
    got = rl_games.compute_gae(
        d.torch(r), d.torch(v), d.numbers(start), d.torch(last), d.numbers(ended), d.gamma, d.lam
    )
    expected = oracles.starts(
        r, v, start[..., None], last, ended[:, None], d.gamma, d.lam
    )  # one flag for all values of an environment
    yield got, expected[0]


@case("rsl_rl", "compute_returns", factor=1024)
def _rsl_rl(d: Draw) -> Pairs:
    r, v = d.normal(d.time, d.rows, 1), d.normal(d.time, d.rows, 1)
    done, last = d.flags(d.time, d.rows, 1), d.normal(d.rows, 1)
    advantages, returns = oracles.ends(r, v, done, last, d.gamma, d.lam)
    for normalise in (False, True) if advantages.size > 1 else (False,):
        held = torch.zeros_like(d.torch(r))
        storage = SimpleNamespace(
            rewards=d.torch(r), values=d.torch(v), dones=d.torch(done).byte(), returns=held
        )
        rsl_rl.compute_returns(storage, d.torch(last), d.gamma, d.lam, normalise)
        assert storage.returns is held
        expected = oracles.normalised(advantages) if normalise else advantages
        yield (storage.advantages, held), (expected, returns)


@case("skrl", "compute_gae", factor=1024)
def _skrl(d: Draw) -> Pairs:
    r, v = d.normal(d.time, d.rows, 1), d.normal(d.time, d.rows, 1)
    done, last = d.flags(d.time, d.rows, 1), d.normal(d.rows, 1)
    if r.size < 2:
        return
    advantages, returns = oracles.ends(r, v, done, last, d.gamma, d.lam)
    got = skrl.compute_gae(
        rewards=d.torch(r),
        terminated=d.torch(done),
        values=d.torch(v),
        next_values=d.torch(last),
        discount_factor=d.gamma,
        lambda_coefficient=d.lam,
    )
    yield got, (returns, oracles.normalised(advantages))


@case("tianshou", "gae", ("float64",))
def _tianshou(d: Draw) -> Pairs:
    v, n, r = d.normal(d.time), d.normal(d.time), d.normal(d.time)
    end = d.flags(d.time)
    yield tianshou.gae(v, n, r, end, d.gamma, d.lam), oracles.flat(v, n, r, end, d.gamma, d.lam)
    whole = np.round(4 * r)
    got = tianshou.gae(v, n, whole.astype(np.int64), end, d.gamma, d.lam)
    yield got, oracles.flat(v, n, whole, end, d.gamma, d.lam)


def _sample_factory(d: Draw, fix: bool, oracle: Callable[..., Array]) -> Pairs:
    r, v = d.normal(d.rows, d.time), d.normal(d.rows, d.time + 1)
    done, valid = d.flags(d.rows, d.time), ~d.flags(d.rows, d.time + 1, rate=0.3)
    expected = oracle(r, done, v, valid, d.gamma, d.lam)
    for form in (d.torch, d.numbers):
        got = sample_factory.gae_advantages(
            d.torch(r), form(done), d.torch(v), form(valid), d.gamma, d.lam, fix=fix
        )
        yield got, expected


@case("Sample Factory", "gae_advantages")
def _sample_factory_as_is(d: Draw) -> Pairs:
    return _sample_factory(d, False, oracles.sample_factory)


@case("Sample Factory", "gae_advantages, fix=True")
def _sample_factory_mended(d: Draw) -> Pairs:
    return _sample_factory(d, True, oracles.mended_sample_factory)


@case("brax", "compute_gae")
def _brax(d: Draw) -> Pairs:
    trunc = d.flags(d.time, d.rows)
    term = d.flags(d.time, d.rows) & ~trunc
    r, v, last = d.normal(d.time, d.rows), d.normal(d.time, d.rows), d.normal(d.rows)
    vs, advantages, errors = oracles.brax(trunc, term, r, v, last, d.lam, d.gamma)
    for form in (d.torch, lambda x: d.numpy(x.astype(float))):
        given = [*map(form, (trunc, term, r, v, last))]
        decays = {"lambda_": d.lam, "discount": d.gamma}
        yield brax.compute_gae(*given, **decays), (vs, advantages)
        yield brax.compute_gae(*given, **decays, fix=True), (vs, errors)


def _in_both(d: Draw, *arrays: Array) -> Iterator[list[Any]]:
    yield [d.torch(x) for x in arrays]
    yield [d.numpy(x) for x in arrays]


def _discounts(d: Draw, *shape: int) -> Array:
    return d.between(0.5, 1.0, *shape) * ~d.flags(*shape)


@case("rlax", "lambda_returns, discounted_returns")
def _rlax_returns(d: Draw) -> Pairs:
    r, v, lam = d.normal(d.time), d.normal(d.time), d.between(0.0, 1.0, d.time)
    discount = _discounts(d, d.time)
    for r_, discount_, v_, lam_ in _in_both(d, r, discount, v, lam):
        expected = oracles.rlax_lambda_returns(r, discount, v, d.lam)
        yield rlax.lambda_returns(r_, discount_, v_, d.lam), expected
        expected = oracles.rlax_lambda_returns(r, discount, v, lam)
        yield rlax.lambda_returns(r_, discount_, v_, lam_), expected
        expected = oracles.discounted(r, discount, v[-1])
        yield rlax.discounted_returns(r_, discount_, v_), expected
        yield rlax.discounted_returns(r_, discount_, float(v[-1])), expected


@case("rlax", "truncated_generalized_advantage_estimation")
def _rlax_gae(d: Draw) -> Pairs:
    r, v, lam = d.normal(d.time), d.normal(d.time + 1), d.between(0.0, 1.0, d.time)
    discount = _discounts(d, d.time)
    for r_, discount_, v_, lam_ in _in_both(d, r, discount, v, lam):
        got = rlax.truncated_generalized_advantage_estimation(r_, discount_, lam_, v_)
        yield got, oracles.discounted_gae(r, discount, v, lam)
        got = rlax.truncated_generalized_advantage_estimation(r_, discount_, d.lam, v_)
        yield got, oracles.discounted_gae(r, discount, v, d.lam)


@case("rlax", "vtrace, leaky_vtrace, vtrace_td_error_and_advantage", factor=256)
def _rlax_vtrace(d: Draw) -> Pairs:
    r, v, n, rho = d.normal(d.time), d.normal(d.time), d.normal(d.time), d.positive(d.time)
    rho *= ~d.flags(d.time, rate=0.05)
    lam, discount, mask = d.between(0.0, 1.0, d.time), _discounts(d, d.time), ~d.flags(d.time)
    everywhere, lams = np.ones_like(mask), np.full(d.time, min(d.lam, 1.0))
    for v_, n_, r_, discount_, rho_, lam_, mask_ in _in_both(d, v, n, r, discount, rho, lam, mask):
        given, known = (v_, n_, r_, discount_, rho_), (v, n, r, discount, rho)
        errors, *_ = oracles.rlax_vtrace(*known, lam, (1.5, 1.0), 1.0, mask)
        got = rlax.vtrace(*given, lam_, 1.5, sample_mask=mask_)
        yield got, errors
        errors, *_ = oracles.rlax_vtrace(*known, lam, (1.0, 1.0), 0.75, everywhere)
        yield rlax.leaky_vtrace(*given, 0.75, lam_), errors
        expected = oracles.rlax_vtrace(*known, lams, (1.0, 1.25), 1.0, everywhere)
        got = rlax.vtrace_td_error_and_advantage(*given, float(lams[0]), 1.0, 1.25)
        yield tuple(got), expected
        expected = oracles.rlax_vtrace(*known, lam, (1.0, 1.0), 1.0, mask)
        got = rlax.vtrace_td_error_and_advantage(*given, lam_, sample_mask=mask_)
        yield tuple(got), expected


@case("tf-agents", "discounted_return")
def _tf_agents_returns(d: Draw) -> Pairs:
    r, discount, last = d.normal(d.time, d.rows), _discounts(d, d.time, d.rows), d.normal(d.rows)
    for r_, discount_, last_ in _in_both(d, r, discount, last):
        expected = oracles.discounted(r, discount, last)
        yield tf_agents.discounted_return(r_, discount_, last_), expected
        got = tf_agents.discounted_return(r_, discount_, last_, provide_all_returns=False)
        yield got, expected[0]
        got = tf_agents.discounted_return(r_.T, discount_.T, time_major=False)
        yield got, oracles.discounted(r, discount, np.zeros(d.rows)).T
        got = tf_agents.discounted_return(r_[:, 0], discount_[:, 0], last_[:1])
        yield got, expected[:, 0]


@case("tf-agents", "generalized_advantage_estimation")
def _tf_agents_gae(d: Draw) -> Pairs:
    r, v, last = d.normal(d.time, d.rows), d.normal(d.time, d.rows), d.normal(d.rows)
    discount = _discounts(d, d.time, d.rows)
    expected = oracles.discounted_gae(r, discount, np.concatenate([v, last[None]]), d.lam)
    for r_, v_, last_, discount_ in _in_both(d, r, v, last, discount):
        got = tf_agents.generalized_advantage_estimation(v_, last_, discount_, r_, d.lam)
        yield got, expected
        got = tf_agents.generalized_advantage_estimation(
            v_.T, last_, discount_.T, r_.T, d.lam, time_major=False
        )
        yield got, expected.T


def _puffer(d: Draw, variant: Any) -> Pairs:
    shape = d.rows, d.time
    r, v, done, rho = d.normal(*shape), d.normal(*shape), d.flags(*shape), d.positive(*shape)
    for clips in ((1.0, 1.0), (1.5, 0.75)):
        advantages = torch.zeros_like(d.torch(r))
        got = pufferlib.compute_puff_advantage(
            d.torch(v), d.torch(r), d.numbers(done), d.torch(rho), advantages, d.gamma, d.lam,
            *clips, variant=variant,
        )  # fmt: skip
        assert got is advantages
        yield got, oracles.puffer(v, r, done, rho, d.gamma, d.lam, clips, variant)


@case("PufferLib", "compute_puff_advantage", factor=256)
def _puffer_3(d: Draw) -> Pairs:
    return _puffer(d, "3.0")


@case("PufferLib", 'compute_puff_advantage, variant="4.0-scalar"', factor=256)
def _puffer_4(d: Draw) -> Pairs:
    return _puffer(d, "4.0-scalar")


# The table ---------------------------------------------------------------------------------------


def differences(case: Case, dtype: str, seed: int, draw: type[Draw] = Draw) -> Iterator[float]:
    """How far ours is off, as a part of the oracle's largest result (or of 1, if that is less)."""
    for got, expected in case.pairs(draw(seed, dtype)):
        if not isinstance(expected, tuple):
            got, expected = (got,), (expected,)
        for x, y in zip(got, expected, strict=True):
            assert str(x.dtype).removeprefix("torch.") == dtype
            x = x.detach().double().numpy() if isinstance(x, torch.Tensor) else x.astype(np.float64)
            assert x.shape == y.shape
            yield float(np.abs(x - y).max(initial=0) / max(1.0, np.abs(y).max(initial=0)))


def table() -> str:
    """The largest difference of each function, over all draws."""
    lines = ["| framework | function | largest difference |", "|---|---|---:|"]
    for case in CASES:
        dtype = "float32" if "float32" in case.dtypes else "float64"
        worst = max(x for seed in SEEDS for x in differences(case, dtype, seed))
        figure = f"{worst:.1e}" if dtype == "float32" else f"{worst:.1e} ({dtype})"
        lines.append(f"| {case.framework} | `{case.function}` | {figure} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}")
    options = parser.parse_args()
    text = table()
    print(text)
    if options.write:
        page = PAGE.read_text()
        marks = re.compile(r"(<!-- parity -->\n).*?(\n<!-- end -->)", re.DOTALL)
        PAGE.write_text(marks.sub(lambda m: m[1] + text + m[2], page))


if __name__ == "__main__":
    main()
