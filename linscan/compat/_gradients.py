"""Whether a result is to carry gradients."""

from __future__ import annotations

import sys
from typing import Any


def wants_gradients(*operands: Any) -> bool:
    """Whether plain torch operations on these operands would be tracked."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and torch.is_grad_enabled()
        and any(getattr(x, "requires_grad", False) for x in operands)
    )
