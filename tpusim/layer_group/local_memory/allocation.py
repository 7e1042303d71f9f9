"""Local-memory allocation: greedy, bank aware, with lifetimes that may wrap around the loop (layer_group.md 10.1)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.isa.layout import align
from tpusim.ops.base import TpuOp
from tpusim.schedule import Allocation, Buffer, Row

Gap = tuple[int, int]
Partners = Mapping[SSAValue, tuple[SSAValue, ...]]
"""Operands whose bytes a result may take, by result."""
_Rank = tuple[int, int, int]
_Key = tuple[int, bool, _Rank]


@dataclass(eq=False)
class _Item:
    """A buffer while it is being placed; rows are bits."""

    buffer: Buffer
    rows: int
    gaps: list[Gap]
    computed: int
    """Rows whose op reads or writes the tensor."""
    moved: int
    """Rows whose DMA loads or stores the tensor."""
    rank: _Rank
    """Bytes times rows, the largest first; then the earliest; then in order of creation."""
    partners: frozenset[SSAValue | TpuOp] = frozenset()
    """Tensors with which it may share all its bytes, although both live in one row."""


@dataclass
class _Traffic:
    """Per row: how many unplaced tensors the op and the DMA of the row touch."""

    has_op: list[bool]
    computed: list[int] = field(default_factory=list[int])
    moved: list[int] = field(default_factory=list[int])
    crowded: int = 0
    """Rows with an op in which unplaced tensors meet (layer_group.md 10.1, rule 3)."""

    def place(self, item: _Item) -> None:
        """The tensor is placed now and no longer counts."""
        for row in _bits(item.computed):
            self.computed[row] -= 1
        for row in _bits(item.moved & ~item.computed):
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


@lru_cache(maxsize=1 << 14)
def _bits(rows: int) -> tuple[int, ...]:
    return tuple(row for row in range(rows.bit_length()) if rows >> row & 1)


def _mask(rows: Iterable[int]) -> int:
    mask = 0
    for row in rows:
        mask |= 1 << row
    return mask


def allocate(
    buffers: Sequence[Buffer], rows: Sequence[Row], chip: ChipSpec, able: Partners | None = None
) -> Allocation | None:
    """Place every buffer, or None if they do not fit. able: operands whose bytes results may take."""
    able = able or {}
    if any(b.size > chip.lmem_bytes for b in buffers) or overfull(buffers, len(rows), chip, able):
        return None
    pending = _Pending(_items(buffers, rows, chip, able), rows, chip)
    placed: dict[SSAValue | TpuOp, int] = {}
    for _ in buffers:
        found = pending.place()
        if found is None:
            return None
        placed[found[0].buffer.owner] = found[1]
    sizes = {b.owner: b.size for b in buffers}
    reused = {r: v for r, operands in able.items() for v in operands if placed[v] == placed[r]}
    return Allocation(placed, sizes, max((placed[o] + sizes[o] for o in placed), default=0), reused)


def overfull(buffers: Sequence[Buffer], count: int, chip: ChipSpec, able: Partners | None = None) -> bool:
    """Whether some row's buffers alone exceed local memory, so that no placement can help."""
    need = [0] * count
    for buffer in buffers:
        for row in buffer.rows(count):
            need[row] += buffer.size
        if isinstance(buffer.owner, SSAValue) and able and buffer.owner in able:
            need[buffer.start] -= buffer.size  # at best the result shares its bytes where it is born
    return max(need, default=0) > chip.lmem_bytes


def _items(buffers: Sequence[Buffer], rows: Sequence[Row], chip: ChipSpec, able: Partners) -> list[_Item]:
    sharing: dict[SSAValue | TpuOp, set[SSAValue | TpuOp]] = {}
    for result, operands in able.items():
        for operand in operands:
            sharing.setdefault(result, set()).add(operand)
            sharing.setdefault(operand, set()).add(result)
    computed: dict[SSAValue | TpuOp, set[int]] = {}
    moved: dict[SSAValue | TpuOp, set[int]] = {}
    for index, row in enumerate(rows):
        for op in row.layers:
            for value in (*op.operands, *op.results):
                computed.setdefault(value, set()).add(index)
        for transfer in row.transfers:
            moved.setdefault(transfer.value, set()).add(index)
    found: list[_Item] = []
    for order, buffer in enumerate(buffers):
        rows_of = buffer.rows(len(rows))
        found.append(
            _Item(
                buffer=buffer,
                rows=_mask(rows_of),
                gaps=[(0, chip.lmem_bytes)],
                computed=_mask(computed.get(buffer.owner, ())),
                moved=_mask(moved.get(buffer.owner, ())),
                rank=(-buffer.size * len(rows_of), buffer.start, order),
                partners=frozenset(sharing.get(buffer.owner, ())),
            )
        )
    return found


