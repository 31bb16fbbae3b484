"""What gradients cost, and how a backend brings a backward pass of its own."""

from __future__ import annotations

from typing import Any

import pytest

import linscan

torch: Any = pytest.importorskip("torch")

from linscan_torch import _autograd  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # by torch itself
ENGINES = ["numpy", "numba", "torch"]


def ones(*shape: int, dtype: Any = None) -> Any:
    return torch.ones(*shape, dtype=dtype or torch.float64).requires_grad_()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of the numpy engine, in order."""
    linscan.scan(0.5, ones(3), backend="numpy")
    engine = _autograd.ENGINES["numpy"]
    log: list[str] = []

    def scan(*args: Any) -> Any:
        log.append("scan")
        return engine.scan(*args)

    def backward(problem: Any, a: Any, x: Any, initial: Any, g: Any, reset: Any) -> Any:
        log.append("backward")
        assert not any(v is not None and v.requires_grad for v in (a, x, initial, g, reset))
        assert not torch.is_grad_enabled()
        lam, grad_a = torch.zeros_like(x), torch.zeros_like(x)
        state, shape = torch.zeros_like(x[:, 0]), a.shape
        a = a.expand_as(x)
        order = list(range(problem.time))
        for t in order if problem.reverse else order[::-1]:
            state = lam[:, t] = g[:, t] + state
            s = t + 1 if problem.reverse else t - 1
            before = x[:, s] if 0 <= s < problem.time else 0 if initial is None else initial[:, 0]
            grad_a[:, t] = state * before
            state = a[:, t] * state
        return lam, grad_a.sum_to_size(shape)

    monkeypatch.setitem(_autograd.ENGINES, "numpy", engine._replace(scan=scan, backward=backward))
    return log


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(2, 1), (5,), (2, 5)])
def test_a_backward_pass_of_the_backend(calls: list[str], shape: tuple[int, ...], reverse: bool):
    a, b, initial = torch.rand(shape).double().requires_grad_(), ones(2, 5), ones(2)

    def scan(a: Any, b: Any, initial: Any) -> Any:
        return linscan.scan(a, b, initial, reverse=reverse, backend="numpy")

    torch.autograd.grad(scan(a, b, initial).sum(), (a, b, initial))
    assert calls == ["scan", "backward"]
    assert torch.autograd.gradcheck(scan, (a, b, initial))
    assert torch.autograd.gradgradcheck(scan, (a, b, initial))


def test_a_backward_pass_may_decline(calls: list[str], monkeypatch: pytest.MonkeyPatch):
    engine = _autograd.ENGINES["numpy"]

    def decline(*args: Any) -> None:
        calls.append("declined")

    monkeypatch.setitem(_autograd.ENGINES, "numpy", engine._replace(backward=decline))
    a = ones(3)
    linscan.scan(a, ones(3), backend="numpy").sum().backward()
    assert calls == ["scan", "declined", "scan"]
    assert a.grad.tolist() == [0, 2, 2]


def test_multipliers_without_gradients_cost_nothing(calls: list[str]):
    """Neither their gradient nor, for it, the result is kept."""
    kept: list[Any] = []

    def pack(x: Any) -> Any:
        kept.append(x)
        return x

    a, b = torch.full((2, 5), 0.5, dtype=torch.float64), ones(2, 5)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        x = linscan.scan(a, b, backend="numpy")
    x.backward(torch.ones(2, 5, dtype=torch.float64))
    assert calls == ["scan", "scan"]
    assert [v.data_ptr() for v in kept] == [a.data_ptr()]


def test_the_multipliers_and_the_result_are_all_that_is_kept():
    kept: list[Any] = []

    def pack(x: Any) -> Any:
        kept.append(x)
        return x

    a, b = ones(2, 5), ones(2, 5)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        x = linscan.scan(a, b)
    assert {v.data_ptr() for v in kept} == {a.data_ptr(), x.data_ptr()}


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.11 says so always
@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("kind", ["row", "full"])
def test_memory_of_a_backward_pass(backend: str, kind: str):
    """Less than 100 MB beyond operands and results, at 8 rows of 65536 steps.

    Counted by torch's profiler, which sees all that torch allocates, and by tracemalloc, which sees
    the most that NumPy holds; compiled code allocates nothing.
    """
    import tracemalloc

    if linscan.backends()[backend] is not None:
        pytest.skip(str(linscan.backends()[backend]))
    shape = (8, 65536)
    a = torch.rand(shape if kind == "full" else (8, 1)).requires_grad_()
    b = torch.randn(shape).requires_grad_()

    def run() -> None:
        linscan.scan(a, b, backend=backend).sum().backward()

    run()
    a.grad = b.grad = None
    tracemalloc.start()
    with torch.profiler.profile(profile_memory=True) as profile:
        run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    allocated = sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())
    assert peak + allocated >= 3 * b.numel() * b.itemsize  # x and two gradients were seen
    assert peak + allocated < 100e6


def test_a_number_of_rank_0_is_not_rounded_to_16_bits():
    b = torch.ones(300, dtype=torch.bfloat16)
    a = torch.tensor(0.999)
    plain = linscan.scan(a, b)
    followed = linscan.scan(a.requires_grad_(), b)
    assert torch.equal(plain, followed.detach())
    followed.sum().backward()
    n = torch.arange(300).double()
    x = (1 - 0.999 ** (n + 1)) / 0.001
    lam = x.flip(0)
    exact = (lam[1:] * x[:-1]).sum()
    assert abs(a.grad - exact) < 0.01 * exact


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: Any):
    a, b = ones(2, 5, dtype=torch.float32), ones(2, 5, dtype=torch.float32)
    with torch.autocast("cpu", dtype):
        x = linscan.scan(a, b)
        mixed = linscan.scan(a, (b @ b.T)[:, :1])
    assert x.dtype == mixed.dtype == torch.float32
    (x.sum() + mixed.sum()).backward()
    assert a.grad.dtype == torch.float32


def test_deterministic_algorithms():
    a, b, initial = ones(6), ones(2, 6), ones(3, 2)
    torch.use_deterministic_algorithms(True)
    try:
        offsets = torch.tensor([0, 2, 2, 6])
        linscan.scan(a, b, initial, cu_seqlens=offsets).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert initial.grad.tolist() == [[2, 2], [0, 0], [4, 4]]


def test_the_third_derivative():
    a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    x = linscan.scan(a, torch.tensor([1.0, 0, 0, 0], dtype=torch.float64))[-1]
    for expected in (3 * 0.5**2, 6 * 0.5, 6):
        (x,) = torch.autograd.grad(x, a, create_graph=True)
        assert x == expected


def test_from_one_call_to_the_next():
    """``final`` given on as ``initial`` carries gradients back."""
    a, b = ones(6), ones(6)
    whole = torch.autograd.grad(linscan.scan(a, b).sum(), (a, b))
    first, state = linscan.scan(a[:2], b[:2], return_final=True)
    x = torch.cat([first, linscan.scan(a[2:], b[2:], state)])
    for got, expected in zip(torch.autograd.grad(x.sum(), (a, b)), whole, strict=True):
        torch.testing.assert_close(got, expected)


def test_a_final_state_of_no_steps():
    initial = ones(2)
    x, final = linscan.scan(ones(2, 0), ones(2, 0), initial, return_final=True)
    (3 * final.sum() + x.sum()).backward()
    assert initial.grad.tolist() == [3, 3]


def test_a_backend_without_gradients(monkeypatch: pytest.MonkeyPatch):
    from linscan import _tracked
    from linscan.rl import _plan
    from linscan_numba import NumbaBackend
    from linscan_numpy import NumpyBackend

    for kind in (NumbaBackend, NumpyBackend):
        monkeypatch.delattr(kind, "differentiable")
    _tracked._engine.cache_clear()
    _tracked._plans.clear()
    monkeypatch.setattr(_plan, "_plans", {})
    try:
        with pytest.raises(linscan.BackendUnsupported, match=r"no gradients.*these can: torch"):
            linscan.scan(0.5, ones(3), backend="numpy")
        assert linscan.scan(0.5, ones(3)).requires_grad
        found = linscan.explain(0.5, ones(3))
        assert found.backend == "torch"
        assert "no gradients" in found.passed_over["numpy"]
        found = linscan.explain(linscan.discounted_returns, ones(3), gamma=0.5, differentiable=True)
        assert found.backend == "torch"
        with pytest.raises(ValueError, match="out= is written without a trace"):
            linscan.explain(0.5, ones(3), out=torch.empty_like(ones(3)))
    finally:
        _tracked._engine.cache_clear()
        _tracked._plans.clear()


def test_numpy_has_no_gradients():
    with pytest.raises(TypeError, match="needs torch tensors"):
        linscan.discounted_returns([1.0, 2.0], gamma=0.5, differentiable=True)


def polynomial(a: Any) -> Any:
    """1 + a + a²: the third state."""
    return linscan.scan(a, torch.ones(3, dtype=torch.float64))[2]


def test_second_derivatives_in_mixed_modes():
    from torch.func import grad, jvp

    a, one = torch.tensor(0.5, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)

    def forward(f: Any) -> Any:
        return lambda x: jvp(f, (x,), (one,))[1]

    assert forward(grad(polynomial))(a) == 2
    assert grad(forward(polynomial))(a) == 2
    with pytest.raises(NotImplementedError, match="forward mode within forward mode"):
        forward(forward(polynomial))(a)


def test_vmap_over_packed_sequences_and_over_no_steps():
    x = torch.rand(4, 5, dtype=torch.float64)
    mapped = torch.func.vmap(lambda x: linscan.scan(0.9, x, cu_seqlens=[0, 2, 5]))(x)
    torch.testing.assert_close(mapped, linscan.scan(0.9, x, cu_seqlens=[0, 2, 5]))
    nothing = torch.func.vmap(lambda x: linscan.scan(0.5, x))(torch.rand(4, 2, 0))
    assert nothing.shape == (4, 2, 0)
