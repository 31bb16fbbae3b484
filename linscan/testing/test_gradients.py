"""The laws of gradients, on every backend that takes torch tensors."""
# ruff: noqa: D103

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from linscan.testing._interpreter import affordable
from linscan.testing.engines import DTYPES, Engine
from linscan.testing.problems import KINDS, TOLERANCE, Problem, problem
from linscan.testing.test_scan import REVERSE, exactly, operands, skip_unless_taken

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # by torch itself
FAST = bool(affordable(False, True))
"""Whether derivatives are compared along one direction only, drawn at random."""
EXTRAS = pytest.mark.parametrize("extras", [False, True], ids=["bare", "initial-reset"])


@pytest.fixture(autouse=True)
def differentiates(engine: Engine) -> None:
    """Only torch tensors have gradients."""
    if engine.library != "torch":
        pytest.skip("gradients are torch's")


def loop(
    a: Any, b: Any, initial: Any = None, *, reset: Any = None, axis: int = -1, reverse: bool = False
) -> Any:
    """The recurrence in torch's own operations, one step after the other."""
    import torch

    shape = np.broadcast_shapes(tuple(getattr(a, "shape", ())), tuple(b.shape))
    a, b = (torch.as_tensor(v, dtype=b.dtype).expand(shape).movedim(axis, 0) for v in (a, b))
    cuts = None if reset is None else reset.expand(shape).movedim(axis, 0)
    state, x = initial, [b[:0]]
    for t in reversed(range(len(b))) if reverse else range(len(b)):
        step = b[t] if state is None else a[t] * state + b[t]
        state = step if cuts is None else torch.where(cuts[t], b[t], step)
        x.append(state[None])
    return torch.cat(x[:1] + x[:0:-1] if reverse else x).movedim(0, axis)


def leaves(*operands: Any, wide: bool = False) -> list[Any]:
    """The tensors among them as leaves of a graph, in double precision if wanted."""
    import torch

    given = [x for x in operands if isinstance(x, torch.Tensor)]
    if wide:
        given = [x.to(torch.complex128 if x.is_complex() else torch.float64) for x in given]
    return [x.detach().clone().requires_grad_() for x in given]


def taken(p: Problem, inputs: list[Any]) -> tuple[Any, ...]:
    """``(a, b, initial)`` again, from the tensors among them."""
    number = isinstance(p.a, (int, float, complex))
    a, b, *initial = [p.a, *inputs] if number else inputs
    return a, b, *initial


@EXTRAS
@REVERSE
@pytest.mark.parametrize("kind", KINDS[:: affordable(1, 3)])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives_are_those_of_finite_differences(
    engine: Engine, dtype: str, kind: str, reverse: bool, extras: bool
) -> None:
    check = engine.xp.autograd.gradcheck
    p = problem((2, 4), kind, dtype, 1, reverse, extras, reset=False, seed=3)
    a, b, initial, _ = operands(engine, p)
    reset = engine.array(np.array([False, False, True, False])) if extras else None
    inputs = leaves(a, b, initial)

    def both(*inputs: Any) -> Any:
        return engine.scan(*taken(p, list(inputs)), reset=reset, return_final=True, **p.options)

    assert check(both, inputs, check_forward_ad=True, fast_mode=FAST)
    if not FAST:  # second derivatives are also those of transformations, below
        second = engine.xp.autograd.gradgradcheck
        assert second(both, inputs, check_fwd_over_rev=True, fast_mode=True)


