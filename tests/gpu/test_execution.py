"""How calls behave on a GPU: repetition, streams, graphs, compilation, gradients, memory."""

from __future__ import annotations

from typing import Any

import pytest

import linscan
from linscan.testing.engines import Engine

torch = pytest.importorskip("torch")

SHAPES = [(3, 70001), (300, 2049), (5000, 33), (1, 1 << 20)]
"""(rows, time): few long rows, rows, tiny rows, one row."""


def operands(rows: int, time: int, dtype: Any = None) -> tuple[Any, Any]:
    """Multipliers in 0.8 .. 1, and terms."""
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = torch.rand(2, rows, time, generator=generator, device="cuda", dtype=dtype)
    return 1 - a / 5, b - 0.5


def calls(engine: Engine, a: Any, b: Any) -> list[Any]:
    """Both directions, both axes, and estimators, with flags and without."""
    flags = b > 0.49
    x, final = engine.scan(a, b, return_final=True, reverse=True)
    advantages, returns = engine.gae(b, a, gamma=0.99, lam=0.95, terminated=flags)
    return [
        x,
        final,
        advantages,
        returns,
        engine.scan(a, b),
        engine.scan(0.9, b, reset=flags),
        engine.scan(a.mT.contiguous(), b.mT.contiguous(), axis=0, reverse=True),
        engine.discounted_returns(b, gamma=0.99),
        engine.td_lambda(b, a, gamma=0.99, lam=0.9, mask=~flags),
        *engine.estimate("vtrace", b, a, b, gamma=0.99, terminated=flags),
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fifty_runs_give_the_same_bits(engine: Engine, shape: tuple[int, int]):
    a, b = operands(*shape)
    first = calls(engine, a, b)
    for _ in range(50):
        for x, y in zip(calls(engine, a, b), first, strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_work_waits_for_its_own_stream(engine: Engine, shape: tuple[int, int]):
    a, b = operands(*shape)
    expected = calls(engine, a, b)
    stale = torch.zeros_like(b)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # the operands are written only after some 50 ms
        stale.copy_(b)
        found = calls(engine, a, stale)
    stream.synchronize()
    for x, y in zip(found, expected, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_capture_and_replay(engine: Engine, shape: tuple[int, int]):
    a, b = operands(*shape)
    expected = calls(engine, a, b)
    left, right = torch.zeros_like(a), torch.zeros_like(b)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        calls(engine, left, right)  # what is compiled on a first call is compiled here
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = calls(engine, left, right)
    for sign in (1, -1, 1):
        left.copy_(a)
        right.copy_(sign * b)
        graph.replay()
        assert torch.equal(found[0], sign * expected[0])
    for x, y in zip(found, expected, strict=True):
        assert torch.equal(x, y)


def test_nothing_waits_for_the_device(engine: Engine):
    a, b = operands(64, 500)
    calls(engine, a, b)
    torch.cuda.set_sync_debug_mode("error")
    try:
        calls(engine, a, b)
        a.requires_grad_()
        b.requires_grad_()
        engine.scan(a, b, reverse=True).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_another_device_than_the_current_one(engine: Engine):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    a, b = operands(5, 1000)
    other = [x.to("cuda:1") for x in (a, b)]
    for x, y in zip(calls(engine, *other), calls(engine, a, b), strict=True):
        assert x.device.index == 1
        assert torch.equal(x.cpu(), y.cpu())


def test_compiled_without_a_break_and_for_any_length(engine: Engine):
    def loss(rewards: Any, values: Any, a: Any) -> Any:
        advantages, returns = linscan.gae(
            rewards, values.detach(), gamma=0.99, lam=0.95, backend=engine.backend
        )
        smooth = linscan.scan(a, values, backend=engine.backend)
        return (smooth * advantages).mean() + (values - returns).square().mean()

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, dynamic=True)
    for time in (100, 333, 1024):
        with torch._dynamo.config.patch(error_on_recompile=time > 100):
            a, values = (x.requires_grad_() for x in operands(7, time))
            rewards = torch.randn_like(values)
            found, expected = compiled(rewards, values, a), loss(rewards, values, a)
            torch.testing.assert_close(found, expected)
            pairs = zip(
                torch.autograd.grad(found, (values, a)),
                torch.autograd.grad(expected, (values, a)),
                strict=True,
            )
            for x, y in pairs:
                torch.testing.assert_close(x, y)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("shape", [(3, 40), (1, 40), (3, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients(engine: Engine, dtype: str, shape: tuple[int, int], reverse: bool):
    a, b = operands(3, 40, getattr(torch, dtype))
    a = a[: shape[0], : shape[1]].clone().requires_grad_()
    b.requires_grad_()

    def scan(a: Any, b: Any, initial: Any) -> Any:
        return engine.scan(a, b, initial, reverse=reverse, return_final=True)

    initial = b[:, 0].detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(scan, (a, b, initial))
    assert torch.autograd.gradgradcheck(scan, (a, b, initial))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_fused_backward_is_the_composed_one(engine: Engine, shape: tuple[int, int]):
    a, b = (x.double().requires_grad_() for x in operands(*shape))
    g = torch.randn_like(b)
    x = engine.scan(a, b)
    grad_a, grad_b = torch.autograd.grad(x, (a, b), g)
    following = torch.nn.functional.pad(a.detach()[:, 1:], (0, 1))
    lam = engine.scan(following, g, reverse=True)
    previous = torch.nn.functional.pad(x.detach()[:, :-1], (1, 0))
    torch.testing.assert_close(grad_b, lam)
    torch.testing.assert_close(grad_a, lam * previous)


def test_backward_takes_memory_for_its_results_only(engine: Engine):
    a, b = (x.requires_grad_() for x in operands(8, 65536))
    x = engine.scan(a, b)
    g = torch.ones_like(b)
    torch.autograd.grad(x, (a, b), g, retain_graph=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = torch.autograd.grad(x, (a, b), g)
    peak = torch.cuda.max_memory_allocated() - before
    assert peak - sum(x.nbytes for x in results) < 100 << 20
