"""Local-memory allocation: greedy, bank aware, with lifetimes that may wrap around the loop (layer_group.md 10.1)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate
from typing import Literal

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.isa.layout import align, ceil_div
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import LaneCopies
from tpusim.ops.structure import TopWeight
from tpusim.schedule import Allocation, Buffer, Row

Gap = tuple[int, int]
Side = Literal["", "copies", "result"]
"""copies: a work area in which an op copies its operand to other lanes (a convolution whose kernel's axes lie in the
channels); result: a tensor, no constant, of more than one row. The two never share bytes."""
Partners = Mapping[SSAValue, tuple[SSAValue, ...]]
"""Result -> operands whose bytes it may reuse."""
_Rank = tuple[int, int, int]
_Key = tuple[int, bool, _Rank]


@dataclass(eq=False, slots=True)
class _Item:
    """A buffer while it is being placed; rows, ops and banks are bits."""

    owner: SSAValue | TpuOp
    size: int
    rows: int
    """Rows in which it is alive."""
    side: Side
    """The buffer's side: buffers of opposite sides never share bytes, in whatever rows they are alive."""
    gaps: list[Gap]
    computed: int
    """Rows whose op reads or writes the tensor."""
    moved: int
    """Rows whose DMA loads or stores the tensor."""
    used: int
    """Rows whose op reads or writes the area: a tensor or a work area."""
    ops: int
    """The ops that make the tensor, read it in a later row, or work in the area."""
    meets: int
    """These, and the ops of the rows in which only the DMA uses the tensor."""
    rank: _Rank
    """Bytes times rows, the largest first; then the earliest; then in order of creation."""
    partners: frozenset[SSAValue | TpuOp] = frozenset()
    """Tensors with which it may share all its bytes although both are alive in one row."""
    banks: int = 0
    """Banks of the buffers placed so far that an op or the DMA uses at the same time."""
    key: _Key = (0, False, (0, 0, 0))
    """(first address, whether no row of the buffer is crowded, rank)."""


@dataclass
class _Traffic:
    """Per row: number of unplaced tensors that the op and the DMA of the row access."""

    has_op: list[bool]
    computed: list[int] = field(default_factory=list[int])
    moved: list[int] = field(default_factory=list[int])
    crowded: int = 0
    """Rows with an op in which unplaced tensors meet (layer_group.md 10.1, rule 3)."""

    def place(self, item: _Item) -> None:
        """The tensor is placed now and no longer counts."""
        for row in _bits(item.computed):
            self.computed[row] -= 1
        for row in _bits(item.moved):
            self.moved[row] -= 1
        self.see(item.computed | item.moved)

    def see(self, rows: int) -> None:
        """Bring `crowded` up to date for these rows."""
        for row in _bits(rows):
            meets_another = self.computed[row] > 1 or self.moved[row] > 0
            if self.has_op[row] and self.computed[row] > 0 and meets_another:
                self.crowded |= 1 << row
            else:
                self.crowded &= ~(1 << row)


APART: Mapping[Side, Side] = {"copies": "result", "result": "copies"}
"""The opposite side, whose buffers never share bytes with this side."""
SHORT = 8
"""Rows: buffers that live longer are compared one by one with the others."""


@lru_cache(maxsize=1 << 14)
def _bits(rows: int) -> tuple[int, ...]:
    return tuple(row for row in range(rows.bit_length()) if rows >> row & 1)


def allocate(
    buffers: Sequence[Buffer], rows: Sequence[Row], chip: ChipSpec, able: Partners | None = None
) -> Allocation | None:
    """Place every buffer, or None if they do not fit. able: operands whose bytes results may reuse."""
    able = able or {}
    if any(b.size > chip.lmem_bytes for b in buffers) or overfull(buffers, len(rows), chip, able):
        return None
    pending = _Pending(_items(buffers, rows, chip, able), rows, chip)
    placed: dict[SSAValue | TpuOp, int] = {}
    for _ in buffers:
        found = pending.place()
        if found is None:
            return None
        placed[found[0].owner] = found[1]
    sizes = {b.owner: b.size for b in buffers}
    reused = {r: v for r, operands in able.items() for v in operands if placed[v] == placed[r]}
    return Allocation(placed, sizes, max((placed[o] + sizes[o] for o in placed), default=0), reused)


