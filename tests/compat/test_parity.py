"""Every function of linscan.compat gives what its framework's conventions say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import parity  # noqa: E402


class OddDraw(parity.Draw):
    """Steps lie the wrong way round in memory, with NaN between them, and want gradients."""

    def torch(self, x: parity.Array) -> Any:
        tensor = super().torch(x)
        if tensor.ndim:
            order = *reversed(range(tensor.ndim)), tensor.ndim
            filler = torch.full_like(tensor, torch.nan if tensor.is_floating_point() else 1)
            tensor = torch.stack([tensor, filler], -1).permute(order).contiguous().permute(order)
            tensor = tensor[..., 0]
        return tensor.requires_grad_(tensor.is_floating_point())

    def numpy(self, x: parity.Array) -> Any:
        array = np.flip(np.flip(super().numpy(x)).copy())
        array.flags.writeable = False
        return array


@pytest.mark.parametrize("case", parity.CASES, ids=lambda c: f"{c.framework}-{c.function}")
def test_parity(case: parity.Case):
    for dtype in case.dtypes:
        for seed in parity.SEEDS:
            bound = case.factor * parity.EPSILON[dtype]
            if dtype == "bfloat16":
                bound = 1.1 * parity.EPSILON[dtype]  # rounded once, at the end
            for difference in parity.differences(case, dtype, seed):
                assert difference <= bound, (dtype, seed)


@pytest.mark.parametrize("case", parity.CASES, ids=lambda c: f"{c.framework}-{c.function}")
def test_parity_of_odd_arrays(case: parity.Case):
    """Any strides, read-only, requiring gradients; and one step of one row."""
    dtype = case.dtypes[0]
    for seed in (0, 1):
        for difference in parity.differences(case, dtype, seed, OddDraw):
            assert difference <= case.factor * parity.EPSILON[dtype], seed
    with torch.inference_mode():
        assert list(parity.differences(case, dtype, 2))


def test_every_case_is_in_the_docs():
    page = parity.PAGE.read_text()
    assert [c for c in parity.CASES if f"| {c.framework} | `{c.function}` |" not in page] == []