@EXTRAS
@REVERSE
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_those_of_the_loop(
    engine: Engine, dtype: str, axis: int, kind: str, reverse: bool, extras: bool
) -> None:
    skip_unless_taken(engine, dtype)
    p = problem((37, 41), kind, dtype, axis, reverse, extras, extras)
    a, b, initial, reset = operands(engine, p)
    g = engine.array(np.cos(np.arange(37 * 41.0)).reshape(37, 41), dtype)
    torch = engine.xp

    inputs = leaves(a, b, initial)
    x = engine.scan(*taken(p, inputs), reset=reset, **p.options)
    ours = torch.autograd.grad(x, inputs, g)
    inputs = leaves(a, b, initial, wide=True)
    exact = loop(*taken(p, inputs), reset=reset, **p.options)
    for got, expected in zip(
        ours, torch.autograd.grad(exact, inputs, g.to(exact.dtype)), strict=True
    ):
        assert got.dtype == b.dtype
        error = (got.to(expected.dtype) - expected).abs().max()
        # λ and x are rounded, each to the dtype, before their products are.
        assert error <= 8 * TOLERANCE[dtype] * expected.abs().max(), float(error)


@REVERSE
@pytest.mark.parametrize("initial", [False, True])
def test_packed(engine: Engine, initial: bool, reverse: bool) -> None:
    torch = engine.xp
    offsets = [0, 0, 3, 4, 4, 9, 9]
    p = problem((3, 9), "full", "float64", 1, reverse)
    a, b, _, _ = operands(engine, p)
    start = engine.array(np.arange(18.0).reshape(6, 3)) if initial else None
    cu_seqlens = engine.array(np.array(offsets))

    def packed(a: Any, b: Any, start: Any = None) -> Any:
        return engine.scan(a, b, start, cu_seqlens=cu_seqlens, return_final=True, reverse=reverse)

    def apart(a: Any, b: Any, start: Any = None) -> Any:
        pieces, finals = [], []
        for i in range(6):
            where = slice(offsets[i], offsets[i + 1])
            state = torch.zeros_like(b[:, 0]) if start is None else start[i]
            x = loop(a[:, where], b[:, where], state, reverse=reverse)
            pieces.append(x)
            end = 0 if reverse else -1
            finals.append(x[:, end] if offsets[i] < offsets[i + 1] else state)
        return torch.cat(pieces, 1), torch.stack(finals)

    inputs = leaves(a, b, start)
    ours, exact = (
        torch.autograd.grad(sum((v.cos().sum() for v in f(*inputs)), start=0), inputs)
        for f in (packed, apart)
    )
    torch.testing.assert_close(ours, exact)
    assert torch.autograd.gradcheck(packed, inputs, check_forward_ad=True, fast_mode=FAST)


@REVERSE
@pytest.mark.parametrize("poison", ["the past", "what comes back"])
def test_nothing_crosses_a_cut(engine: Engine, poison: str, reverse: bool) -> None:
    torch = engine.xp
    nan = float("nan")
    a = engine.array(np.full((2, 7), 0.5))
    b, start = engine.array(np.ones((2, 7))), engine.array(np.ones(2))
    reset = engine.array(np.array([False, False, False, True, False, False, False]))
    before, after = (slice(4, None), slice(3)) if reverse else (slice(3), slice(4, None))
    g = engine.array(np.zeros((2, 7)))
    a[:, 3] = nan
    if poison == "the past":
        b[:, before], start[:] = nan, nan
        g[:, after] = 1
    else:
        g[:, after] = nan
    inputs = leaves(a, b, start)
    x = engine.scan(*inputs, reset=reset, reverse=reverse)
    grad_a, grad_b, grad_start = torch.autograd.grad(x, inputs, g)
    assert grad_b[:, before].eq(0).all()
    assert grad_start.eq(0).all()
    assert grad_a[:, 3].eq(0).all()
    if poison == "the past":
        assert grad_a[:, after].isfinite().all()
        assert grad_b[:, after].gt(0).all()
    else:
        assert grad_a[:, before].eq(0).all()


def test_the_first_multiplier_of_a_zero_state_has_no_gradient(engine: Engine) -> None:
    a = engine.array(np.full(5, 0.5))
    a[0] = float("nan")
    inputs = leaves(a, engine.array(np.ones(5)))
    engine.scan(*inputs).sum().backward()
    assert inputs[0].grad[0] == 0
    assert inputs[0].grad.isfinite().all()


