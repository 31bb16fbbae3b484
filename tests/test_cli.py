"""``linscan info`` and ``linscan demo``."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import linscan
from linscan.cli import _compare, _demo, _here, _loops, main
from linscan.cli._error import largest_error
from linscan.cli._rollout import load, repeat


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_compare, "SECONDS", 0)


def test_info_names_every_backend_and_version(capsys: pytest.CaptureFixture[str]):
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert np.__version__ in text
    for name in linscan.backends():
        assert name in text


def test_info_says_why_a_backend_cannot_run(monkeypatch, capsys):
    monkeypatch.setattr(linscan, "backends", lambda: {"slow": None, "gpu": "no [device]: buy one"})
    assert main(["info"]) == 0
    assert "no [device]: buy one" in capsys.readouterr().out


def test_a_package_is_found_whatever_its_distribution_is_called(monkeypatch):
    monkeypatch.setattr(_here, "_distributions", lambda: {"cupy": ["cupy-cuda00x", "numpy"]})
    assert _here.installed("cupy") == np.__version__
    assert _here.installed("linscan") == linscan.__version__
    assert _here.installed("no-such-package") is None


def test_errors_are_in_proportion_and_absolute_where_the_truth_is_zero():
    exact = np.array([[4.0, 0.0], [2.0, 0.0]])
    off = np.array([[0.0, 0.0], [1.0, 0.125]])
    assert largest_error(exact + off, exact, axis=0) == 0.25
    assert largest_error(exact + off, exact, axis=1) == 0.5
    assert largest_error(off, 0 * exact, axis=0) == 1
    assert np.isnan(largest_error(np.full((2, 2), np.nan), exact, axis=0))


def test_demo_verifies_every_backend(capsys):
    assert _demo.run(times=2, columns=1) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "512 steps of 32 environments" in text
    assert "84 terminations, 109 truncations" in text
    verified = text.partition("Verified: gae, discounted_returns, td_lambda by ")[2]
    for name, reason in linscan.backends().items():
        assert reason or name in verified.partition(" agree ")[0]


@pytest.mark.parametrize("fault", [1e-4, np.nan])
def test_demo_fails_when_a_result_is_wrong(monkeypatch, capsys, fault):
    right = linscan.td_lambda

    def td_lambda(*arguments, **keywords):
        x = right(*arguments, **keywords)
        x[100, 3] += fault * abs(x[100, 3])
        return x

    monkeypatch.setattr(linscan, "td_lambda", td_lambda)
    assert _demo.run(times=1, columns=1) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "Wrong: td_lambda by numpy on NumPy arrays" in text
    assert "Wrong: gae" not in text
    assert "Verified" not in text


@pytest.mark.parametrize("estimator", _compare.ESTIMATORS)
def test_the_loops_that_speed_is_measured_against_are_right(estimator):
    rollout = load()
    exact = _compare.exact(estimator, rollout)
    doubled = rollout._replace(
        **{name: x.astype(float) for name, x in rollout._asdict().items() if x.dtype != bool}
    )
    found = _compare.outputs(_compare.call(getattr(_loops, estimator), doubled))
    for x, y in zip(found, exact, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_a_repeated_rollout_has_the_returns_of_the_recorded_one():
    rollout = load()
    (once,) = _compare.outputs(_compare.exact("td_lambda", rollout))
    (thrice,) = _compare.outputs(_compare.exact("td_lambda", repeat(rollout, 3, 2)))
    np.testing.assert_allclose(thrice, np.tile(once, (3, 2)), rtol=1e-12)


def test_python_m_linscan():
    command = [sys.executable, "-m", "linscan", "--version"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert result.stdout.strip() == f"linscan {linscan.__version__}"


def test_a_command_is_required(capsys):
    with pytest.raises(SystemExit) as exit:
        main([])
    assert exit.value.code == 2
    assert "command" in capsys.readouterr().err


def test_without_rich_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("linscan.cli.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        main(["info"])
    assert "pip install 'linscan[cli]'" in capsys.readouterr().err
