"""Shapes at the limits of a grid and of 32 bits, and storage that is not aligned."""

from __future__ import annotations

from typing import Any

import pytest

from linscan.testing.engines import Engine

torch = pytest.importorskip("torch")

REVERSE = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
HUGE = (1 << 31) + (1 << 17)
"""More elements than 32 bits count."""


def normal(*shape: int, dtype: Any = None, seed: int = 0) -> Any:
    """Standard normal numbers on the GPU."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cuda", dtype=dtype)


def multipliers(*shape: int, dtype: Any = None) -> Any:
    """Numbers between -0.9 and 0.9."""
    return normal(*shape, dtype=dtype, seed=1).sin().mul(0.9)


def loop(a: Any, b: Any, axis: int, reverse: bool) -> Any:
    """The definition, in float64, for all rows at once."""
    steps = b.double().movedim(axis, 0)
    many = torch.as_tensor(a, device=b.device, dtype=torch.float64).expand(b.shape)
    many = many.movedim(axis, 0)
    x = torch.empty_like(steps)
    state = torch.zeros_like(steps[0])
    order = range(len(steps))
    for t in reversed(order) if reverse else order:
        state = many[t] * state + steps[t]
        x[t] = state
    return x.movedim(0, axis)


def assert_close(x: Any, expected: Any) -> None:
    """To the rounding of ``x``'s dtype, beside the largest magnitude."""
    unit = torch.finfo(x.dtype).eps
    worst = (x.double() - expected).abs().max() / expected.abs().max()
    assert worst < (unit if x.dtype.itemsize == 2 else 16 * unit)


@REVERSE
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("rows", [65535, 65536, 1_000_000])
def test_as_many_rows_as_a_grid_has_programs_and_more(
    engine: Engine, rows: int, axis: int, reverse: bool
):
    shape = (rows, 9) if axis == 1 else (9, rows)
    a, b = multipliers(*shape), normal(*shape)
    assert_close(engine.scan(a, b, axis=axis, reverse=reverse), loop(a, b, axis, reverse))


@REVERSE
@pytest.mark.parametrize("time", [31, 1000, 4095, 4096])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_misaligned_storage(engine: Engine, axis: int, dtype: str, time: int, reverse: bool):
    shape = (5, time) if axis == 1 else (time, 5)
    kind = getattr(torch, dtype)

    def shifted(x: Any) -> Any:
        return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)

    a, b = shifted(multipliers(*shape, dtype=kind)), shifted(normal(*shape, dtype=kind))
    out = shifted(torch.zeros_like(b))
    assert b.data_ptr() % 16
    engine.scan(a, b, axis=axis, reverse=reverse, out=out)
    assert_close(out, loop(a, b, axis, reverse))


@REVERSE
@pytest.mark.usefixtures("most_of_the_memory")
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1 << 15, HUGE >> 15), 1), ((HUGE >> 15, 1 << 15), 0), ((1, HUGE), 1), ((HUGE >> 3, 8), 1)],
    ids=["rows", "time first", "one row", "tiny rows"],
)
def test_more_elements_than_32_bits_count(
    engine: Engine, shape: tuple[int, int], axis: int, reverse: bool
):
    if engine.backend == "torch" and (reverse or axis != 1 or shape[0] != 1 << 15):
        pytest.skip("plain torch operations hold several copies: once is enough")
    a, b = multipliers(*shape, dtype=torch.bfloat16), normal(*shape, dtype=torch.bfloat16)
    x = engine.scan(a, b, axis=axis, reverse=reverse)
    for rows, steps in corners(shape, axis):
        # 200 steps before those compared: by then the state no longer knows where it began.
        wide = slice(max(0, steps.start - 200), steps.stop + 200)
        part = (rows, wide) if axis == 1 else (wide, rows)
        expected = loop(a[part], b[part], axis, reverse).narrow(
            axis, steps.start - wide.start, steps.stop - steps.start
        )
        assert_close(x[(rows, steps) if axis == 1 else (steps, rows)], expected)


def corners(shape: tuple[int, int], axis: int) -> list[tuple[slice, slice]]:
    """Rows and steps: the first, the last, and those about element 2**31."""
    rows, time = shape[1 - axis], shape[axis]
    row, step = divmod(1 << 31, time) if axis == 1 else divmod(1 << 31, rows)[::-1]
    places = [(0, 0), (rows, time), (row, step)]
    return [
        (slice(max(0, i - 2), min(rows, i + 2)), slice(max(0, t - 20), min(time, t + 20)))
        for i, t in places
    ]
