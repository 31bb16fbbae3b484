"""Kernels over CPU memory, given addresses: the arrays of a small call cost more than its work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from linscan import _host
from linscan._protocol import Strides


@dataclass(frozen=True, slots=True)
class ByAddress:
    """Work that needs to know no more of a call, beyond its signature, than where arrays begin."""

    run: Callable[..., None]
    """``run(addresses, ...)``: the operands' and the results'."""
    names: tuple[str, ...]
    """What messages call them."""
    address: Callable[[Any], int]
    """What says where one of the call's arrays begins."""
    pairs: tuple[tuple[int, int, int, int], ...]
    """``(result, other, low, high)``: they overlap only if ``low`` < the address of the result less
    that of the other < ``high``."""
    make: Callable[[], list[Any]]
    """Makes results."""

    def fresh(self, operands: Iterable[Any], *numbers: Any) -> list[Any]:
        """Do it: the results."""
        results = self.make()
        addresses = [*map(self.address, operands), *map(self.address, results)]
        _refuse_none(addresses, self.names)
        self.run(addresses, *numbers)
        return results

    def into(
        self,
        out: Sequence[Any],
        operands: Iterable[Any],
        check: Callable[[], object],
        *numbers: Any,
        in_place_of: str | None = None,
    ) -> None:
        """Do it, with the results in ``out``.

        ``check`` raises if ``out`` may not be written, and is asked where that is in doubt.
        ``in_place_of``: the operand whose memory ``out`` is.
        """
        addresses = [*map(self.address, operands), *map(self.address, out)]
        _refuse_none(addresses, self.names)
        if not (self._apart(addresses, in_place_of) and all(map(_host.is_writeable, out))):
            check()
        self.run(addresses, *numbers)
        if self.address is not _host.address:
            for x in out:
                _host.written(x)

    def _apart(self, addresses: list[int], but: str | None) -> bool:
        """Whether results lie where no other array does."""
        for written, other, low, high in self.pairs:
            if low < addresses[written] - addresses[other] < high and self.names[other] != but:
                return False
        return True


def _refuse_none(addresses: list[int], names: tuple[str, ...]) -> None:
    if 0 in addresses:
        raise ValueError(f"{names[addresses.index(0)]} {_host.NO_MEMORY}")


def by_address(
    bind: Callable[[tuple[Strides, ...]], Callable[..., None]],
    operands: Mapping[str, tuple[Any, tuple[int, int, int]]],
    out: Mapping[str, Any],
    shape: tuple[int, ...],
    block: tuple[int, int, int],
    dtype: str,
    results: tuple[str, ...],
) -> ByAddress | None:
    """A bound kernel for arrays like these, or None if addresses would not do.

    Operands come with the three dimensions to see them in; ``shape``, ``block`` and ``dtype``:
    those of the results, which are ``out`` if that is not empty.
    """
    arrays = [*(x for x, _ in operands.values()), *out.values()]
    if not all(map(_host.has_address, arrays)):
        return None
    address = _host.address_of(type(arrays[0]))
    addresses = list(map(address, arrays))
    _refuse_none(addresses, (*operands, *out))
    views = [_host.view(x).reshape(seen_as) for x, seen_as in operands.values()]
    views += [_host.view(x).reshape(block) for x in out.values()]
    if list(map(_host.address, views)) != addresses:
        return None
    strides, spans = list(map(_host.strides, views)), list(map(_host.span, views))
    if not out:
        own, span = _host.contiguous(block, dtype)
        strides += [own] * len(results)
        spans += [span] * len(results)
    first = len(operands)
    pairs = [(k, i) for k in range(first, len(spans)) for i in range(k)]
    return ByAddress(
        bind(tuple(strides)),
        (*operands, *(out or results)),
        address,
        tuple([(k, i, spans[i][0] - spans[k][1], spans[i][1] - spans[k][0]) for k, i in pairs]),
        _host.maker(arrays[0], shape, dtype, len(results)),
    )