def _traffic(items: Sequence[_Item], rows: Sequence[Row]) -> _Traffic:
    traffic = _Traffic([bool(row.layers) for row in rows], [0] * len(rows), [0] * len(rows))
    for item in items:
        for row in _bits(item.computed):
            traffic.computed[row] += 1
        for row in _bits(item.moved & ~item.computed):
            traffic.moved[row] += 1
    traffic.see((1 << len(rows)) - 1)
    return traffic


class _Pending:
    """The buffers that have no address yet, in a heap by where they could go.

    Placing a buffer changes this for those that live beside it only.
    """

    def __init__(self, items: Sequence[_Item], rows: Sequence[Row], chip: ChipSpec) -> None:
        self._items = {item.rank: item for item in items}
        self._traffic = _traffic(items, rows)
        self._chip = chip
        self._last: tuple[_Item, int] | None = None
        self._keys = {item.rank: self._key(item) for item in items}
        self._heap = sorted(self._keys.values())
        self._alive: list[set[_Rank]] = [set() for _ in rows]
        for item in items:
            for row in _bits(item.rows):
                self._alive[row].add(item.rank)

    def place(self) -> tuple[_Item, int] | None:
        """The buffer that can have the lowest address of all, with that address; None if one has no room.

        On ties the one of a crowded row, then the one that takes most bytes times rows (`_Item.rank`).
        """
        moved = self._beside_last()
        if moved is None:
            return None
        waiting = {rank for _, _, rank in moved}
        passed = [*self._passed(waiting)]
        address, _, rank = min(moved + self._heap[:1])
        for key in passed:
            heappush(self._heap, key)
        item = self._items.pop(rank)
        del self._keys[rank]
        for row in _bits(item.rows):
            self._alive[row].remove(rank)
        self._traffic.place(item)
        self._last = item, address
        return self._last

    def _beside_last(self) -> list[_Key] | None:
        """Keys of the buffers that avoid the banks of the one placed last, and so their first gap, this time.

        None if a buffer has no gap left.
        """
        moved: list[_Key] = []
        if self._last is None:
            return moved
        last, at = self._last
        for rank in set[_Rank]().union(*(self._alive[row] for row in _bits(last.rows))):
            item = self._items[rank]
            _occupy(item, last, at, self._chip)
            if not item.gaps:
                return None
            key = self._key(item)
            if key != self._keys[rank]:
                self._keys[rank] = key
                heappush(self._heap, key)
            address = _candidate(item, last, at, self._chip)
            if address != key[0]:
                moved.append((address, *key[1:]))
        return moved

    def _passed(self, waiting: set[_Rank]) -> Iterator[_Key]:
        """Take what is out of date, and the keys of `waiting`, which are given back, from the top of the heap."""
        while self._heap:
            key = self._heap[0]
            current = self._keys.get(key[2]) == key
            if current and key[2] not in waiting:
                return
            heappop(self._heap)
            if current:
                yield key

    def _key(self, item: _Item) -> _Key:
        """(first address, whether no row of the buffer is crowded, rank)."""
        return item.gaps[0][0], not (item.computed | item.moved) & self._traffic.crowded, item.rank


def _occupy(item: _Item, last: _Item, address: int, chip: ChipSpec) -> None:
    """Take the bytes of the buffer placed last, which lives in rows of the item, out of the item's free gaps.

    They stay as a gap of their own if the two may share them and nothing else that lives beside the item is there.
    """
    low, high, size = address, align(address + last.buffer.size, chip.eu_bytes), item.buffer.size
    gaps: list[Gap] = []
    for start, end in item.gaps:
        if end <= low or start >= high:
            gaps.append((start, end))
            continue
        shared = last.buffer.owner in item.partners and start <= low and low + size <= end
        parts = ((start, low), (low, low + size), (high, end)) if shared else ((start, low), (high, end))
        gaps.extend(g for g in parts if g[1] - g[0] >= size)
    item.gaps = gaps


def _candidate(item: _Item, last: _Item, address: int, chip: ChipSpec) -> int:
    """The first gap outside the banks of the buffer placed last if the two clash, else the first gap."""
    if _clash(item, last):
        bank = chip.lmem_bank_bytes
        low, high = address // bank * bank, align(address + last.buffer.size, bank)
        for start, end in item.gaps:
            for a, b in ((start, min(end, low)), (max(start, high), end)):
                if b - a >= item.buffer.size:
                    return a
    return item.gaps[0][0]


def _clash(item: _Item, last: _Item) -> bool:
    """Whether two tensors meet in a row as TIU against DMA, or as operands or results of one op."""
    return bool(item.computed & (last.computed | last.moved) or item.moved & last.computed)
