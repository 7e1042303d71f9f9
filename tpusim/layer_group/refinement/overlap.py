"""Overlap of adjacent groups: the edges of one run during the ops of the other (layer_group.md 13, DL-07).

Nothing is computed while a group loads its first step or stores its last step. Such a load may run in a row of the
previous group's last computing iteration, if its bytes are free from that row on and its tensor is complete. Such a
store may run in a row of the next group's first computing iteration, if its bytes are free up to that row. Decision:
upstream requires more than two slices of the group; with the rule about bytes no such limit is needed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from tpusim.chips import ChipSpec
from tpusim.layer_group.cost import GAIN_NS, CostModel
from tpusim.layer_group.planning import Decided
from tpusim.layer_group.refinement.validity import Use, edge_item, problem, rows_of, steps_of
from tpusim.schedule import GroupSchedule, Guest, Transferred


def overlapped(decided: Sequence[Decided], model: CostModel) -> list[Decided]:
    """The groups; edges run in adjacent groups if that is quicker."""
    found = list(decided)
    if not model.chip.engines_overlap:
        return found
    for first, last in _runs(found):
        plans = [item for item in found[first:last] if isinstance(item, GroupSchedule)]
        new = list(plans)
        for i in range(len(new) - 1):
            new[i], new[i + 1] = _pair(new[i], new[i + 1], model)
        if problem(*new) is None and model.total_ns(new) < model.total_ns(plans) - GAIN_NS:
            found[first:last] = new
    return found


def _runs(decided: Sequence[Decided]) -> Iterator[tuple[int, int]]:
    """Intervals of two or more consecutive groups."""
    first = 0
    for i in range(len(decided) + 1):
        if i == len(decided) or not isinstance(decided[i], GroupSchedule):
            if i - first > 1:
                yield first, i
            first = i + 1


def _pair(before: GroupSchedule, after: GroupSchedule, model: CostModel) -> tuple[GroupSchedule, GroupSchedule]:
    """Two consecutive groups with the overlapped loads and stores that save time."""
    loads = _loads_in_advance(before, after, model)
    stores = _stores_afterwards(before, after, model)
    mine = replace(before.overlap, self_down=tuple(g.transfer for g in stores), other_up=tuple(loads))
    theirs = replace(after.overlap, self_up=tuple(g.transfer for g in loads), other_down=tuple(stores))
    return replace(before, overlap=mine), replace(after, overlap=theirs)


def _loads_in_advance(before: GroupSchedule, after: GroupSchedule, model: CostModel) -> list[Guest]:
    """Loads of the group after, in rows of the last computing iteration of the group before, counted from its end."""
    last = steps_of(before)
    spans = _spans(before, last)
    tail = [use for row in _spans(before, last + 1) for use in row]
    made_late = {*before.graph.outputs, *(g.transfer.value for g in before.overlap.other_down)}
    rows = _Rows(model, before, before.sections.steps)
    found: list[Guest] = []
    for transfer in _edges(after, "load", model):
        use = edge_item(transfer, after).uses[0]
        if transfer.value in made_late or any(use.meets(other) for other in tail):
            continue
        free = _until_taken(use, spans, range(len(spans) - 1, -1, -1))
        row = rows.take(model.edge_ns(transfer, after), use, free, spans)
        if row is not None:
            found.append(Guest(row, transfer, after))
    return found


def _stores_afterwards(before: GroupSchedule, after: GroupSchedule, model: CostModel) -> list[Guest]:
    """Stores of the group before, in rows of the first computing iteration of the group after, counted from its start.

    What the group after reads must be complete before it begins.
    """
    spans = _spans(after, 1)
    head = [use for row in _spans(after, 0) for use in row]
    rows = _Rows(model, after, 1)
    found: list[Guest] = []
    for transfer in _edges(before, "store", model):
        use = edge_item(transfer, before).uses[0]
        if transfer.value in after.graph.inputs or any(use.meets(other) for other in head):
            continue
        free = _until_taken(use, spans, range(len(spans)))
        row = rows.take(model.edge_ns(transfer, before), use, free, spans)
        if row is not None:
            found.append(Guest(row, transfer, before))
    return found


def _edges(plan: GroupSchedule, kind: Literal["load", "store"], model: CostModel) -> list[Transferred]:
    """Loads of the first stage or stores of the last one, the longest first."""
    stage = 0 if kind == "load" else 2
    found = [t for row in plan.rows for t in row.transfers if t.kind == kind and t.stage == stage]
    return sorted(found, key=lambda t: -model.edge_ns(t, plan))


def _spans(plan: GroupSchedule, iteration: int) -> list[list[Use]]:
    """The bytes that each row of an iteration uses."""
    found: list[list[Use]] = [[] for _ in plan.rows]
    for row in rows_of(plan, iterations=[iteration]):
        found[row.row] = [use for item in (*row.tiu, *row.dma) for use in item.uses]
    return found


def _until_taken(use: Use, spans: Sequence[Sequence[Use]], order: Iterable[int]) -> Iterator[int]:
    """Rows in this order up to the first that uses a byte of the span."""
    for row in order:
        if any(use.start < other.stop and other.start < use.stop for other in spans[row]):
            return
        yield row


class _Rows:
    """The rows of one iteration, as they fill up with guests."""

    def __init__(self, model: CostModel, plan: GroupSchedule, iteration: int) -> None:
        self._chip: ChipSpec = model.chip
        self._times = model.row_ns(plan, iteration)

    def take(self, ns: float, use: Use, free: Iterable[int], spans: Sequence[Sequence[Use]]) -> int | None:
        """The row that a transfer lengthens least, if that saves time; on ties a row without a bank conflict."""
        ranked = [(round(self._longer(row, ns), 3), self._clashes(use, spans[row]), at, row)
                  for at, row in enumerate(free)]  # fmt: skip
        if not ranked or min(ranked)[0] > ns - GAIN_NS:
            return None
        row = min(ranked)[-1]
        tiu, dma = self._times[row]
        self._times[row] = tiu, dma + ns
        return row

    def _longer(self, row: int, ns: float) -> float:
        tiu, dma = self._times[row]
        return max(tiu, dma + ns) - max(tiu, dma)

    def _clashes(self, use: Use, others: Sequence[Use]) -> bool:
        """Whether the row uses a bank of the span."""
        bank = self._chip.lmem_bank_bytes
        first, last = use.start // bank, (use.stop - 1) // bank
        return any(other.start // bank <= last and first <= (other.stop - 1) // bank for other in others)