@REVERSE
@pytest.mark.parametrize("kind", ["row", "step", "full"])
def test_transformations(engine: Engine, kind: str, reverse: bool) -> None:
    func = engine.xp.func
    close = engine.xp.testing.assert_close
    p = problem((3, 5), kind, "float64", 1, reverse, initial=True, reset=True)
    a, b, initial, reset = operands(engine, p)
    many = engine.xp.stack([b, 2 * b - 1], 1)

    def results(scan: Any) -> Any:
        def f(a: Any, b: Any, initial: Any) -> Any:
            return scan(a, b, initial, reset=reset, reverse=reverse)

        def loss(*inputs: Any) -> Any:
            return f(*inputs).sin().sum()

        yield func.vmap(f, (None, 1, None), 1)(a, many, initial)
        yield func.vmap(func.grad(loss, (0, 1, 2)), (None, 1, None))(a, many, initial)
        yield func.jvp(f, (a, b, initial), (a + 1, b.cos(), initial))
        yield func.jacrev(f, (0, 1, 2))(a, b, initial)
        yield func.jacfwd(f, (0, 1, 2))(a, b, initial)
        yield func.hessian(loss, (0, 1, 2))(a, b, initial)

    for ours, exact in zip(results(engine.scan), results(loop), strict=True):
        close(ours, exact)


def test_the_same_bits_every_time(engine: Engine) -> None:
    for kind in ("row", "step", "full"):
        p = problem((40, 257), kind, initial=True, reset=True)
        inputs = leaves(*operands(engine, p)[:3])
        first, *others = (
            engine.xp.autograd.grad(engine.scan(*inputs).cos().sum(), inputs) for _ in range(4)
        )
        for other in others:
            for x, y in zip(first, other, strict=True):
                exactly(engine, x, y)


def test_out_and_gradients_exclude_each_other(engine: Engine) -> None:
    b = engine.array(np.ones(3))
    with pytest.raises(ValueError, match="leave out= away"):
        engine.scan(leaves(b)[0], b, out=engine.array(np.ones(3)))
    with pytest.raises(ValueError, match="leave out= away"):
        engine.discounted_returns(b, gamma=0.5, differentiable=True, out=engine.array(np.ones(3)))


# ------------------------------------------------------------------------------- the estimators

ENDS: dict[str, tuple[str, ...]] = {
    "bare": (),
    "flags": ("last_values", "terminated", "truncated", "truncation_values"),
    "holes": ("last_values", "terminated", "truncated", "truncation_values", "mask"),
    "next": ("next_values", "terminated", "truncated", "mask"),
}


@pytest.mark.parametrize("ends", list(ENDS)[:: affordable(1, 2)])
@pytest.mark.parametrize("decay", ["number", "row", "step", "full"][-affordable(4, 1) :])
@pytest.mark.parametrize("name", ["gae", "discounted_returns", "td_lambda"])
def test_estimators(engine: Engine, name: str, decay: str, ends: str) -> None:
    if name == "discounted_returns" and ends == "next":
        pytest.skip("it has no next values")
    rng = np.random.default_rng(1)
    data = ["rewards", "values", "next_values", "last_values", "truncation_values"]
    arrays = {key: rng.standard_normal(2 if key == "last_values" else (2, 5)) for key in data}
    flags = {key: rng.random((2, 5)) < 0.3 for key in ("terminated", "truncated")}
    flags["mask"] = rng.random((2, 5)) < 0.7
    size = {"number": (), "row": (2, 1), "step": (5,), "full": (2, 5)}[decay]
    decays = {key: rng.uniform(0.5, 1, size) for key in ("gamma", "lam")}
    if name == "discounted_returns":
        del decays["lam"], arrays["values"]
    given = {"rewards", "values", "gamma", "lam", *ENDS[ends]}
    parts = {k: engine.array(x) for k, x in (arrays | decays).items() if k in given}
    fixed = {k: engine.array(x) for k, x in flags.items() if k in given}

    def results(*inputs: Any, differentiable: bool = True) -> Any:
        arguments = dict(zip(parts, inputs, strict=True))
        x = getattr(engine, name)(**arguments, **fixed, differentiable=differentiable)
        return tuple(x) if name == "gae" else (x,)

    inputs = leaves(*parts.values())
    assert engine.xp.autograd.gradcheck(results, inputs, check_forward_ad=True, fast_mode=True)
    for x, y in zip(results(*inputs), results(*inputs, differentiable=False), strict=True):
        assert not y.requires_grad
        engine.xp.testing.assert_close(x.detach(), y)