def overfull(buffers: Sequence[Buffer], count: int, chip: ChipSpec, able: Partners | None = None) -> bool:
    """Whether some row's buffers alone exceed local memory, so that no placement can help."""
    change = [0] * (count + 1)  # of the bytes needed, from each row to the next
    for buffer in buffers:
        for first, end in buffer.spans(count):
            change[first] += buffer.size
            change[end] -= buffer.size
        if isinstance(buffer.owner, SSAValue) and able and buffer.owner in able:
            change[buffer.start] -= buffer.size  # at best the result shares its bytes in its first row
            change[buffer.start + 1] += buffer.size
    return max(accumulate(change), default=0) > chip.lmem_bytes


def _items(buffers: Sequence[Buffer], rows: Sequence[Row], chip: ChipSpec, able: Partners) -> list[_Item]:
    sharing: dict[SSAValue | TpuOp, set[SSAValue | TpuOp]] = {}
    for result, operands in able.items():
        for operand in operands:
            sharing.setdefault(result, set()).add(operand)
            if operand is result.owner.operands[0]:  # type: ignore[union-attr]
                sharing.setdefault(operand, set()).add(result)
    uses = _Uses(rows)
    found: list[_Item] = []
    for order, buffer in enumerate(buffers):
        spans, owner = buffer.spans(len(rows)), buffer.owner
        alive = sum((1 << end) - (1 << first) for first, end in spans)
        computed, moved = uses.computed.get(owner, 0), uses.moved.get(owner, 0)
        used = computed if isinstance(owner, SSAValue) else alive
        ops = uses.ops.get(owner, 0)
        found.append(
            _Item(
                owner=owner,
                size=buffer.size,
                rows=alive,
                side=_side(owner, alive),
                gaps=[(0, chip.lmem_bytes)],
                computed=computed,
                moved=moved,
                used=used,
                ops=ops,
                meets=ops | sum(uses.of_row[row] for row in _bits(moved & ~used)),
                rank=(-buffer.size * sum(end - first for first, end in spans), buffer.start, order),
                partners=frozenset(sharing[owner]) if owner in sharing else frozenset(),
            )
        )
    return found


def _side(owner: SSAValue | TpuOp, rows: int) -> Side:
    if not isinstance(owner, SSAValue):
        return "copies" if isinstance(owner, LaneCopies) and owner.copies_over_lanes() else ""
    return "" if isinstance(owner.owner, TopWeight) or rows.bit_count() == 1 else "result"


