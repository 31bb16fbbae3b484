"""From entry points to a backend: what is found, what is chosen, and what is said otherwise."""

from __future__ import annotations

import contextvars
import importlib.metadata
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import linscan
from linscan import _dispatch, _scan
from linscan._problem import EstimatorProblem, ScanProblem
from linscan._protocol import Kernel
from linscan.rl import _plan

ONES = np.ones(3)


@dataclass
class Fake:
    """A backend for NumPy arrays whose every result is its number."""

    name: str
    rank: Any = 1
    number: float = 0.0
    problem: str | None = None
    """Why it cannot run."""
    declines: str | None = None
    """Why it cannot do what it is asked."""
    library: type = np.ndarray
    fused: dict[str, Any] = field(default_factory=dict)

    def why_not(self) -> str | None:
        return self.problem

    def owns(self, x: Any) -> bool:
        return isinstance(x, self.library)

    def supports(self, problem: ScanProblem) -> str | None:
        return self.declines

    def explain(self, problem: ScanProblem | EstimatorProblem) -> Kernel:
        return Kernel(f"the kernel of {self.name}", 8.0, problem.chunk_size)

    def scan(
        self, problem: ScanProblem, a: Any, b: Any, initial: Any, reset: Any, out: Any
    ) -> tuple[Any, Any]:
        shape = problem.outer, problem.time, problem.inner
        return np.full(shape, self.number, problem.dtype), None


class Broken(Fake):
    """Fails when it is asked whether it can run."""

    def why_not(self) -> str | None:
        raise RuntimeError("driver too old")


