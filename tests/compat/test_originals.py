"""Beside the frameworks themselves, where they are installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import parity  # noqa: E402


def framework(name: str) -> Any:
    """The module, or a skipped test."""
    try:
        return import_module(name)
    except ImportError as error:
        pytest.skip(f"the original is not installed: {error}")


def close(got: Any, expected: Any, digits: float = 2e-6) -> None:
    """Values, shapes and dtypes are the same."""
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            close(one, other, digits)
        return
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, atol=digits * max(1.0, float(abs(expected).max())))


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[0, 3, 4])
def draw(request: pytest.FixtureRequest, dtype: str) -> parity.Draw:
    return parity.Draw(request.param, dtype)


# torchrl -----------------------------------------------------------------------------------------


@pytest.fixture
def originals() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_WARNINGS", "0")
        return framework("torchrl.objectives.value.functional")


def rollout(draw: parity.Draw) -> tuple[Any, ...]:
    """V, the next V, rewards, done, terminated."""
    shape = draw.rows, draw.time, 2
    done = draw.flags(*shape)
    term = done & draw.flags(*shape, rate=0.5)
    return tuple(map(draw.torch, (*(draw.normal(*shape) for _ in range(3)), done, term)))


GAE = ["generalized_advantage_estimate", "vec_generalized_advantage_estimate"]
TD = [
    "td_lambda_return_estimate",
    "vec_td_lambda_return_estimate",
    "td_lambda_advantage_estimate",
    "vec_td_lambda_advantage_estimate",
]


@pytest.mark.parametrize("name", GAE)
@pytest.mark.parametrize("time_dim", [-2, -1, 1])
def test_torchrl_gae(originals: Any, draw: parity.Draw, name: str, time_dim: int):
    ours, theirs = getattr(parity.torchrl, name), getattr(originals, name)
    args = 0.95, 0.9, *rollout(draw)
    close(ours(*args, time_dim=time_dim), theirs(*args, time_dim=time_dim))
    close(ours(*args[:-1]), theirs(*args[:-1]))


@pytest.mark.parametrize("name", GAE)
def test_torchrl_gae_with_gamma_for_each_step(originals: Any, draw: parity.Draw, name: str):
    v, n, r, done, term = (x[..., :1] for x in rollout(draw))
    gamma = draw.torch(draw.between(0.5, 1.0, *r.shape))
    args = gamma, 0.9, v, n, r, done, term
    close(getattr(parity.torchrl, name)(*args), getattr(originals, name)(*args))


def test_torchrl_gae_of_one_axis(originals: Any, draw: parity.Draw):
    args = 0.95, 0.9, *(x[0, :, 0] for x in rollout(draw))
    name = "generalized_advantage_estimate"
    ours, theirs = getattr(parity.torchrl, name), getattr(originals, name)
    close(ours(*args, time_dim=-1), theirs(*args, time_dim=-1))


@pytest.mark.parametrize("name", TD)
def test_torchrl_td_lambda(originals: Any, draw: parity.Draw, name: str):
    ours, theirs = getattr(parity.torchrl, name), getattr(originals, name)
    v, *rest = rollout(draw)
    args = 0.95, 0.9, *([v] if "advantage" in name else []), *rest
    close(ours(*args), theirs(*args))
    close(ours(*args[:-1]), theirs(*args[:-1]))


@pytest.mark.parametrize("rolling_gamma", [True, False])
def test_torchrl_td_lambda_with_gamma_for_each_step(
    originals: Any, draw: parity.Draw, rolling_gamma: bool
):
    _, *rest = rollout(draw)
    gamma, lam = (draw.torch(draw.between(0.5, 1.0, *rest[0].shape)) for _ in range(2))
    name = "td_lambda_return_estimate"
    ours, theirs = getattr(parity.torchrl, name), getattr(originals, name)
    close(ours(gamma, lam, *rest, rolling_gamma), theirs(gamma, lam, *rest, rolling_gamma))


def test_torchrl_vtrace(originals: Any, draw: parity.Draw):
    v, n, r, done, term = rollout(draw)
    pi, mu = (draw.torch(0.5 * draw.normal(*r.shape)) for _ in range(2))
    name = "vtrace_advantage_estimate"
    ours, theirs = getattr(parity.torchrl, name), getattr(originals, name)
    for rest in [(), (term,), (term, 1.25, torch.tensor(0.75))]:
        close(ours(0.95, pi, mu, v, n, r, done, *rest), theirs(0.95, pi, mu, v, n, r, done, *rest))


def test_torchrl_reward2go(originals: Any, draw: parity.Draw):
    _, _, r, done, _ = rollout(draw)
    ours, theirs = parity.torchrl.reward2go, originals.reward2go
    close(ours(r, done, 0.95), theirs(r, done, 0.95))
    last = r[..., 0], done[..., 0], 0.95
    close(ours(*last, time_dim=-1), theirs(*last, time_dim=-1))


@pytest.mark.parametrize("name", [*GAE, *TD])
def test_torchrl_gradients(originals: Any, name: str):
    draw = parity.Draw(3, "float64")
    v, *rest = rollout(draw)
    floats = [x.requires_grad_() for x in (v, *rest) if x.dtype == torch.float64]
    args = 0.95, 0.9, *([v] if "return" not in name else []), *rest

    def gradients(function: Any) -> Any:
        result = function(*args)
        total = sum(x.square().sum() for x in (result if isinstance(result, tuple) else [result]))
        used = [x for x in floats if any(x is y for y in args)]
        return torch.autograd.grad(total, used)

    theirs = gradients(getattr(originals, name))
    close(gradients(getattr(parity.torchrl, name)), theirs, 1e-6)  # float32 at heart


# Stable-Baselines3 -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["RolloutBuffer", "DictRolloutBuffer"])
@pytest.mark.parametrize(("steps", "envs"), [(1, 1), (64, 3), (5, 1)])
def test_stable_baselines3(name: str, steps: int, envs: int):
    original = getattr(framework("stable_baselines3.common.buffers"), name)
    ours = getattr(import_module("linscan.compat.sb3"), name)
    from gymnasium import spaces

    box = spaces.Box(-1, 1, (2,))
    space = spaces.Dict({"x": box}) if name.startswith("Dict") else box
    rng = np.random.default_rng(steps)
    buffers = [c(steps, space, box, "cpu", 0.9, 0.95, envs) for c in (original, ours)]
    assert isinstance(buffers[1], original)
    for _ in range(steps):
        step = rng.standard_normal((4, envs)).astype(np.float32)
        observation = np.zeros((envs, 2), np.float32)
        starts = rng.random(envs) < 0.2
        for buffer in buffers:
            buffer.add(
                {"x": observation} if name.startswith("Dict") else observation,
                np.zeros((envs, 2)), step[0], starts, torch.tensor(step[1]), torch.tensor(step[2]),
            )  # fmt: skip
    last, dones = torch.tensor(rng.standard_normal((envs, 1), np.float32)), rng.random(envs) < 0.5
    held = buffers[1].advantages
    for buffer in buffers:
        buffer.compute_returns_and_advantage(last_values=last, dones=dones)
    assert buffers[1].advantages is held
    close(buffers[1].advantages, buffers[0].advantages)
    close(buffers[1].returns, buffers[0].returns)


def test_ppo_of_stable_baselines3_learns_the_same():
    stable = framework("stable_baselines3")
    ours = import_module("linscan.compat.sb3").RolloutBuffer
    weights = []
    for options in ({}, {"rollout_buffer_class": ours}):
        model = stable.PPO(
            "MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, seed=0, device="cpu", **options
        )
        model.learn(128)
        weights.append(torch.cat([x.detach().flatten() for x in model.policy.parameters()]))
    close(weights[1], weights[0], 1e-4)


# tianshou ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_tianshou(kind: Any):
    original = framework("tianshou.algorithm.algorithm_base")._gae
    rng = np.random.default_rng(0)
    for steps in (1, 2, 100):
        v, n, r = rng.standard_normal((3, steps)).astype(kind)
        args = v, n, r.astype(np.float64), rng.random(steps) < 0.1, 0.95, 0.9
        close(parity.tianshou.gae(*args), original(*args), 1e-14)