class _Uses:
    """The users of every buffer: rows and ops as bits."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.computed: dict[SSAValue | TpuOp, int] = {}
        self.moved: dict[SSAValue | TpuOp, int] = {}
        self.ops: dict[SSAValue | TpuOp, int] = {}
        self.of_row: list[int] = []
        """The ops of each row."""
        count = 0
        for index, row in enumerate(rows):
            for value in row.used:
                self.computed[value] = self.computed.get(value, 0) | 1 << index
            for transfer in row.transfers:
                self.moved[transfer.value] = self.moved.get(transfer.value, 0) | 1 << index
            self.of_row.append((1 << count + len(row.layers)) - (1 << count))
            made = {op.results[0] for op in row.layers}
            for op in row.layers:
                for owner in (op, *(v for v in op.operands if v not in made), *op.results):
                    self.ops[owner] = self.ops.get(owner, 0) | 1 << count
                count += 1


def _traffic(items: Sequence[_Item], rows: Sequence[Row]) -> _Traffic:
    traffic = _Traffic([bool(row.layers) for row in rows], [0] * len(rows), [0] * len(rows))
    for item in items:
        for row in _bits(item.computed):
            traffic.computed[row] += 1
        for row in _bits(item.moved):
            traffic.moved[row] += 1
    traffic.see((1 << len(rows)) - 1)
    return traffic


class _Pending:
    """The buffers without an address, in a heap by their lowest possible address.

    Placing a buffer changes the address only of buffers that are alive in one of its rows.
    """

    def __init__(self, items: Sequence[_Item], rows: Sequence[Row], chip: ChipSpec) -> None:
        self._items = {item.rank: item for item in items}
        self._traffic = _traffic(items, rows)
        self._chip = chip
        self._full = False
        for item in items:
            item.key = self._key(item)
        self._heap = sorted(item.key for item in items)
        self._long = [item for item in items if item.rows.bit_count() > SHORT]
        self._copies = [item for item in items if item.side == "copies"]
        self._short: list[list[_Item]] = [[] for _ in rows]
        for item in items:
            if item.rows.bit_count() <= SHORT:
                for row in _bits(item.rows):
                    self._short[row].append(item)

    def place(self) -> tuple[_Item, int] | None:
        """The buffer with the lowest possible address, and that address; None if a buffer has no room.

        On ties a buffer of a crowded row wins, then the buffer with most bytes times rows (`_Item.rank`).
        """
        if self._full:
            return None
        address, _, rank = key = heappop(self._heap)
        while rank not in self._items or self._items[rank].key != key:
            address, _, rank = key = heappop(self._heap)
        item = self._items.pop(rank)
        self._traffic.place(item)
        self._full = not self._keeps_clear(item, address)
        return item, address

    def _keeps_clear(self, last: _Item, low: int) -> bool:
        """Remove the last placed buffer's bytes from the gaps of buffers alive in its rows; some also avoid its banks.

        False if a buffer has no gap left.
        """
        bank = self._chip.lmem_bank_bytes
        high = align(low + last.size, self._chip.eu_bytes)
        banks = (1 << ceil_div(low + last.size, bank)) - (1 << low // bank)
        for item in self._affected(last):
            item.gaps = _shared(item, last, low, high) if item.partners else _without(item.gaps, low, high, item.size)
            if not item.gaps:
                return False
            if item.meets & last.ops or item.used & last.moved:
                item.banks |= banks
            key = self._key(item)
            if key != item.key:
                item.key = key
                heappush(self._heap, key)
        return True

    def _affected(self, last: _Item) -> Iterable[_Item]:
        """The unplaced buffers that are alive in some row of this one, or never share its bytes."""
        waiting, rows, apart = self._items, last.rows, APART.get(last.side)
        if last.side == "copies" or rows.bit_count() > SHORT:
            return [item for item in waiting.values() if item.rows & rows or item.side == apart]
        found = {item.rank: item for item in self._long if item.rows & rows and item.rank in waiting}
        if apart:
            found.update((item.rank, item) for item in self._copies if item.rank in waiting)
        for row in _bits(rows):
            found.update((item.rank, item) for item in self._short[row] if item.rank in waiting)
        return found.values()

    def _key(self, item: _Item) -> _Key:
        crowded = (item.computed | item.moved) & self._traffic.crowded
        return _first_fit(item, self._chip.lmem_bank_bytes), not crowded, item.rank


def _without(gaps: list[Gap], low: int, high: int, size: int) -> list[Gap]:
    """Free gaps of at least `size` bytes without the bytes from `low` to `high`."""
    found: list[Gap] = []
    for gap in gaps:
        start, end = gap
        if end <= low or start >= high:
            found.append(gap)
            continue
        if low - start >= size:
            found.append((start, low))
        if end - high >= size:
            found.append((high, end))
    return found


def _shared(item: _Item, last: _Item, low: int, high: int) -> list[Gap]:
    """The item's gaps without the bytes of the buffer placed last, which lives in rows of the item.

    They remain as a separate gap if the two may share them and no other buffer alive in the item's rows uses them.
    """
    if last.owner not in item.partners:
        return _without(item.gaps, low, high, item.size)
    found: list[Gap] = []
    for start, end in item.gaps:
        found.extend(_without([(start, end)], low, high, item.size))
        if start <= low and low + item.size <= end and start < high and end > low:
            found.append((low, low + item.size))
    return sorted(found)


def _first_fit(item: _Item, bank: int) -> int:
    """The lowest address outside the banks that the buffer avoids, else the lowest address."""
    size, banks = item.size, item.banks
    if banks:
        for start, end in item.gaps:
            at = start
            while at + size <= end:
                first = at // bank
                met = banks >> first & (1 << (at + size - 1) // bank - first + 1) - 1
                if not met:
                    return at
                at = (first + met.bit_length()) * bank
    return item.gaps[0][0]
