"""Draws the figures of the documentation: ``python docs/figures/draw.py``."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
PEERS = HERE.parent / "benchmarks" / "results" / "cpu_peers.json"
BLUE, ORANGE, GREY = "#3f6fb5", "#d9822b", "#8a8f98"


def schemes() -> Any:
    """Who waits for whom: one step after the other, all for all, chunks side by side."""
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    steps, size = 12, 4
    w = 0.8

    def nodes(ax: Any, y: float, colour: str) -> None:
        ax.scatter(range(steps), [y] * steps, s=70, color=colour, zorder=2)

    def arrow(ax: Any, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
        style = {"arrowstyle": "-|>", "color": colour, "shrinkA": 4, "shrinkB": 5, "lw": 1.2}
        ax.annotate("", end, start, arrowprops=style)

    serial, matrix, chunk = axes
    nodes(serial, 0, GREY)
    nodes(serial, 1, BLUE)
    for t in range(steps):
        arrow(serial, (t, 0), (t, 1), GREY)
        if t:
            arrow(serial, (t - 1, 1), (t, 1), BLUE)
    serial.set_title("serial: T steps in a row")

    lag = np.subtract.outer(range(steps), range(steps))
    weights = np.where(lag >= 0, w ** np.maximum(lag, 0), np.nan)
    matrix.imshow(weights, cmap="Blues", vmin=-0.2, vmax=1)
    matrix.set_title("matrix: x = W b, T² numbers")
    matrix.set_xlabel("b[k]")
    matrix.set_ylabel("x[t]")
    matrix.set_xticks([])
    matrix.set_yticks([])

    nodes(chunk, 0, GREY)
    nodes(chunk, 1, BLUE)
    nodes(chunk, 2, ORANGE)
    for t in range(steps):
        arrow(chunk, (t, 0), (t, 1), GREY)
        arrow(chunk, (t, 1), (t, 2), GREY)
        if t % size:
            arrow(chunk, (t - 1, 1), (t, 1), BLUE)
        elif t:
            arrow(chunk, (t - 1, 2), (t + size - 1, 2), ORANGE)
    for edge in range(size, steps, size):
        chunk.axvline(edge - 0.5, color=GREY, lw=0.8, ls=":")
    chunk.set_title("chunks: C steps, then T/C joins")
    for ax, labels in ((serial, ["b", "x"]), (chunk, ["b", "local s", "x"])):
        ax.set_yticks(range(len(labels)), labels)
        ax.set_xticks([])
        ax.set_xlabel("time →")
        ax.set_ylim(-0.4, len(labels) - 0.5)
        ax.spines[:].set_visible(False)
    return figure


def mask() -> Any:
    """The trace of a multi-turn response steps over what the policy did not write."""
    words = ["think", "call", "tool", "tool", "answer", "end", "pad", "pad"]
    valid = [True, True, False, False, True, True, False, False]
    figure, ax = plt.subplots(figsize=(8, 2.2), layout="constrained")
    for t, (word, ours) in enumerate(zip(words, valid, strict=True)):
        box = {"boxstyle": "round,pad=0.4", "fc": BLUE if ours else "#dfe2e7", "ec": "none"}
        colour = "white" if ours else GREY
        ax.text(t, 0, word, ha="center", va="center", color=colour, bbox=box)
        ax.text(t, -0.55, int(ours), ha="center", va="center", color=GREY)
    there = [t for t, ours in enumerate(valid) if ours]
    for t, following in pairwise(there):
        style = {"arrowstyle": "-|>", "color": ORANGE, "lw": 1.4}
        style |= {"connectionstyle": f"arc3,rad={0.45 if following == t + 1 else 0.3}"}
        ax.annotate("", (t, 0.27), (following, 0.27), arrowprops=style)
        ax.text((t + following) / 2, 0.72, "γλ", ha="center", va="center", color=ORANGE)
    ax.text(5, 0.45, "score", ha="center", color=BLUE)
    ax.text(-0.75, -0.55, "mask", ha="right", va="center", color=GREY)
    ax.set(xlim=(-1.3, len(words) - 0.4), ylim=(-0.8, 1))
    ax.axis("off")
    return figure


def peers() -> Any:
    """Time of GAE by several ways, from the figures in the repository."""
    gae = json.loads(PEERS.read_text())["results"]["GAE"]
    ways = {
        "linscan, NumPy": BLUE,
        "numba loop": ORANGE,
        "SciPy lfilter": "#5b9a68",
        "torch chunks of 128": GREY,
    }
    figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
    for way, colour in ways.items():
        ns = [1e9 * gae[s][way] / np.prod([int(n) for n in s.split("×")]) for s in gae]
        ax.plot(list(gae), ns, "o-", color=colour, label=way)
    ax.set_yscale("log")
    ax.set_ylabel("ns per element")
    ax.set_xlabel("rows × steps")
    ax.tick_params(axis="x", rotation=35)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(frameon=False)
    return figure


def main() -> None:
    """Draw all of them, the same bytes for the same figures."""
    mpl.rcParams |= {"font.size": 10, "svg.hashsalt": "linscan"}
    for draw in (schemes, mask, peers):
        draw().savefig(HERE / f"{draw.__name__}.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
