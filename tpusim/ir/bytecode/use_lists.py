"""Use-list orders, as they are written: which use of a value comes first, if that is not the use that is read last."""

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tpusim.ir.bytecode.varints import flagged, varint


class UseLists:
    """The uses of the values of a module. A reader puts each use before those that it has read."""

    def __init__(self, module: Operation) -> None:
        self._number = {op: number for number, op in enumerate(module.walk())}

    def orders(self, values: Sequence[SSAValue]) -> bytes:
        """Encode the orders of the values whose uses a reader would put into another one; nothing without any."""
        found = [(index, order) for index, value in enumerate(values) if (order := self._order(value))]
        if not found:
            return b""
        parts = [varint(len(found))] if len(values) > 1 else []
        for index, order in found:
            parts += [varint(index)] if len(values) > 1 else []
            parts.append(_encoded(order))
        return b"".join(parts)

    def _order(self, value: SSAValue) -> list[int]:
        """The place of each use, those in ops that are written last first; nothing if the places rise."""
        if value.first_use is None or value.has_one_use():
            return []
        number = self._number
        met = [(number[use.operation], use.index) for use in value.uses]
        order = sorted(range(len(met)), key=met.__getitem__, reverse=True)
        return order if order != list(range(len(met))) else []


def _encoded(order: list[int]) -> bytes:
    """A permutation, or pairs (use, place) where less than half of the uses are elsewhere."""
    moved = [(use, place) for use, place in enumerate(order) if use != place]
    if len(moved) >= len(order) // 2:
        return flagged(len(order), False) + b"".join(map(varint, order))
    return flagged(2 * len(moved), True) + b"".join(varint(use) + varint(place) for use, place in moved)
