"""Kernels over CPU memory, given addresses: the arrays of a small call cost more than its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from linscan import _host
from linscan._protocol import Strides

Block = tuple[int, int, int]


class ByAddress(NamedTuple):
    """Work that needs to know no more of a call, beyond its signature, than where arrays begin."""

    run: Callable[..., None]
    """``run(addresses, ...)``: the operands' and the results'."""
    names: tuple[str, ...]
    """What messages call them."""
    address: Callable[[Any], int]
    """What says where one of the call's arrays begins."""
    spans: tuple[tuple[int, int], ...]
    """Where the memory of each begins and ends, counted from its address."""
    fresh: Callable[[], list[Any]]
    """Makes results."""

    def __call__(
        self,
        operands: Sequence[Any],
        out: Sequence[Any] | None,
        check: Callable[[], object] | None,
        *numbers: Any,
        in_place_of: int | None = None,
    ) -> Sequence[Any]:
        """Do it: the results, which are ``out`` if that is given.

        ``check`` raises if ``out`` may not be written, and is asked where that is in doubt.
        ``in_place_of``: the operand whose memory ``out`` is.
        """
        results = self.fresh() if out is None else out
        addresses = list(map(self.address, (*operands, *results)))
        if 0 in addresses:
            name = self.names[addresses.index(0)]
            raise ValueError(f"{name} has no memory: its storage is released, or never was there")
        if check is not None and not (
            self._apart(addresses, len(results), in_place_of)
            and all(map(_host.is_writeable, results))
        ):
            check()
        self.run(addresses, *numbers)
        if out is not None:
            for x in out:
                _host.written(x)
        return results

    def _apart(self, addresses: Sequence[int], written: int, but: int | None) -> bool:
        """Whether the last arrays, which are written, lie where no other array does."""
        bounds: list[tuple[int, int]] = []
        for k, at in enumerate(addresses):
            first, end = self.spans[k]
            first, end = first + at, end + at
            if k >= len(addresses) - written:
                for i, (other_first, other_end) in enumerate(bounds):
                    if first < other_end and other_first < end and i != but:
                        return False
            bounds.append((first, end))
        return True


def by_address(
    bind: Callable[[tuple[Strides, ...]], Callable[..., None]],
    operands: Mapping[str, tuple[Any, Block]],
    out: Mapping[str, Any],
    fresh: Callable[[], list[Any]],
    block: Block,
) -> ByAddress | None:
    """A bound kernel for arrays like these, or None if addresses would not do.

    Operands come with the three dimensions to see them in; ``block``: those of the results.
    """
    if not all(map(_host.has_address, (*(x for x, _ in operands.values()), *out.values()))):
        return None
    results = out or {f"result {k}": x for k, x in enumerate(fresh())}
    views = [_host.view(x).reshape(shape) for x, shape in operands.values()]
    views += [_host.view(x).reshape(block) for x in results.values()]
    model, _ = next(iter(operands.values()))
    return ByAddress(
        bind(tuple(map(_host.strides, views))),
        (*operands, *results),
        _host.address_of(type(model)),
        tuple(map(_host.span, views)),
        fresh,
    )
