"""Memory-aware assignment: transfers leave rows in which the DMA is the slower engine (layer_group.md 8.4).

A row's slack is the time of its ops minus the time of its transfers. While a row has negative slack, the transfer and
the target row that gain most are chosen. The transfer moves row by row; on the way another transfer may take its
place, or it stops if going on gains nothing. Memory is not checked: a group that no longer fits is cut finer.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from xdsl.ir import SSAValue

from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.local_memory import tensor_bytes
from tpusim.ops.interfaces import Uncounted
from tpusim.schedule import GroupSchedule, Row, Scheduled, Transferred

Cycles = Callable[[Scheduled], int]
"""Cycles of an op or a transfer at the first step of the loop."""
Size = Callable[[SSAValue], int]
"""Bytes per lane of a tensor."""


def arranged(plan: GroupSchedule, model: CostModel) -> tuple[Row, ...]:
    """The rows of a group during a search, before it has addresses."""
    size = partial(_tensor_bytes, plan, model)
    return balanced(plan.rows, cycles_of(plan, model), size)


def _tensor_bytes(plan: GroupSchedule, model: CostModel, value: SSAValue) -> int:
    return tensor_bytes(value, plan.slices[value], plan.graph, model.chip)


def cycles_of(plan: GroupSchedule, model: CostModel) -> Cycles:
    """Cycles of each item at the first step, cached; an op that looks up a table counts 0."""
    costs: dict[Scheduled, int] = {}

    def cycles(item: Scheduled) -> int:
        if item not in costs:
            counts = not isinstance(item, Uncounted)
            ns = model.item_ns(item, plan, 0, one_bank=True) if counts else 0.0
            costs[item] = round(ns * model.chip.tiu_mhz / 1000)
        return costs[item]

    return cycles


def balanced(rows: Sequence[Row], cycles: Cycles, size: Size) -> tuple[Row, ...]:
    """The rows with the transfers assigned to them; every transfer counts in every iteration."""
    table = _Table(rows, cycles, size)
    at = 0
    while at < len(rows):
        found = table.best(at) if table.slack[at] < 0 else None
        if found is None:
            at += 1
        else:
            table.bubble(*found, at)
    return tuple(Row(row.layers, tuple(moved)) for row, moved in zip(rows, table.transfers, strict=True))


class Moving:
    """A transfer and cached facts about it. read, made: rows of the ops that read or make its tensor; -1: none."""

    __slots__ = "cycles", "load", "made", "read", "size", "transfer"

    def __init__(self, transfer: Transferred, cycles: int, size: int, read: Sequence[int], made: int) -> None:
        self.transfer, self.cycles, self.size, self.read, self.made = transfer, cycles, size, read, made
        self.load = transfer.kind == "load"


class Ways:
    """The transfers of rows and where each may move (`moves.reach`), from tables, because the search is frequent."""

    def __init__(self, rows: Sequence[Row], cycles: Cycles, size: Size) -> None:
        self._rows = rows
        read: dict[SSAValue, list[int]] = {}
        made: dict[SSAValue, int] = {}
        for at, row in enumerate(rows):
            for op in row.layers:
                made.update(dict.fromkeys(op.results, at))
                for value in dict.fromkeys(op.operands):
                    read.setdefault(value, []).append(at)
        self.moving = [
            [Moving(t, cycles(t), size(t.value), read.get(t.value, ()), made.get(t.value, -1)) for t in row.transfers]
            for row in rows
        ]

    def reach(self, moving: Moving, at: int) -> Iterable[int]:
        """Rows that a transfer of row `at` may move to, the nearest first."""
        end = self._end(moving, at)
        if moving.load:
            return range(at - 1, end - 1, -1)
        value, rows = moving.transfer.value, self._rows
        return (to for to in range(at + 1, end + 1) if not rows[to].touches(value))

    def may_end(self, moving: Moving, at: int, to: int) -> bool:
        """Whether row `to` is one of these rows."""
        end = self._end(moving, at)
        return end <= to if moving.load else end >= to and not self._rows[to].touches(moving.transfer.value)

    def _end(self, moving: Moving, at: int) -> int:
        """The last row in the transfer's direction: after the op that reads its tensor, before the op that makes it."""
        if moving.load:
            return next((row + 1 for row in reversed(moving.read) if row <= at), 0)
        return moving.made - 1 if moving.made >= at else len(self._rows) - 1


class _Table(Ways):
    """The transfers of every row while they move."""

    def __init__(self, rows: Sequence[Row], cycles: Cycles, size: Size) -> None:
        super().__init__(rows, cycles, size)
        self.slack = [
            sum(map(cycles, row.layers)) - sum(m.cycles for m in moving)
            for row, moving in zip(rows, self.moving, strict=True)
        ]

    @property
    def transfers(self) -> list[list[Transferred]]:
        """The transfers of every row."""
        return [[moving.transfer for moving in row] for row in self.moving]

    def best(self, at: int) -> tuple[Moving, int] | None:
        """The transfer of a row and the target row that gain most; on ties the least bytes times rows.

        The gain is the decrease of the two rows' negative slack.
        """
        found, most, least = None, 0, 0
        slack, here = self.slack, min(self.slack[at], 0)
        for moving in self.moving[at]:
            cycles = moving.cycles
            left = min(slack[at] + cycles, 0) - here  # the gain of row `at` for every target row
            if left <= 0 or left < most:
                continue
            for to in self.reach(moving, at):
                there = slack[to]
                if there <= 0:
                    continue
                gain = left if there >= cycles else left + there - cycles
                if gain < most or gain <= 0:
                    continue
                area = moving.size * (abs(to - at) + 1)
                if gain > most or area < least:
                    found, most, least = (moving, to), gain, area
                if gain == left:
                    break  # farther rows gain no more
        return found

    def bubble(self, moving: Moving | None, to: int, at: int) -> None:
        """Move a transfer of row `at` towards row `to`."""
        while moving is not None:
            there = at + (1 if to > at else -1)
            self._shift(moving, at, there)
            at = there
            if at == to:
                return
            if moving.load or not self._rows[at].touches(moving.transfer.value):
                moving = self._heir(moving, at, to)

    def _heir(self, before: Moving, at: int, to: int) -> Moving | None:
        """The transfer of row `at` that moves on; None if that gains nothing."""
        found, most, least, load = None, 0, before.size, before.load
        here, there = self.slack[at], self.slack[to]
        lack = here if here < 0 else 0
        for moving in self.moving[at]:
            if moving.load != load:
                continue
            cycles, size = moving.cycles, moving.size
            less = here + cycles if here + cycles < 0 else 0
            gain = less - lack + (there - cycles if there < cycles else 0)
            if (gain > most or (gain == most and size < least)) and self.may_end(moving, at, to):
                found, most, least = moving, gain, size
        return found

    def _shift(self, moving: Moving, at: int, to: int) -> None:
        self.moving[at].remove(moving)
        self.moving[to].append(moving)
        self.slack[at] += moving.cycles
        self.slack[to] -= moving.cycles