@pytest.mark.parametrize("name", ["gae", "td_lambda"])
def test_what_an_estimator_does_not_read_has_no_gradient(engine: Engine, name: str) -> None:
    nan = float("nan")
    r, v, n, lam, gamma = (engine.array(np.full((1, 6), x)) for x in (1.0, 2.0, 3.0, 0.5, 0.9))
    mask = engine.array(np.array([[True, False, True, True, True, False]]))
    terminated = engine.array(np.array([[False, False, False, True, False, False]]))
    for x in (r, v, n, lam, gamma):
        x[~mask] = nan
    n[terminated] = nan
    lam[terminated] = nan
    inputs = leaves(r, v, gamma, lam, n)
    results = getattr(engine, name)(
        *inputs[:2],
        gamma=inputs[2],
        lam=inputs[3],
        next_values=inputs[4],
        terminated=terminated,
        mask=mask,
        differentiable=True,
    )
    loss = sum(x.sum() for x in results) if name == "gae" else results.sum()
    grads = engine.xp.autograd.grad(loss, inputs, allow_unused=True)
    for i, (x, grad) in enumerate(zip(inputs, grads, strict=True)):
        if name == "td_lambda" and i == 1:
            assert grad is None  # next_values take the place of values
            continue
        assert grad.isfinite().all()
        assert grad[x.isnan()].eq(0).all()


def sourced(engine: Engine, *data: Any) -> list[Any]:
    return leaves(*(engine.array(np.array(x, np.float64)) for x in data))


def test_what_is_not_read_has_no_gradient_and_gives_none(engine: Engine) -> None:
    """NaN behind a cut, in a hole, and in the multiplier of a first step."""
    nan = float("nan")
    gamma, r, v = sourced(engine, 0.9, [1, 1, nan, 1], [1, 1, 1, 1])
    end = engine.array(np.array([False, True, False, False]))
    given = {"gamma": gamma, "n": 2, "terminated": end, "differentiable": True}
    engine.estimate("n_step_returns", r, v, **given)[:2].sum().backward()
    assert gamma.grad == 1  # of 1 + γ·1, and of 1

    gamma, r, v, lam, rho = sourced(engine, 0.9, [1] * 4, [1] * 4, [0.8, nan, 0.8, 0.8], [0] * 4)
    valid = engine.array(np.array([True, False, True, True]))
    given = {"gamma": gamma, "lam": lam, "mask": valid, "differentiable": True}
    engine.estimate("vtrace", rho, r, v, **given).pg_advantages.sum().backward()
    for x in (gamma, r, v, lam, rho):
        assert x.grad.isfinite().all()
    assert lam.grad[1] == 0

    r, q, n, rho = sourced(engine, [1] * 3, [1] * 3, [1] * 3, [nan, -0.1, -0.1])
    given = {"gamma": 0.9, "lam": 1.0, "differentiable": True}
    engine.estimate("retrace", r, q, n, rho, **given).sum().backward()
    assert rho.grad[0] == 0
    assert rho.grad.isfinite().all()
