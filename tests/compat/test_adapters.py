"""What parity does not show: gradients, context parallelism, NaN, degenerate batches."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from linscan.compat import (  # noqa: E402
    areal,
    brax,
    nemo_rl,
    openrlhf,
    pufferlib,
    rlax,
    sample_factory,
    slime,
    torchrl,
    trl,
    verl,
)


def test_import_linscan_imports_none_of_them():
    code = "import linscan, sys; print([m for m in sys.modules if m.startswith('linscan.compat')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_slime_under_context_parallelism(monkeypatch: pytest.MonkeyPatch):
    """Two ranks that own every other token, of which this one has the even tokens."""
    lengths, totals = [6, 4], [8, 9]
    whole = {len(x): x for x in (torch.arange(6.0), torch.arange(4.0))}

    def gather(piece: Any, total: int, response: int) -> Any:
        assert total in totals
        assert torch.equal(piece, whole[response][::2])
        return whole[response]

    def cut(x: Any, total: int, response: int) -> Any:
        assert (len(x), total) in zip(lengths, totals, strict=True)
        return x[::2]

    mpu = SimpleNamespace(get_context_parallel_world_size=lambda: 2)
    monkeypatch.setitem(sys.modules, "megatron.core", SimpleNamespace(mpu=mpu))
    for name in ("slime", "slime.backends", "slime.backends.megatron_utils"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[]))
    functions = SimpleNamespace(all_gather_with_cp=gather, slice_log_prob_with_cp=cut)
    monkeypatch.setitem(sys.modules, "slime.backends.megatron_utils.cp_utils", functions)

    pieces = [x[::2] for x in whole.values()]
    advantages, returns = slime.get_advantages_and_returns_batch(
        totals, lengths, pieces, pieces, 0.9, 0.8
    )
    for i, x in enumerate(whole.values()):
        expected = slime.vanilla_gae(x[None], x[None], 0.9, 0.8)
        torch.testing.assert_close(advantages[i], expected[0][0, ::2])
        torch.testing.assert_close(returns[i], expected[1][0, ::2])


def test_slime_takes_the_dtype_of_values_and_the_length_that_it_is_told():
    values, rewards = torch.ones(5, dtype=torch.bfloat16), torch.ones(5)
    (advantages,), (returns,) = slime.get_advantages_and_returns_batch(
        [9], [3], [values], [rewards], 1.0, 1.0
    )
    assert advantages.dtype == returns.dtype == torch.bfloat16
    assert advantages.tolist() == [2.0, 1.0, 0.0]
    assert slime.get_advantages_and_returns_batch([], [], [], [], 1.0, 1.0) == ([], [])


def test_slime_hook_without_a_critic():
    with pytest.raises(ValueError, match="needs a critic"):
        slime.ppo_advantages(SimpleNamespace(), {"values": None})


def test_slime_hook_with_a_response_that_is_masked_whole():
    data: dict[str, Any] = {
        "kl": [torch.ones(2), torch.ones(2)],
        "values": [torch.ones(2), torch.ones(2)],
        "loss_masks": [torch.zeros(2), torch.ones(2)],
        "rewards": [5.0, 5.0],
        "response_lengths": [2, 2],
        "total_lengths": [3, 3],
    }
    slime.masked_ppo_advantages(SimpleNamespace(kl_coef=1.0, gamma=1.0, lambd=1.0), data)
    assert [x.tolist() for x in data["advantages"]] == [[0.0, 0.0], [2.0, 3.0]]
    assert [x.tolist() for x in data["returns"]] == [[0.0, 0.0], [3.0, 4.0]]


@pytest.mark.parametrize("function", [slime.vanilla_gae, slime.chunked_gae])
def test_slime_gradients(function: Any):
    rewards, values = (torch.randn(2, 9, dtype=torch.float64, requires_grad=True) for _ in "rv")
    assert torch.autograd.gradcheck(lambda r, v: function(r, v, 0.9, 0.8), (rewards, values))
    assert not function(rewards.detach(), values.detach(), 0.9, 0.8)[0].requires_grad
    with torch.no_grad():
        assert not function(rewards, values, 0.9, 0.8)[0].requires_grad


def test_torchrl_where_the_vectorised_originals_raise():
    x = torch.ones(2, 4, 1)
    done = torch.zeros(2, 4, 1, dtype=torch.bool)
    for gamma, lam in [(0.0, 0.9), (0.9, 0.0), (1e-4, 1e-4)]:
        advantage, target = torchrl.vec_generalized_advantage_estimate(gamma, lam, x, x, x, done)
        torch.testing.assert_close(advantage[:, -1:], torch.full((2, 1, 1), gamma))
        torch.testing.assert_close(target, advantage + x)
    lam = torch.full_like(x, 0.5)
    got = torchrl.vec_td_lambda_return_estimate(1.0, lam, x, x, done)
    torch.testing.assert_close(got, torchrl.td_lambda_return_estimate(1.0, 0.5, x, x, done))
    empty = x[:, :0]
    got = torchrl.vec_generalized_advantage_estimate(0.9, 0.9, empty, empty, empty, done[:, :0])
    assert got[0].shape == empty.shape


def test_torchrl_takes_the_dtype_of_the_loop():
    values, rewards = torch.ones(1, 3, 1), torch.ones(1, 3, 1, dtype=torch.float64)
    done = torch.zeros(1, 3, 1, dtype=torch.bool)
    loop = torchrl.generalized_advantage_estimate(0.9, 0.9, values, values, rewards, done)
    vec = torchrl.vec_generalized_advantage_estimate(0.9, 0.9, values, values, rewards, done)
    assert loop[0].dtype == torch.float32
    assert vec[0].dtype == torch.float64


def test_torchrl_rolling_gamma_needs_gamma_for_each_step():
    x, done = torch.ones(1, 3, 1), torch.zeros(1, 3, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match="rolling_gamma=False needs"):
        torchrl.td_lambda_return_estimate(0.9, 0.9, x, x, done, rolling_gamma=False)


def test_rlax_stops_gradients_of_targets():
    v, n, r, rho = (torch.rand(5, dtype=torch.float64, requires_grad=True) for _ in range(4))
    discount = torch.full((5,), 0.9, dtype=torch.float64)
    errors = rlax.vtrace(v, n, r, discount, rho)
    errors.sum().backward()
    assert v.grad is not None
    assert v.grad.tolist() == [-1.0] * 5
    assert n.grad is r.grad is rho.grad is None
    assert rlax.vtrace(v, n, r, discount, rho, stop_target_gradients=False).requires_grad
    assert rlax.lambda_returns(r, discount, n, 0.5).requires_grad
    assert not rlax.lambda_returns(r, discount, n, 0.5, stop_target_gradients=True).requires_grad


def test_batches_too_small_to_be_whitened():
    x, mask = torch.ones(1, 3), torch.tensor([[True, False, False]])
    with pytest.raises(ValueError, match="at least 2 valid"):
        verl.compute_gae_advantage_return(x, x, mask, 1.0, 1.0)
    with pytest.raises(ValueError, match="at least 2 valid"):
        trl.advantages_and_returns(x, x, ~mask, 1.0, 1.0)
    assert verl.compute_gae_advantage_return(x, x, mask, 1.0, 1.0, fix=True)[0].tolist() == [
        [0] * 3
    ]


def test_trl_finds_the_score_behind_the_last_token():
    rewards, values = torch.tensor([[0.0, 0.0, 4.0, 0.0]] * 2), torch.zeros(2, 4)
    padding = torch.tensor([[False, False, True, True], [False, False, False, True]])
    _, returns = trl.advantages_and_returns(rewards, values, padding, 0.5, 1.0, fix=True)
    assert returns.tolist() == [[2.0, 4.0, 0.0, 0.0], [1.0, 2.0, 4.0, 0.0]]
    _, returns = trl.advantages_and_returns(rewards, values, padding, 0.5, 1.0)
    assert returns.tolist() == [[1.0, 2.0, 4.0, 0.0]] * 2


NAN = float("nan")


def test_nan_in_holes_stays_there():
    mask = torch.tensor([[True, False, True, True]])
    clean, holed = torch.ones(1, 4), torch.tensor([[1.0, NAN, 1.0, 1.0]])
    for function in (
        lambda x: verl.compute_gae_advantage_return(x, x, mask, 0.9, 0.8)[0],
        lambda x: openrlhf.get_advantages_and_returns(x, x, mask, 0.9, 0.8)[0],
        lambda x: nemo_rl.compute_gae(
            SimpleNamespace(gae_gamma=0.9, gae_lambda=0.8), x, x, mask.float()
        )[0],
        lambda x: sample_factory.gae_advantages(x[:, :3], torch.zeros(1, 3), x, mask, 0.9, 0.8),
    ):
        torch.testing.assert_close(function(holed), function(clean))


def test_areal_leaves_values_alone():
    values, rewards = torch.tensor([1.0, NAN, 2.0, 5.0]), torch.ones(2)
    bootstrap, offsets = torch.tensor([False, True]), torch.tensor([0, 1, 2])
    kept = values.clone()
    advantages, returns = areal.cugae1d_nolp_misalign_func(
        rewards, values, offsets, bootstrap, 1.0, 1.0
    )
    assert advantages.tolist() == [0.0, 4.0]
    assert returns.tolist() == [1.0, 6.0]
    torch.testing.assert_close(values, kept, equal_nan=True)


def test_puffer_leaves_the_last_column_alone_and_knows_its_variants():
    x, advantages = torch.ones(2, 3), torch.full((2, 3), 7.0)
    pufferlib.compute_puff_advantage(x, x, 0 * x, x, advantages, 0.9, 0.8, 1.0, 1.0)
    assert advantages[:, -1].tolist() == [7.0, 7.0]
    with pytest.raises(ValueError, match=r"variant must be"):
        pufferlib.compute_puff_advantage(
            x,
            x,
            x,
            x,
            advantages,
            0.9,
            0.8,
            1.0,
            1.0,
            variant="2.0",  # type: ignore[arg-type]
        )


def test_rlax_in_numpy_takes_weights_of_zero_without_a_warning():
    x = np.ones(3)
    errors = rlax.vtrace(x, x, x, x, np.zeros(3))
    assert errors.tolist() == [0.0, 0.0, 0.0]


def test_rlax_takes_lambda_of_any_shape_that_fits():
    v, n, r, discount, rho = torch.rand(5, 2, 4, dtype=torch.float64)
    expected = rlax.vtrace_td_error_and_advantage(v, n, r, discount, rho, 0.9)
    for shape in [(), (4,), (2, 1), (2, 4)]:
        lam = torch.full(shape, 0.9, dtype=torch.float64)
        got = rlax.vtrace_td_error_and_advantage(v, n, r, discount, rho, lam)
        for x, y in zip(got, expected, strict=True):
            torch.testing.assert_close(x, y)


def test_brax_and_nemo_let_no_gradients_flow():
    r, v = (torch.rand(3, 2, requires_grad=True) for _ in range(2))
    flags = torch.zeros(3, 2)
    assert not any(x.requires_grad for x in brax.compute_gae(flags, flags, r, v, v[0]))
    method = SimpleNamespace(gae_gamma=0.9, gae_lambda=0.8)
    for mask in (torch.ones(3, 2), torch.full((3, 2), 0.5)):
        assert not any(x.requires_grad for x in nemo_rl.compute_gae(method, r, v, mask))


@pytest.mark.parametrize("fix", [False, True])
def test_sample_factory_gradients(fix: bool):
    r = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    v = torch.rand(2, 4, dtype=torch.float64, requires_grad=True)
    valids = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 0]])

    def function(r: Any, v: Any) -> Any:
        return sample_factory.gae_advantages(r, torch.zeros(2, 3), v, valids, 0.9, 0.8, fix=fix)

    assert torch.autograd.gradcheck(function, (r, v))


def test_nemo_weights_leave_nan_in_its_hole():
    """0 and 0.5: the hole is stepped over, and its own results alone are lost."""
    method = SimpleNamespace(gae_gamma=1.0, gae_lambda=1.0)
    x, mask = torch.tensor([[1.0, NAN, 1.0]]), torch.tensor([[0.5, 0.0, 0.5]])
    advantages, returns = nemo_rl.compute_gae(method, x, x, mask)
    assert advantages.tolist() == [[0.25, 0.0, 0.0]]
    assert returns[0, ::2].tolist() == [1.25, 1.0]


def test_integers_are_promoted():
    x = torch.ones(1, 3, 1, dtype=torch.int64)
    (advantages,), _ = slime.get_advantages_and_returns_batch(
        [3], [3], [x[0, :, 0]], [x[0, :, 0]], 1.0, 1.0
    )
    assert advantages.tolist() == [2.0, 1.0, 0.0]
    got = torchrl.generalized_advantage_estimate(1.0, 1.0, x, x, x, torch.zeros_like(x).bool())
    assert got[0].flatten().tolist() == [3.0, 2.0, 1.0]


def test_areal_takes_empty_sequences_and_offsets_of_any_stride():
    rewards, values = torch.ones(3), torch.tensor([9.0, 1.0, 1.0, 5.0, 7.0, 1.0, 3.0])
    offsets = torch.tensor([[0, 0, 2, 2, 3]] * 2).T.contiguous()[:, 0].int()
    advantages, _ = areal.cugae1d_nolp_misalign_func(
        rewards, values, offsets, torch.tensor([True, True, True, True]), 1.0, 0.0
    )
    assert advantages.tolist() == [1.0, 5.0, 3.0]
