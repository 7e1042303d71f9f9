"""Memory-aware moves: transfers leave rows in which the DMA is the slower engine (layer_group.md 8.4, DL-04).

slack of a row = time of its ops - time of its transfers. While a row has negative slack, the transfer and the
target row that gain most are chosen: loads go to earlier rows, stores to later ones, row by row; on the way another
transfer may take its place. A move that would exceed local memory in some row is not made.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.layer_group.cost import GAIN_NS
from tpusim.ops.framework.base import TpuOp
from tpusim.schedule import GroupSchedule, Row, Scheduled, Transferred, areas

Ns = Callable[[Scheduled], float]
"""Nanoseconds of an op or a transfer at the first step of the loop."""
Choice = Callable[[Transferred], bool]


def moved_rows(plan: GroupSchedule, ns: Ns, chip: ChipSpec, most: int | None = None) -> tuple[tuple[Row, ...], int]:
    """(rows after at most `most` moves, how many were made).

    One step: its iteration of stage 1 is balanced. Several steps: first the loop without transfers that run once, then
    these loads in the first iteration that computes. Decision: section 8.4 counts every transfer in every iteration.
    """
    resident = {v for v, slices in plan.slices.items() if slices.resident}
    table = _Table(plan, ns, chip, most)
    if plan.sections.steps == 1:
        table.balance(lambda t: t.stage == 1, lambda t: t.stage == 1)
    else:
        table.balance(lambda t: t.value not in resident, lambda t: t.value not in resident)
        table.balance(
            lambda t: t.stage == 1 or (t.stage == 0 and t.value not in resident),
            lambda t: t.stage == 1 and t.value in resident,
        )
    return table.rows(), table.made


def reach(rows: Sequence[Row], transfer: Transferred, at: int) -> Iterator[int]:
    """The rows that a transfer of row `at` may move to, the nearest first.

    A load may move to any earlier row after the last row whose op reads the tensor. A store may move to any later row
    before the tensor is produced again, except rows whose op reads it.
    """
    if transfer.kind == "load":
        for row in range(at - 1, -1, -1):
            if rows[row].reads(transfer.value):
                return
            yield row
        return
    for row in range(at + 1, len(rows)):
        if any(transfer.value in op.results for op in rows[row].layers):
            return
        if not rows[row].touches(transfer.value):
            yield row


class _Move(NamedTuple):
    """A transfer, its target row, and the gain."""

    transfer: Transferred
    to: int
    profit: float
    weight: int
    """Bytes times (distance + 1); of equal gains the smaller weight wins."""

    @property
    def rank(self) -> tuple[float, int]:
        """The key by which moves are compared; the smallest is the best."""
        return -round(self.profit, 3), self.weight


class _Table:
    """The rows of a schedule while its transfers move between them."""

    def __init__(self, plan: GroupSchedule, ns: Ns, chip: ChipSpec, most: int | None) -> None:
        self._rows = list(plan.rows)
        self._ns = ns
        self._room = chip.lmem_bytes
        self._most = most
        self.made = 0
        placed = areas(plan)
        self._size: dict[SSAValue | TpuOp, int] = {b.owner: 0 if b.held else b.size for b in placed}
        self._bytes: dict[SSAValue | TpuOp, int] = {b.owner: b.size for b in placed}
        self._need = [0] * len(self._rows)
        for buffer in placed:
            for row in buffer.rows(len(self._rows)):
                self._need[row] += buffer.size
        self._slack: list[float] = []
        self._ways: dict[Transferred, list[int]] = {}

    def rows(self) -> tuple[Row, ...]:
        """The present rows, without empty ones."""
        return tuple(row for row in self._rows if row.items)

    def balance(self, counted: Choice, movable: Choice) -> None:
        """Move transfers until no row with negative slack gains."""
        self._slack = [
            sum(map(self._ns, row.layers)) - sum(self._ns(t) for t in row.transfers if counted(t)) for row in self._rows
        ]
        for at in range(len(self._rows)):
            while self._slack[at] < 0 and self.made != self._most:
                able = [t for t in self._rows[at].transfers if movable(t)]
                best = self._best(move for t in able for move in self._anywhere(t, at))
                if best is None:
                    break
                self._bubble(best, at, movable)
                self.made += 1

    def _best(self, moves: Iterable[_Move | None]) -> _Move | None:
        """The move that gains most; on ties the lightest."""
        return min((m for m in moves if m is not None), key=lambda m: m.rank, default=None)

    def _anywhere(self, transfer: Transferred, at: int) -> Iterator[_Move]:
        """The moves of a transfer that save time and for which every row between has room."""
        passed = at
        for row in self._reach(transfer, at):
            if not self._has_room(transfer, passed, row):
                return
            passed = row
            move = self._to(transfer, at, row)
            if move is not None:
                yield move

    def _reach(self, transfer: Transferred, at: int) -> Iterator[int]:
        """`reach` of the transfer's original row, from its present row on."""
        way = self._ways.get(transfer)
        if way is None:
            way = self._ways[transfer] = [*reach(self._rows, transfer, at)]
        return (row for row in way if (row < at) == (transfer.kind == "load") and row != at)

    def _to(self, transfer: Transferred, at: int, row: int) -> _Move | None:
        """The move to a row with slack, if it gains."""
        if self._slack[row] <= 0:
            return None
        profit = self._gain(transfer, at, row)
        weight = self._bytes[transfer.value] * (abs(row - at) + 1)
        return _Move(transfer, row, profit, weight) if profit > GAIN_NS else None

    def _has_room(self, transfer: Transferred, at: int, to: int) -> bool:
        """Whether the rows after `at`, up to `to`, have room for the tensor."""
        way = range(to, at) if to < at else range(at + 1, to + 1)
        size = self._size[transfer.value]
        return not size or all(self._need[row] + size <= self._room for row in way)

    def _bubble(self, move: _Move, at: int, movable: Choice) -> None:
        """Move row by row to the target; a transfer on the way that gains as much and weighs less takes its place."""
        transfer, to = move.transfer, move.to
        while at != to:
            row = next(self._reach(transfer, at))
            self._shift(transfer, at, row)
            at = row
            others = [t for t in self._rows[at].transfers if t.kind == transfer.kind and movable(t)]
            found = self._best(
                self._to(t, at, to) for t in others
                if t is not transfer and to in self._reach(t, at) and self._has_room(t, at, to)
            )  # fmt: skip
            weight = self._bytes[transfer.value] * (abs(to - at) + 1)
            if found is not None and found.weight < weight and found.profit >= self._gain(transfer, at, to):
                transfer = found.transfer

    def _gain(self, transfer: Transferred, at: int, to: int) -> float:
        """The decrease of the negative slack of both rows."""
        cost = self._ns(transfer)
        here, there = self._slack[at], self._slack[to]
        return min(here + cost, 0.0) - min(here, 0.0) + min(there - cost, 0.0)

    def _shift(self, transfer: Transferred, at: int, to: int) -> None:
        """Move a transfer to the next possible row; its tensor is alive in the rows that it passes."""
        self._rows[at] = self._rows[at].without(transfer)
        self._rows[to] = self._rows[to].plus(transfer)
        self._slack[at] += self._ns(transfer)
        self._slack[to] -= self._ns(transfer)
        for row in range(to, at) if to < at else range(at + 1, to + 1):
            self._need[row] += self._size[transfer.value]
