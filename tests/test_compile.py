"""Graphs: ``torch.compile``, ``torch.export``, and the registered operations."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportOptionalSubscript=false

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import linscan

torch: Any = pytest.importorskip("torch")

from linscan_torch import _autograd  # noqa: E402

PPO = """
import warnings, sys, torch, linscan

@torch.compile(fullgraph=True, dynamic=True)
def loss(log_probs, old, values, rewards, terminated):
    advantages, returns = linscan.gae(
        rewards, values, gamma=0.99, lam=0.95, terminated=terminated
    )
    advantages = linscan.whiten(advantages)
    ratio = (log_probs - old).exp()
    policy = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    return (values - returns).square().mean() - policy

def eager(*args):
    return loss._torchdynamo_orig_callable(*args)

for time in (16, 24, 40):
    inputs = [torch.randn(4, time, requires_grad=i != 3) for i in range(4)]
    ends = torch.rand(4, time) < 0.1
    for f in (loss, eager):
        grads = torch.autograd.grad(f(*inputs, ends), (inputs[0], inputs[2]))
        if f is loss:
            compiled = grads
            torch._dynamo.config.error_on_recompile = True
    torch.testing.assert_close(compiled, grads)
"""


def test_a_ppo_loss_as_the_first_call_of_a_process():
    """By Inductor, in one graph, and the same one for other lengths."""
    subprocess.run([sys.executable, "-c", PPO], check=True)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.config.error_on_recompile = False


def same(f: Callable[..., Any], make: Callable[[int], tuple[Any, ...]]) -> None:
    """``f`` compiled once, for whatever length, gives what it gives in eager mode."""
    compiled = torch.compile(f, fullgraph=True, dynamic=True, backend="aot_eager")
    for time in (7, 9, 12):
        args = make(time)
        torch.testing.assert_close(compiled(*args), f(*args))
        torch._dynamo.config.error_on_recompile = True


def floats(*shape: int, **options: Any) -> Any:
    return torch.randn(*shape, **options)


def bools(*shape: int) -> Any:
    return torch.rand(*shape) < 0.3


def pair(time: int) -> tuple[Any, Any]:
    return floats(3, time), floats(3, time)


@pytest.mark.parametrize("backend", ["auto", "numpy", "torch"])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_and_its_gradients(backend: str, reverse: bool):
    def f(a: Any, b: Any, initial: Any, reset: Any) -> Any:
        x, final = linscan.scan(
            a, b, initial, reset=reset, reverse=reverse, return_final=True, backend=backend
        )
        return x.sin().sum() + final.sum()

    compiled = torch.compile(f, fullgraph=True, dynamic=True, backend="aot_eager")
    for time in (7, 9):
        inputs = [x.requires_grad_() for x in (*pair(time), floats(3))]
        reset = bools(3, time)
        ours, exact = (torch.autograd.grad(g(*inputs, reset), inputs) for g in (compiled, f))
        torch.testing.assert_close(ours, exact)
        torch._dynamo.config.error_on_recompile = True


SCANS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "number": (lambda b: linscan.scan(0.5, b), lambda t: (floats(3, t),)),
    "rank 0": (lambda a, b: linscan.scan(a, b), lambda t: (torch.tensor(0.5), floats(3, t))),
    "time first": (lambda a, b: linscan.scan(a, b, axis=0), lambda t: pair(t)),
    "broadcast": (
        lambda a, b: linscan.scan(a, b, axis=1),
        lambda t: (floats(2, 1, t, 1), floats(t, 3)),
    ),
    "bfloat16": (lambda a, b: linscan.scan(a.bfloat16(), b.bfloat16()), pair),
    "promotion": (lambda a, b: linscan.scan(a.double(), b), pair),
    "complex": (lambda a, b: linscan.scan((a + 1j * b).conj(), b), pair),
    "packed": (
        lambda a, b, state, offsets: linscan.scan(
            a, b, state, cu_seqlens=offsets, return_final=True
        ),
        lambda t: (*pair(t), floats(3, 3), torch.tensor([0, 2, 2, t])),
    ),
    "out": (lambda a, b, out: linscan.scan(a, b, out=out) + 0, lambda t: (*pair(t), floats(3, t))),
    "numeric reset": (
        lambda a, b, cut: linscan.scan(a, b, 1.0, reset=cut),
        lambda t: (*pair(t), bools(t).int()),
    ),
    "vmap": (lambda a, b: torch.func.vmap(lambda a, b: linscan.scan(a, b))(a, b), pair),
}


@pytest.mark.parametrize("name", list(SCANS))
def test_scans(name: str):
    same(*SCANS[name])


def three(results: Any) -> tuple[Any, ...]:
    return tuple(results)


DECAY = {"gamma": 0.9, "lam": 0.8}
ESTIMATORS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "gae": (lambda r, v: three(linscan.gae(r, v, **DECAY)), pair),
    "longer": (
        lambda r, v: three(linscan.gae(r, v, **DECAY)),
        lambda t: (floats(3, t), floats(3, t + 1)),
    ),
    "flags and holes": (
        lambda r, v, n, terminated, truncated, mask: three(
            linscan.gae(
                r,
                v,
                last_values=n,
                terminated=terminated,
                truncated=truncated,
                truncation_values=v,
                mask=mask,
                masked_reward="to_previous_valid",
                **DECAY,
            )
        ),
        lambda t: (*pair(t), floats(3), bools(3, t), bools(3, t), ~bools(3, t)),
    ),
    "lengths": (
        lambda r, v, n: three(linscan.gae(r, v, lengths=n, **DECAY)),
        lambda t: (*pair(t), torch.tensor([t, 2, 0])),
    ),
    "packed": (
        lambda r, v, n: three(linscan.gae(r, v, cu_seqlens=n, last_values=0.5, **DECAY)),
        lambda t: (*pair(t), torch.tensor([0, 2, 2, t])),
    ),
    "decays": (
        lambda r, v, gamma, lam: linscan.td_lambda(r, v, gamma=gamma, lam=lam),
        lambda t: (*pair(t), torch.tensor(0.9), torch.rand(t)),
    ),
    "returns": (lambda r, _: linscan.discounted_returns(r, gamma=0.9, axis=0), pair),
    "whiten": (lambda x, _: linscan.whiten(x), pair),
}


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_estimators(name: str):
    same(*ESTIMATORS[name])


def test_estimators_are_detached_unless_they_are_asked():
    def f(r: Any, v: Any, gamma: Any, differentiable: bool) -> Any:
        return linscan.gae(r, v, gamma=gamma, lam=0.8, differentiable=differentiable).returns

    compiled = torch.compile(f, fullgraph=True, dynamic=True, backend="aot_eager")
    inputs = [x.requires_grad_() for x in (*pair(5), torch.tensor(0.9))]
    assert not compiled(*inputs, False).requires_grad
    ours, exact = (torch.autograd.grad(g(*inputs, True).sum(), inputs) for g in (compiled, f))
    torch.testing.assert_close(ours, exact)


def test_the_backend_is_the_one_in_force(monkeypatch: pytest.MonkeyPatch):
    a, b = pair(5)
    used: list[str] = []
    for name in ("numpy", "torch"):
        linscan.scan(a, b.clone().requires_grad_(), backend=name)
        engine = _autograd.ENGINES[name]

        def scan(*args: Any, name: str = name, scan: Any = engine.scan) -> Any:
            used.append(name)
            return scan(*args)

        monkeypatch.setitem(_autograd.ENGINES, name, engine._replace(scan=scan))
    # a backend registers itself when it is looked up for the first time, which was above
    f = torch.compile(lambda a, b: linscan.scan(a, b), fullgraph=True, backend="aot_eager")
    for name in ("numpy", "torch", "numpy"):
        with linscan.use_backend(name):
            f(a, b)
    assert used == ["numpy", "torch", "numpy"]


class Model(torch.nn.Module):  # type: ignore[misc]
    def forward(self, a: Any, b: Any) -> Any:
        return linscan.scan(a, b, reverse=True).sin()


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool):
    time = torch.export.Dim("time", min=2, max=1000)
    shapes = {"a": {1: time}, "b": {1: time}}
    program = torch.export.export(Model(), pair(7), dynamic_shapes=shapes, strict=strict)
    a, b = pair(11)
    torch.testing.assert_close(program.module()(a, b), Model()(a, b))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("leaving", [False, True])
def test_opcheck(dtype: str, leaving: bool):
    def some(*shape: int) -> Any:
        return torch.randn(*shape, dtype=getattr(torch, dtype), requires_grad=True)

    linscan.scan(0.5, some(3), backend="numpy")
    a, b, initial, reset = some(2, 4, 3), some(2, 4, 3), some(2, 1, 3), bools(2, 4, 3)
    way = ("numpy", 0.0, leaving, leaving, None)
    start = None if leaving else initial
    torch.library.opcheck(torch.ops.linscan.scan, (a, b, start, reset, *way))
    torch.library.opcheck(torch.ops.linscan.scan, (some(1, 4, 1), b, None, None, *way))
    if not leaving:
        torch.library.opcheck(torch.ops.linscan.adjoint, (a, b, initial, b, reset, *way))
        torch.library.opcheck(torch.ops.linscan.adjoint, (some(2, 1, 3), b, None, b, None, *way))
