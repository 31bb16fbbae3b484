"""The names that examples in docstrings use without importing them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linscan


@pytest.fixture(scope="session", autouse=True)
def _names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(linscan=linscan, np=np)
