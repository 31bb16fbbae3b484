"""The laws of gradients, on the GPU."""
# ruff: noqa: F403

from __future__ import annotations

import pytest

if not pytest.importorskip("torch").cuda.is_available():
    pytest.skip("torch finds no GPU", allow_module_level=True)

from linscan.testing.test_gradients import *
