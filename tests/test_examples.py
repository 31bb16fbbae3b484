"""The examples of docs/examples/ run in a short form, and find what they are there to show."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="the examples need torch")
pytest.importorskip("rich", reason="the examples need rich")

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
Run = Callable[..., list[float]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs an example as a script; returns the numbers with a decimal point in what it prints."""
    threads = torch.get_num_threads()

    def script(name: str, *arguments: str) -> list[float]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return [float(x) for x in re.findall(r"\d+\.\d+(?:e[+-]\d+)?", capsys.readouterr().out)]

    yield script
    torch.set_num_threads(threads)


def test_ppo_learns_cartpole(run: Run):
    pytest.importorskip("gymnasium", reason="the example needs gymnasium")
    first, last = run("ppo_cartpole.py", "--rollouts", "12")
    assert first < 30  # falls at once
    assert last > 2.5 * first


def test_stable_baselines3_learns_the_same_with_either_buffer(run: Run):
    pytest.importorskip("stable_baselines3", reason="the example needs stable-baselines3")
    (difference,) = run("sb3_drop_in.py", "--rollouts", "3", "--seeds", "0")
    assert difference == 0


def test_packed_conversations_are_the_padded_ones(run: Run):
    differences = run("ragged_conversations.py", "--conversations", "64")
    assert len(differences) == 4
    assert max(differences) < 1e-13


def test_conversations_are_what_the_policy_wrote():
    """GAE of the policy's tokens alone, by a loop, is what the example finds in both forms."""
    example = runpy.run_path(str(EXAMPLES / "ragged_conversations.py"))
    rng = np.random.default_rng(1)
    conversations = [example["converse"](rng) for _ in range(16)]
    assert any(c.last_values for c in conversations)
    assert not all(c.mask.all() for c in conversations)
    expected: list[float] = []
    for mask, _, rewards, values, last in conversations:
        own, following, carry = [], last, 0.0
        for r, v in zip(rewards[mask].flip(0), values[mask].flip(0), strict=True):
            carry = r + following - v + 0.95 * carry
            following = v
            own.append(float(carry))
        expected += reversed(own)
    for batch in [(example["padded"](conversations),), example["packed"](conversations)]:
        got = example["estimate"](*batch)["GAE"]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
