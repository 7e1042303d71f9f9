"""TimeStepCombine (U-79): transfers leave rows that move longer, then rows merge (layer_group.md 13).

Times are those of the assignment (`balance.cycles_of`). Whether a merged row is quicker is not checked. Adjacent rows
stay separate if both compute longer than they move by more than a tenth, if a transfer of one is used by an op of the
other, or if the tensors that become alive in the second cannot be placed next to those alive in the first. All merges
are undone if the whole group cannot be placed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.isa.layout import align
from tpusim.layer_group.planning import kept_whole
from tpusim.layer_group.refinement.balance import Cycles
from tpusim.layer_group.refinement.combine import MOST_OPS, Replaced, Rows
from tpusim.ops.framework.base import TpuOp
from tpusim.schedule import Buffer, GroupSchedule, Row, Transferred, areas, lifetimes

MARGIN = 0.1
"""A row stays separate if it computes longer than it moves by this fraction of its compute time."""
Owner = SSAValue | TpuOp


def recombined(plan: GroupSchedule, chip: ChipSpec, replaced: Replaced, cycles: Cycles) -> GroupSchedule:
    """The group with transfers moved and rows merged."""
    if len(plan.graph.ops) == 1:
        return plan
    if len(plan.graph.ops) <= MOST_OPS:
        plan = _exchanged(_reassigned(plan, chip, replaced, cycles), chip, replaced, cycles)
    rows = merged_rows(plan, chip, cycles)
    return plan if rows == plan.rows else replaced(plan, rows) or plan


def _stays(plan: GroupSchedule, chip: ChipSpec) -> frozenset[SSAValue]:
    """The constants that no cut makes smaller, or that are loaded once."""
    return frozenset(kept_whole(plan.graph, chip)).union(filter(plan.held, plan.graph.weights))


def _balances(rows: Sequence[Row], stays: frozenset[SSAValue], cycles: Cycles, *, steps: int) -> list[tuple[int, int]]:
    """Cycles of (ops, transfers) of every row; resident constants count only in a group of one step."""
    counted = frozenset[SSAValue]() if steps == 1 else stays
    return [
        (sum(map(cycles, row.layers)), sum(cycles(t) for t in row.transfers if t.value not in counted)) for row in rows
    ]


def _reassigned(plan: GroupSchedule, chip: ChipSpec, replaced: Replaced, cycles: Cycles) -> GroupSchedule:
    """Move one transfer out of every row that moves longer, to the row that gains most, unless one came to that row."""
    done, stays = set[int](), _stays(plan, chip)
    for at in range(len(plan.rows)):
        balance = _balances(plan.rows, stays, cycles, steps=plan.sections.steps)
        if balance[at][1] <= balance[at][0] or at in done:
            continue
        found = _best_move(plan.rows, at, [tiu - dma for tiu, dma in balance], stays, cycles)
        new = replaced(plan, _moved(plan.rows, [(found[0], at, found[1])])) if found else None
        if found and new:
            plan = new
            done.add(found[1])
    return plan


def _best_move(
    rows: Rows, at: int, slack: Sequence[int], stays: frozenset[SSAValue], cycles: Cycles
) -> tuple[Transferred, int] | None:
    """The transfer of a row and the target row that gain most; on ties the first."""
    found, most, life = None, 0, lifetimes(rows)
    free = (transfer for transfer in rows[at].transfers if transfer.value not in stays)
    for transfer, to in product(free, range(len(rows))):
        cost = cycles(transfer)
        gain = min(slack[to] - cost, 0) + min(slack[at] + cost, 0) - slack[at]
        if gain > most and to != at and _may_move(rows, life, transfer, at, to):
            found, most = (transfer, to), gain
    return found


def _may_move(
    rows: Sequence[Row], life: dict[SSAValue, tuple[int, int]], transfer: Transferred, at: int, to: int
) -> bool:
    """A load passes no op that reads its tensor; a store stays in its turn, after the op that makes its tensor."""
    value = transfer.value
    if transfer.kind == "load":
        way = range(at + 1, to + 1) if to > at else range(to, at)
        return not any(rows[row].reads(value) for row in way)
    start, end = life[value]
    if any(value in op.results for op in rows[to].layers):
        return False
    if start < end:
        return to > start
    return to > start if at > start else to < start


def _moved(rows: Sequence[Row], moves: Iterable[tuple[Transferred, int, int]]) -> Rows:
    new = list(rows)
    for transfer, at, to in moves:
        new[at], new[to] = new[at].without(transfer), new[to].plus(transfer)
    return tuple(new)


def _exchanged(plan: GroupSchedule, chip: ChipSpec, replaced: Replaced, cycles: Cycles) -> GroupSchedule:
    """A load and a later store in each other's rows, the first pair that costs nothing and fits."""
    stays = _stays(plan, chip)
    slack = [tiu - dma for tiu, dma in _balances(plan.rows, stays, cycles, steps=plan.sections.steps)]
    for at, row in enumerate(plan.rows):
        load = next((t for t in row.transfers if t.kind == "load" and t.value not in stays), None)
        pair = load and next(_partners(plan, load, at, slack, cycles), None)
        if load and pair:
            store, to = pair
            new = replaced(plan, _moved(plan.rows, [(load, at, to), (store, to, at)]))
            if new is not None:
                return new
    return plan