def point(backend: Any, name: str = "", dist: str = "some-package") -> Any:
    """An entry point that loads to that, or raises it."""

    def load() -> Any:
        if isinstance(backend, BaseException):
            raise backend
        return backend

    name = name or backend.name
    return SimpleNamespace(
        name=name, value=f"{name}_module:BACKEND", dist=SimpleNamespace(name=dist), load=load
    )


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make these the only entry points that are installed."""

    def forget() -> None:
        _dispatch.registry.cache_clear()
        _scan._plans.clear()
        _plan._plans.clear()

    def install(*found: Any) -> None:
        points = [x if isinstance(x, SimpleNamespace) else point(x) for x in found]

        def entry_points(*, group: str) -> list[Any]:
            assert group == "linscan.backends"
            return points

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
        forget()

    yield install
    forget()


def number(**options: Any) -> float:
    """Whose result it is."""
    return float(linscan.scan(0.5, ONES, **options)[0])


# ------------------------------------------------------------------------------------ what is found


def test_backends_are_in_the_order_of_their_rank(install: Install):
    install(Fake("c", rank=3), Fake("a", rank=20), Fake("b", rank=1))
    assert list(linscan.backends()) == ["b", "c", "a"]


def test_equal_ranks_are_in_the_order_of_their_names(install: Install):
    install(Fake("b", number=2), Fake("a", number=1))
    assert list(linscan.backends()) == ["a", "b"]
    assert number() == 1


def test_why_not_says_why(install: Install):
    install(Fake("good"), Fake("bad", problem="no GPU: buy one"))
    assert linscan.backends() == {"good": None, "bad": "no GPU: buy one"}


def test_two_packages_with_one_name_are_both_refused(install: Install):
    install(point(Fake("twin"), dist="one"), point(Fake("twin"), dist="two"), Fake("good"))
    reason = linscan.backends()["twin"]
    assert reason is not None
    assert "two packages install this name" in reason
    assert "(one)" in reason
    assert "(two)" in reason
    assert "uninstall one of them" in reason
    with pytest.raises(linscan.BackendUnavailable, match=r"'twin' cannot run here: two packages"):
        number(backend="twin")
    assert linscan.explain(0.5, ONES).backend == "good"


@pytest.mark.parametrize("error", [ImportError("no libfoo.so"), RuntimeError("boom"), OSError()])
def test_a_package_that_fails_to_import_breaks_only_its_own_name(install: Install, error: Any):
    install(point(error, "broken"), Fake("good", number=7))
    reason = linscan.backends()["broken"]
    assert reason == f"its package fails to import: {type(error).__name__}: {error}"
    assert number() == 7
    with pytest.raises(linscan.BackendUnavailable, match=r"'broken' cannot run here: its package"):
        number(backend="broken")


@pytest.mark.parametrize("thing", [None, 3, "linscan_numpy", np, Fake])
def test_what_is_not_a_backend(install: Install, thing: Any):
    install(point(thing, "thing"), Fake("good", number=7))
    expected = "thing_module:BACKEND is not a linscan backend: see linscan.Backend"
    assert str(linscan.backends()["thing"]).startswith(expected)
    assert number() == 7


def test_a_backend_must_bear_the_name_it_is_installed_under(install: Install):
    install(point(Fake("inner"), "outer"), Fake("good"))
    assert linscan.backends()["outer"] == "it is installed as 'outer' but calls itself 'inner'"
    assert "inner" not in linscan.backends()


@pytest.mark.parametrize("rank", ["first", None, 0.5])
def test_a_rank_that_cannot_be_sorted_breaks_only_its_own_name(install: Install, rank: Any):
    install(Fake("odd", rank=rank), Fake("good", number=7))
    assert linscan.backends() == {"good": None, "odd": f"its rank is {rank!r}, not an integer"}
    assert number() == 7


def test_a_backend_that_cannot_say_why_not_breaks_only_its_own_name(install: Install):
    install(Broken("broken", rank=0), Fake("good", number=7))
    reason = "its why_not() fails: RuntimeError: driver too old"
    assert linscan.backends() == {"broken": reason, "good": None}
    assert number() == 7
    assert linscan.explain(0.5, ONES).passed_over == {"broken": reason}


def test_nothing_installed(install: Install):
    install()
    assert linscan.backends() == {}
    with pytest.raises(linscan.BackendUnavailable, match=r"no backend is installed: .*pip install"):
        number()
    with pytest.raises(ValueError, match=r"unknown backend 'numpy'; installed: none"):
        number(backend="numpy")


# ----------------------------------------------------------------------------------- what is chosen


def test_auto_takes_the_first_that_can_and_explain_says_why(install: Install):
    install(
        Fake("foreign", rank=1, library=dict),
        Fake("absent", rank=2, problem="not here"),
        Fake("choosy", rank=3, declines="not this"),
        Fake("good", rank=4, number=4),
        Fake("spare", rank=5, number=5),
    )
    assert number() == 4
    found = linscan.explain(0.5, ONES, chunk_size=16)
    assert found == linscan.Explanation(
        backend="good",
        kernel="the kernel of good",
        bytes_per_element=8.0,
        chunk_size=16,
        passed_over={"absent": "not here", "choosy": "not this"},
    )
    assert str(found).splitlines() == [
        "good: the kernel of good",
        "moves 8 bytes per element, in chunks of 16",
        "passed over absent: not here",
        "passed over choosy: not this",
    ]


def test_a_named_backend_is_never_replaced(install: Install):
    install(
        Fake("absent", problem="not here: install foo"),
        Fake("choosy", declines="not this"),
        Fake("foreign", library=dict),
        Fake("good", rank=9),
        Fake("spare", rank=10),
        Fake("too", declines="nor this"),
    )
    with pytest.raises(
        linscan.BackendUnavailable,
        match=r"^backend 'absent' cannot run here: not here: install foo$",
    ):
        number(backend="absent")
    with pytest.raises(
        linscan.BackendUnsupported,
        match=r"^backend 'choosy' cannot do this: not this; these can: good, spare$",
    ):
        number(backend="choosy")
    with pytest.raises(TypeError, match=r"^backend 'foreign' does not take numpy.ndarray$"):
        number(backend="foreign")
    with linscan.use_backend("choosy"), pytest.raises(linscan.BackendUnsupported):
        number()


def test_none_that_can_names_nobody(install: Install):
    install(Fake("choosy", declines="not this"))
    with pytest.raises(linscan.BackendUnsupported, match=r"cannot do this: not this$"):
        number(backend="choosy")
    with pytest.raises(
        TypeError, match=r"no installed backend takes numpy.ndarray\n  choosy: not t"
    ):
        number()


def test_the_refusals_are_what_python_calls_them():
    assert issubclass(linscan.BackendUnavailable, ImportError)
    assert issubclass(linscan.BackendUnsupported, NotImplementedError)


def test_an_unknown_name_lists_what_is_installed(install: Install):
    install(Fake("b", rank=2), Fake("a", rank=3), Fake("broken", problem="not here"))
    message = r"^unknown backend 'numpi'; installed: broken, b, a; or say 'auto'$"
    with pytest.raises(ValueError, match=message):
        number(backend="numpi")
    with pytest.raises(ValueError, match=message):
        linscan.gae(ONES, ONES, gamma=1.0, lam=1.0, backend="numpi")
    with pytest.raises(ValueError, match=message), linscan.use_backend("numpi"):
        pass


def test_explain_of_an_estimator(install: Install):
    def prepare(problem: EstimatorProblem) -> Any:
        return "no holes" if problem.mask else lambda inputs, out: (inputs.rewards,) * 2

    install(Fake("whole", fused={"gae": prepare}))
    found = linscan.explain(linscan.gae, ONES, ONES, gamma=1.0, lam=1.0)
    assert found.kernel == "the kernel of whole"
    holes = linscan.explain(linscan.gae, ONES, ONES, gamma=1.0, lam=1.0, mask=ONES)
    assert holes.kernel == "the kernel of whole, between elementwise passes (no holes)"
    returns = linscan.explain(linscan.discounted_returns, ONES, gamma=1.0)
    assert returns.kernel.endswith("(it has no fused pass)")


def test_explain_computes_nothing(install: Install):
    class Idle(Fake):
        def scan(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("explain called scan")

    install(Idle("idle"))
    x = np.ones((2, 3))
    for call in (
        lambda: linscan.explain(0.5, x),
        lambda: linscan.explain(linscan.scan, 0.5, x, axis=0, return_final=True),
        lambda: linscan.explain(linscan.gae, x, x, gamma=1.0, lam=1.0, lengths=[1, 2]),
        lambda: linscan.explain(linscan.discounted_returns, x, gamma=1.0),
        lambda: linscan.explain(linscan.td_lambda, x, x, gamma=1.0, lam=1.0),
    ):
        assert call().backend == "idle"


@pytest.mark.parametrize("name", [n for n, reason in linscan.backends().items() if reason is None])
def test_explain_of_what_is_really_installed(name: str):
    owned: Any = np.ones((2, 3))
    backend = _dispatch.registry()[name]
    assert not isinstance(backend, str)
    if not backend.owns(owned):
        owned = pytest.importorskip("torch").ones(2, 3)
    for found in (
        linscan.explain(0.5, owned, backend=name),
        linscan.explain(linscan.gae, owned, owned, gamma=1.0, lam=1.0, backend=name),
        linscan.explain(linscan.discounted_returns, owned, gamma=1.0, backend=name),
        linscan.explain(linscan.td_lambda, owned, owned, gamma=1.0, lam=1.0, backend=name),
    ):
        assert found.backend == name
        assert found.bytes_per_element >= 2 * owned.dtype.itemsize
        assert found.passed_over == {}


# ---------------------------------------------------------------------- the default, and for whom


@pytest.fixture
def two(install: Install) -> None:
    install(Fake("one", rank=1, number=1), Fake("two", rank=2, number=2))


@pytest.mark.usefixtures("two")
def test_use_backend_nests():
    assert number() == 1
    with linscan.use_backend("two"):
        assert number() == 2
        assert number(backend="one") == 1
        with linscan.use_backend("one"):
            assert number() == 1
        with linscan.use_backend("auto"):
            assert number() == 1
        assert number() == 2
    assert number() == 1


@pytest.mark.usefixtures("two")
def test_use_backend_is_undone_after_an_error():
    with pytest.raises(KeyError), linscan.use_backend("two"):
        raise KeyError
    assert number() == 1


@pytest.mark.usefixtures("two")
def test_a_refused_name_changes_nothing():
    with linscan.use_backend("two"):
        with pytest.raises(ValueError, match="unknown backend"), linscan.use_backend("three"):
            pass
        assert number() == 2


@pytest.mark.usefixtures("two")
def test_use_backend_holds_for_estimators_and_explain():
    with linscan.use_backend("two"):
        assert linscan.explain(0.5, ONES).backend == "two"
        assert linscan.discounted_returns(ONES, gamma=0.5).tolist() == [2.0] * 3
        assert linscan.explain(linscan.discounted_returns, ONES, gamma=0.5).backend == "two"


@pytest.mark.usefixtures("two")
def test_use_backend_holds_in_its_own_thread():
    seen: list[float] = []
    with linscan.use_backend("two"):
        thread = threading.Thread(target=lambda: seen.append(number(backend="auto")))
        thread.start()
        thread.join()
        seen.append(number())
    assert seen == [1, 2]


@pytest.mark.usefixtures("two")
def test_use_backend_holds_in_its_own_context():
    """As between the tasks of asyncio: what one sets, another does not see."""
    context = contextvars.copy_context()
    entered = linscan.use_backend("two")
    context.run(entered.__enter__)
    assert number() == 1
    assert context.run(number) == 2
    context.run(entered.__exit__, None, None, None)
    assert context.run(number) == 1


def in_a_process(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import linscan, numpy as np\n{code}"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_environment_sets_the_default():
    code = "\n".join(
        (
            "x = np.ones(3)",
            "print(linscan.explain(0.5, x).backend)",
            "print(linscan.explain(linscan.gae, x, x, gamma=1.0, lam=1.0).backend)",
            "with linscan.use_backend('auto'): print(linscan.explain(0.5, x).backend)",
        )
    )
    best = linscan.explain(0.5, ONES).backend
    assert in_a_process(code, LINSCAN_BACKEND="numpy").stdout.split() == ["numpy", "numpy", best]
    assert in_a_process(code, LINSCAN_BACKEND="").stdout.split() == [best] * 3


def test_an_unknown_name_in_the_environment_is_refused_at_the_call():
    done = in_a_process("print(linscan.backends()['numpy'])", LINSCAN_BACKEND="nope")
    assert (done.returncode, done.stdout) == (0, "None\n")
    done = in_a_process("linscan.scan(0.5, np.ones(3))", LINSCAN_BACKEND="nope")
    assert (
        "ValueError: unknown backend 'nope', named by LINSCAN_BACKEND; installed: " in done.stderr
    )


def test_importing_linscan_imports_no_array_library_but_numpy():
    """An import that pulls in torch or numba costs seconds, and may fail for their reasons."""
    code = "\n".join(
        (
            "import sys",
            "linscan.scan(0.5, np.ones(3), backend='numpy')",
            "print([name for name in ('torch', 'numba', 'cupy', 'triton') if name in sys.modules])",
        )
    )
    assert in_a_process(code).stdout == "[]\n"
