"""Memory-aware assignment: transfers leave rows in which the DMA is the slower engine (layer_group.md 8.4).

A row's slack is what its ops take longer than its transfers. While a row has less than none, the transfer and the row
with slack that gain the most change; it goes there row by row, and on the way another transfer may take over, or it
stays where nothing is gained by going on. Nobody asks whether there is room: what does not fit then is cut finer.
"""

from collections.abc import Callable, Sequence
from functools import partial

from xdsl.ir import SSAValue

from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.local_memory import tensor_bytes
from tpusim.schedule import GroupSchedule, Row, Scheduled, Transferred

Cycles = Callable[[Scheduled], int]
"""Cycles of an op or a transfer at the first step of the loop."""
Size = Callable[[SSAValue], int]
"""Bytes per lane of a tensor."""


def arranged(plan: GroupSchedule, model: CostModel) -> tuple[Row, ...]:
    """The rows of a group of a search, which has no addresses yet."""
    size = partial(_tensor_bytes, plan, model)
    return balanced(plan.rows, cycles_of(plan, model), size)


def _tensor_bytes(plan: GroupSchedule, model: CostModel, value: SSAValue) -> int:
    return tensor_bytes(value, plan.slices[value], plan.graph, model.chip)


def cycles_of(plan: GroupSchedule, model: CostModel) -> Cycles:
    """What each item of the group takes at the first step, asked once; what looks up a table counts as no time."""
    costs: dict[Scheduled, int] = {}

    def cycles(item: Scheduled) -> int:
        if item not in costs:
            counts = isinstance(item, Transferred) or item.counts_for_moves()
            ns = model.item_ns(item, plan, 0, one_bank=True) if counts else 0.0
            costs[item] = round(ns * model.chip.tiu_mhz / 1000)
        return costs[item]

    return cycles


def balanced(rows: Sequence[Row], cycles: Cycles, size: Size) -> tuple[Row, ...]:
    """The rows with their transfers where the assignment puts them; every transfer counts in every iteration."""
    table = _Table(rows, cycles, size)
    at = 0
    while at < len(rows):
        found = table.best(at) if table.slack[at] < 0 else None
        if found is None:
            at += 1
        else:
            table.bubble(*found, at)
    return tuple(Row(row.layers, tuple(moved)) for row, moved in zip(rows, table.transfers, strict=True))


class _Table:
    """The transfers of every row while they move."""

    def __init__(self, rows: Sequence[Row], cycles: Cycles, size: Size) -> None:
        self._rows, self._cycles, self._size = rows, cycles, size
        self.transfers = [list(row.transfers) for row in rows]
        self.slack = [sum(map(cycles, row.layers)) - sum(map(cycles, row.transfers)) for row in rows]
        self._read: dict[SSAValue, list[int]] = {}
        self._made: dict[SSAValue, int] = {}
        for at, row in enumerate(rows):
            for op in row.layers:
                self._made.update(dict.fromkeys(op.results, at))
                for value in dict.fromkeys(op.operands):
                    self._read.setdefault(value, []).append(at)

    def best(self, at: int) -> tuple[Transferred, int] | None:
        """The transfer of a row and the row with slack that gain the most; of equals the least bytes times rows."""
        found, most, least = None, 0, 0
        for transfer in self.transfers[at]:
            for to in self._reach(transfer, at):
                if self.slack[to] <= 0:
                    continue
                gain = self._gain(transfer, at, to)
                area = self._size(transfer.value) * (abs(to - at) + 1)
                if gain > most or (found is not None and gain == most and area < least):
                    found, most, least = (transfer, to), gain, area
        return found

    def bubble(self, transfer: Transferred, to: int, at: int) -> None:
        """Move a transfer of row `at` towards row `to`."""
        moving: Transferred | None = transfer
        while moving is not None:
            there = at + (1 if to > at else -1)
            self._shift(moving, at, there)
            at = there
            if at == to:
                return
            if moving.kind == "load" or not self._rows[at].touches(moving.value):
                moving = self._heir(moving, at, to)

    def _heir(self, before: Transferred, at: int, to: int) -> Transferred | None:
        """Which transfer of row `at` goes on; None if that gains nothing."""
        found, most, least = None, 0, self._size(before.value)
        for transfer in self.transfers[at]:
            if transfer.kind != before.kind or not self._may_end(transfer, at, to):
                continue
            gain, size = self._gain(transfer, at, to), self._size(transfer.value)
            if gain > most or (gain == most and size < least):
                found, most, least = transfer, gain, size
        return found

    def _shift(self, transfer: Transferred, at: int, to: int) -> None:
        cycles = self._cycles(transfer)
        self.transfers[at].remove(transfer)
        self.transfers[to].append(transfer)
        self.slack[at] += cycles
        self.slack[to] -= cycles

    def _gain(self, transfer: Transferred, at: int, to: int) -> int:
        """Cycles that the two rows lack less."""
        cycles, here = self._cycles(transfer), self.slack[at]
        return min(here + cycles, 0) - min(here, 0) + min(self.slack[to] - cycles, 0)

    def _reach(self, transfer: Transferred, at: int) -> list[int]:
        """Rows that a transfer of row `at` may move to, the nearest first."""
        end = self._end(transfer, at)
        if transfer.kind == "load":
            return [*range(at - 1, end - 1, -1)]
        return [to for to in range(at + 1, end + 1) if not self._rows[to].touches(transfer.value)]

    def _may_end(self, transfer: Transferred, at: int, to: int) -> bool:
        end = self._end(transfer, at)
        return end <= to if transfer.kind == "load" else end >= to and not self._rows[to].touches(transfer.value)

    def _end(self, transfer: Transferred, at: int) -> int:
        """The last row in the direction of the transfer: behind the op that reads it, before the one that makes it."""
        if transfer.kind == "load":
            return max((row + 1 for row in self._read.get(transfer.value, ()) if row <= at), default=0)
        made = self._made.get(transfer.value, -1)
        return made - 1 if made >= at else len(self._rows) - 1