def _partners(
    plan: GroupSchedule, load: Transferred, at: int, slack: Sequence[int], cycles: Cycles
) -> Iterator[tuple[Transferred, int]]:
    life = lifetimes(plan.rows)
    for to in range(len(plan.rows) - 1, at, -1):
        if not _may_move(plan.rows, life, load, at, to):
            continue
        for store in plan.rows[to].transfers:
            if store.kind == "store" and _may_move(plan.rows, life, store, to, at):
                change = cycles(load) - cycles(store)
                after = min(slack[at] + change, 0) + min(slack[to] - change, 0)
                if after >= min(slack[at], 0) + min(slack[to], 0):
                    yield store, to


def merged_rows(plan: GroupSchedule, chip: ChipSpec, cycles: Cycles) -> Rows:
    """The rows with neighbours merged, the first pair that may be, again and again.

    The answers for pairs before a merged pair stay valid unless an area moves that is alive in their rows.
    """
    rows, at, address = plan.rows, 0, dict(plan.allocation.address)
    stays, buffers = _stays(plan, chip), areas(plan)
    while at < len(rows) - 1:
        placed = _merges(plan, rows, at, buffers, address, stays, chip, cycles)
        if placed is None:
            at += 1
            continue
        address.update(placed)
        around = any(b.owner in placed and b.start > b.end for b in buffers)
        first, second = rows[at : at + 2]
        one = Row((*first.layers, *second.layers), (*first.transfers, *second.transfers))
        rows = (*rows[:at], one, *rows[at + 2 :])
        buffers, at = areas(replace(plan, rows=rows)), 0 if around else max(at - 1, 0)
    return rows


def _merges(
    plan: GroupSchedule, rows: Rows, at: int, buffers: Sequence[Buffer], address: Mapping[Owner, int],
    stays: frozenset[SSAValue], chip: ChipSpec, cycles: Cycles,
) -> dict[Owner, int] | None:  # fmt: skip
    """New addresses if a row merges with the next; None if it does not."""
    steps = plan.sections.steps
    if all(_computes_long(*balance) for balance in _balances(rows[at : at + 2], stays, cycles, steps=steps)):
        return None
    taken = frozenset[SSAValue]() if at == 0 or steps == 1 else stays
    if not _independent(rows, at, buffers, taken):
        return None
    return _new_addresses(rows, at, buffers, address, stays, chip)


def _computes_long(tiu: int, dma: int) -> bool:
    return tiu - dma > MARGIN * tiu and dma <= tiu


def _independent(rows: Rows, at: int, buffers: Sequence[Buffer], taken: frozenset[SSAValue]) -> bool:
    """Whether no transfer of either row belongs to an op of the other, and no operand of the first dies in the second.

    taken: loads in the first row that another row takes over in a loop; they may.
    """
    first, second = rows[at : at + 2]
    if any(_belongs(t, second) for t in first.transfers if not (t.kind == "load" and t.value in taken)):
        return False
    if any(_belongs(t, first) for t in second.transfers):
        return False
    ends = {b.owner for b in buffers if b.end == at + 1}
    return not any(value in ends for op in first.layers for value in op.operands)


def _belongs(transfer: Transferred, row: Row) -> bool:
    if transfer.kind == "load":
        return row.reads(transfer.value)
    return any(transfer.value in op.results for op in row.layers)


def _new_addresses(
    rows: Rows, at: int, buffers: Sequence[Buffer], address: Mapping[Owner, int], stays: frozenset[SSAValue],
    chip: ChipSpec,
) -> dict[Owner, int] | None:  # fmt: skip
    """New addresses of the areas that become alive in the second row, apart from those of the first; None without room.

    Tensors loaded in the second row are not placed. Of several areas of equal size only one is considered. After one
    area has been given an empty bank, the search stops.
    """
    loaded, moved = ({t.value for t in row.transfers} for row in (rows[at + 1], rows[at]))
    new = {b.size: b.owner for b in buffers if b.start == at + 1 and b.owner not in stays}
    if loaded & {b.owner for b in buffers if b.start == at + 1 and b.owner not in stays}:
        return None
    living = [b for b in buffers if b.owner in stays or (b.start != at + 1 and _lives(b, at))]
    banks = {address[b.owner] // chip.lmem_bank_bytes for b in living}
    free = [bank for bank in range(chip.lmem_bytes // chip.lmem_bank_bytes) if bank not in banks]
    used = {address[b.owner]: b.size for b in living if b.owner not in stays | moved}
    for place in list(used):
        used.setdefault(place // chip.lmem_bank_bytes * chip.lmem_bank_bytes, 0)
    return _placed(new, used, free, chip)


def _lives(buffer: Buffer, at: int) -> bool:
    if buffer.start > buffer.end:
        return at >= buffer.start or at < buffer.end
    return buffer.start <= at <= buffer.end


def _placed(new: dict[int, Owner], used: dict[int, int], free: list[int], chip: ChipSpec) -> dict[Owner, int] | None:
    found = dict[Owner, int]()
    bank = chip.lmem_bank_bytes
    for size in sorted(new, reverse=True):
        place = _gap(size, used, chip)
        if place is None and free and size <= bank:
            found[new[size]] = free.pop(0) * bank
            break
        if place is not None:
            found[new[size]] = place
            used[place] = size
    return found if len(found) == len(new) else None


def _gap(size: int, used: dict[int, int], chip: ChipSpec) -> int | None:
    """The first room between two areas, before the end of the first one's bank."""
    places, bank = sorted(used), chip.lmem_bank_bytes
    for low, high in zip(places, places[1:], strict=False):
        end = high if high // bank == low // bank else (low // bank + 1) * bank
        start = align(low + used[low], chip.eu_bytes)
        if start + size <= end:
            return start
    return None
