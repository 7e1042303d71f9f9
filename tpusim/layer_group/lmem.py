"""Local-memory allocation: greedy, bank aware, with lifetimes that may wrap around the loop (layer_group.md 10.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass
class _Pending:
    buffer: Buffer
    rows: frozenset[int]
    gaps: list[Gap]
    order: int


def allocate(buffers: Sequence[Buffer], rows: Sequence[Row], chip: ChipSpec) -> Allocation | None:
    """Place every buffer, or None if they do not fit."""
    count = len(rows)
    usage = [_engines(row) for row in rows]
    pending = [
        _Pending(b, b.rows(count), [(0, chip.lmem_bytes)] if b.size <= chip.lmem_bytes else [], i)
        for i, b in enumerate(buffers)
    ]
    if any(not p.gaps for p in pending) or _overfull(pending, count, chip):
        return None
    placed: dict[SSAValue | TpuOp, int] = {}
    last: _Pending | None = None
    while pending:
        pending.sort(key=lambda p: _priority(p, placed, usage, count))
        best: tuple[int, _Pending] | None = None
        for item in pending:
            if last is not None:
                _occupy(item, last, placed[last.buffer.owner], chip)
            if not item.gaps:
                return None
            address = _candidate(item, last, placed, usage, chip)
            if best is None or address < best[0]:
                best = address, item
            if last is None:
                break
        assert best is not None
        address, last = best
        placed[last.buffer.owner] = address
        pending.remove(last)
    sizes = {b.owner: b.size for b in buffers}
    return Allocation(placed, sizes, max((placed[o] + sizes[o] for o in placed), default=0))


def _engines(row: Row) -> tuple[set[SSAValue], set[SSAValue]]:
    """(tensors the ops of a row touch, tensors its DMA moves)."""
    computed = {v for op in row.layers for v in (*op.operands, *op.results)}
    return computed, {t.value for t in row.transfers}


def _overfull(pending: Sequence[_Pending], count: int, chip: ChipSpec) -> bool:
    """Whether some row's buffers alone exceed local memory (no placement can help)."""
    need = [0] * count
    for item in pending:
        for row in item.rows:
            need[row] += item.buffer.size
    return max(need, default=0) > chip.lmem_bytes


def _priority(
    item: _Pending,
    placed: dict[SSAValue | TpuOp, int],
    usage: Sequence[tuple[set[SSAValue], set[SSAValue]]],
    count: int,
) -> tuple[int, int, int, int]:
    """Conflict descending, area descending, start ascending, creation ascending."""
    owner, area = item.buffer.owner, item.buffer.size * len(item.rows)
    return -_conflicts(owner, placed, usage), -area, item.buffer.start, item.order


def _conflicts(
    owner: SSAValue | TpuOp,
    placed: dict[SSAValue | TpuOp, int],
    usage: Sequence[tuple[set[SSAValue], set[SSAValue]]],
) -> int:
    """1 if in some row the unplaced buffer still shares the row with another one of either engine."""
    if isinstance(owner, TpuOp):
        return 0
    for computed, moved in usage:
        if not computed or owner not in computed | moved:
            continue
        open_computed = [v for v in computed if v not in placed]
        open_moved = [v for v in moved if v not in placed]
        if open_computed and not (len(open_computed) == 1 and not open_moved):
            return 1
    return 0


def _occupy(item: _Pending, last: _Pending, address: int, chip: ChipSpec) -> None:
    """Take the bytes of the buffer placed last out of an item's free gaps if both live at once."""
    if not item.rows & last.rows:
        return
    low, high = address, align(address + last.buffer.size, chip.eu_bytes)
    gaps: list[Gap] = []
    for start, end in item.gaps:
        gaps.extend(g for g in ((start, min(end, low)), (max(start, high), end)) if g[1] - g[0] >= item.buffer.size)
    item.gaps = gaps


def _candidate(
    item: _Pending,
    last: _Pending | None,
    placed: dict[SSAValue | TpuOp, int],
    usage: Sequence[tuple[set[SSAValue], set[SSAValue]]],
    chip: ChipSpec,
) -> int:
    """The first gap outside the banks to avoid, else the first gap."""
    if last is not None and _clash(item, last, usage):
        bank = chip.lmem_bank_bytes
        low = placed[last.buffer.owner] // bank * bank
        high = align(placed[last.buffer.owner] + last.buffer.size, bank)
        for start, end in item.gaps:
            for a, b in ((start, min(end, low)), (max(start, high), end)):
                if b - a >= item.buffer.size:
                    return a
    return item.gaps[0][0]


def _clash(item: _Pending, last: _Pending, usage: Sequence[tuple[set[SSAValue], set[SSAValue]]]) -> bool:
    """Whether two buffers meet in a row as TIU against DMA, or as operand and result of one op."""
    a, b = item.buffer.owner, last.buffer.owner
    if isinstance(a, TpuOp) or isinstance(b, TpuOp):
        return False
    for row in item.rows:
        computed, moved = usage[row]
        if (a in computed and b in computed) or (a in computed and b in moved) or (a in moved and b in computed):
            return True
    return False
