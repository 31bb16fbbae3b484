"""``linscan.profile`` counts the calls it should, once each, and leaves no trace behind."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import linscan
from linscan import _profile, discounted_returns, gae, scan

X = np.ones((2, 5))


def counted(report: Any) -> dict[str, int]:
    return {name: calls.count for name, calls in report.functions.items()}


def test_calls_are_counted_by_function_however_they_were_imported():
    with linscan.profile() as report:
        scan(0.5, X)
        linscan.scan(0.5, X, return_final=True)
        gae(X, X, gamma=1.0, lam=1.0)
        linscan.td_lambda(X, X, gamma=1.0, lam=1.0)
        discounted_returns(X, gamma=1.0)
    assert counted(report) == {"scan": 2, "gae": 1, "td_lambda": 1, "discounted_returns": 1}
    assert report.calls == 5
    assert 0 < report.seconds_inside < report.seconds
    assert report.share == report.seconds_inside / report.seconds


def test_a_profiled_call_is_the_same_call():
    b, reset = np.arange(6.0).reshape(2, 3), np.array([[True], [False]])
    options: dict[str, Any] = {
        "initial": np.ones((1, 3)),
        "axis": 0,
        "reverse": True,
        "cu_seqlens": [0, 2],
        "backend": "numpy",
    }
    expected = scan(0.5, b, reset=reset, return_final=True, **options)
    with linscan.profile():
        found = scan(0.5, b, reset=reset, return_final=True, **options)
        out = np.empty_like(b)
        assert scan(0.5, b, out=out) is out
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)
    with linscan.profile():
        advantages, returns = gae(X, X, gamma=1.0, lam=0.0)
    np.testing.assert_array_equal(advantages, [[1, 1, 1, 1, 0]] * 2)
    np.testing.assert_array_equal(returns, advantages + X)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_what_an_estimator_calls_itself_is_not_counted_again(backend: str):
    x: Any = X
    if backend == "torch":
        x = pytest.importorskip("torch").from_numpy(X)
    with linscan.profile() as report:
        gae(x, x, gamma=1.0, lam=1.0, mask=x > 0, lam_returns=0.5, backend=backend)
    assert counted(report) == {"gae": 1}


def test_blocks_nest():
    with linscan.profile() as outer:
        scan(0.5, X)
        with linscan.profile() as inner:
            scan(0.5, X)
            gae(X, X, gamma=1.0, lam=1.0)
        scan(0.5, X)
    assert counted(inner) == {"scan": 1, "gae": 1}
    assert counted(outer) == {"scan": 3, "gae": 1}
    assert inner.seconds < outer.seconds


def test_only_the_thread_that_entered_the_block_counts():
    with linscan.profile() as report:
        thread = threading.Thread(target=scan, args=(0.5, X))
        thread.start()
        thread.join()
    assert report.calls == 0


def test_nothing_stays_active_after_an_error():
    reports: list[Any] = []

    def fail() -> None:
        with linscan.profile() as report:
            reports.append(report)
            scan(0.5, X)
            scan(0.5, X, backend="nobody")

    with pytest.raises(ValueError, match="unknown backend"):
        fail()
    (report,) = reports
    assert counted(report) == {"scan": 1}
    assert report.seconds > 0
    assert not _profile.active
    with linscan.profile() as report:
        scan(0.5, X)
    assert report.calls == 1


def test_without_a_profile_no_call_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_profile, "timed", None)
    monkeypatch.setattr(_profile, "counts", None)
    scan(0.5, X)
    gae(X, X, gamma=1.0, lam=1.0)


@pytest.mark.parametrize("sync", [False, True])
def test_devices_are_waited_for_only_when_asked(monkeypatch: pytest.MonkeyPatch, sync: bool):
    torch: Any = pytest.importorskip("torch")
    waits: list[None] = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: waits.append(None))
    with linscan.profile(sync=sync):
        scan(0.5, X)
        gae(X, X, gamma=1.0, lam=1.0)
    assert len(waits) == (6 if sync else 0)


def test_the_report_reads_well():
    report = _profile.Profile(
        2.5, {"scan": _profile.Calls(1, 0.00125), "gae": _profile.Calls(20, 0.25)}
    )
    assert str(report).splitlines() == [
        "linscan: 251 ms of 2.50 s (10.05%), 21 calls",
        "  gae      250 ms   10.00%  20 calls",
        "  scan    1.25 ms    0.05%  1 call",
    ]
    assert str(_profile.Profile(2e-6)) == "linscan: 0.00 µs of 2.00 µs (0.00%), 0 calls"


def test_a_compiled_call_goes_unseen_and_is_right():
    torch: Any = pytest.importorskip("torch")

    def function(b: Any) -> Any:
        return linscan.scan(0.5, b)

    compiled = torch.compile(function, fullgraph=True, backend="eager")
    b = torch.ones(3)
    with linscan.profile() as report:
        first = compiled(b)
    assert report.calls == 0
    for x in (first, compiled(b)):
        assert x.tolist() == [1.0, 1.5, 1.75]
