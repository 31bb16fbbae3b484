"""Every function of linscan.compat gives what its framework's conventions say."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import parity


@pytest.mark.parametrize("case", parity.CASES, ids=lambda c: f"{c.framework}-{c.function}")
def test_parity(case: parity.Case):
    for dtype in case.dtypes:
        for seed in parity.SEEDS:
            bound = case.factor * parity.EPSILON[dtype]
            if dtype == "bfloat16":
                bound = 1.1 * parity.EPSILON[dtype]  # rounded once, at the end
            for difference in parity.differences(case, dtype, seed):
                assert difference <= bound, (dtype, seed)


def test_every_case_is_in_the_docs():
    page = parity.PAGE.read_text()
    assert [c for c in parity.CASES if f"| {c.framework} | `{c.function}` |" not in page] == []
