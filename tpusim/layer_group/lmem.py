"""Local-memory allocation: greedy, bank aware, with lifetimes that may wrap around the loop (layer_group.md 10.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.isa.layout import align
from tpusim.layer_group.lifetime import Buffer
from tpusim.layer_group.timestep import Row
from tpusim.ops.base import TpuOp

Gap = tuple[int, int]


@dataclass(frozen=True)
class Allocation:
    """Addresses (bytes per lane) by buffer owner, and the peak."""

    address: dict[SSAValue | TpuOp, int]
    size: dict[SSAValue | TpuOp, int]
    peak_bytes: int


@dataclass(eq=False)
class _Item:
    """A buffer while it is being placed."""

    buffer: Buffer
    rows: frozenset[int]
    gaps: list[Gap]
    order: int
    computed: frozenset[int]
    """Rows whose op reads or writes the tensor."""
    moved: frozenset[int]
    """Rows whose DMA loads or stores the tensor."""

    @property
    def area(self) -> int:
        """Bytes times rows."""
        return self.buffer.size * len(self.rows)


@dataclass
class _Traffic:
    """Per row: how many unplaced tensors the op and the DMA of the row touch."""

    has_op: list[bool]
    computed: list[int] = field(default_factory=list[int])
    moved: list[int] = field(default_factory=list[int])

    def conflict(self, item: _Item) -> int:
        """1 if in a row with an op the unplaced tensor meets another unplaced one (layer_group.md 10.1, rule 3)."""
        for row in item.computed | item.moved:
            meets_another = self.computed[row] > 1 or self.moved[row] > 0
            if self.has_op[row] and self.computed[row] > 0 and meets_another:
                return 1
        return 0

    def place(self, item: _Item) -> None:
        """The tensor is placed now and no longer counts."""
        for row in item.computed:
            self.computed[row] -= 1
        for row in item.moved - item.computed:
            self.moved[row] -= 1


def allocate(buffers: Sequence[Buffer], rows: Sequence[Row], chip: ChipSpec) -> Allocation | None:
    """Place every buffer, or None if they do not fit."""
    if any(b.size > chip.lmem_bytes for b in buffers) or overfull(buffers, len(rows), chip):
        return None
    pending = _items(buffers, rows, chip)
    traffic = _traffic(pending, rows)
    placed: dict[SSAValue | TpuOp, int] = {}
    last: tuple[_Item, int] | None = None
    while pending:
        pending.sort(key=lambda i: (-traffic.conflict(i), -i.area, i.buffer.start, i.order))
        found = _lowest(pending, last, chip)
        if found is None:
            return None
        item, address = last = found
        placed[item.buffer.owner] = address
        traffic.place(item)
        pending.remove(item)
    sizes = {b.owner: b.size for b in buffers}
    return Allocation(placed, sizes, max((placed[o] + sizes[o] for o in placed), default=0))


def overfull(buffers: Sequence[Buffer], count: int, chip: ChipSpec) -> bool:
    """Whether some row's buffers alone exceed local memory, so that no placement can help."""
    need = [0] * count
    for buffer in buffers:
        for row in buffer.rows(count):
            need[row] += buffer.size
    return max(need, default=0) > chip.lmem_bytes


def _items(buffers: Sequence[Buffer], rows: Sequence[Row], chip: ChipSpec) -> list[_Item]:
    computed: dict[SSAValue | TpuOp, set[int]] = {}
    moved: dict[SSAValue | TpuOp, set[int]] = {}
    for index, row in enumerate(rows):
        for op in row.layers:
            for value in (*op.operands, *op.results):
                computed.setdefault(value, set()).add(index)
        for transfer in row.transfers:
            moved.setdefault(transfer.value, set()).add(index)
    return [
        _Item(
            buffer=b,
            rows=b.rows(len(rows)),
            gaps=[(0, chip.lmem_bytes)],
            order=i,
            computed=frozenset(computed.get(b.owner, ())),
            moved=frozenset(moved.get(b.owner, ())),
        )
        for i, b in enumerate(buffers)
    ]


def _traffic(items: Sequence[_Item], rows: Sequence[Row]) -> _Traffic:
    traffic = _Traffic([bool(row.layers) for row in rows], [0] * len(rows), [0] * len(rows))
    for item in items:
        for row in item.computed:
            traffic.computed[row] += 1
        for row in item.moved - item.computed:
            traffic.moved[row] += 1
    return traffic


def _lowest(pending: Sequence[_Item], last: tuple[_Item, int] | None, chip: ChipSpec) -> tuple[_Item, int] | None:
    """The item that can be placed at the lowest address, the first in order on ties; None if one has no room."""
    if last is None:
        return pending[0], 0
    best: tuple[_Item, int] | None = None
    for item in pending:
        _occupy(item, *last, chip)
        if not item.gaps:
            return None
        address = _candidate(item, *last, chip)
        if best is None or address < best[1]:
            best = item, address
    return best


def _occupy(item: _Item, last: _Item, address: int, chip: ChipSpec) -> None:
    """Take the bytes of the buffer placed last out of an item's free gaps if both live at once."""
    if item.rows.isdisjoint(last.rows):
        return
    low, high, size = address, align(address + last.buffer.size, chip.eu_bytes), item.buffer.size
    gaps: list[Gap] = []
    for start, end in item.gaps:
        if end <= low or start >= high:
            gaps.append((start, end))
            continue
        gaps.extend(g for g in ((start, low), (high, end)) if g[1] - g[0] >= size)
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
    return not (
        item.computed.isdisjoint(last.computed)
        and item.computed.isdisjoint(last.moved)
        and item.moved.isdisjoint(last.computed)
    )
