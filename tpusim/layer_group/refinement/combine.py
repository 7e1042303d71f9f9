"""TimeStepCombine: neighbouring rows become one, a load and a store change places (layer_group.md 13, DL-07).

A row lasts as long as its slower engine. If one of two rows computes longer and the other moves longer, they take less
time as one row. A tensor that an op of the new row reads or makes cannot be transferred in it; its transfer goes to the
nearest possible row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tpusim.layer_group.cost import GAIN_NS, CostModel
from tpusim.layer_group.refinement.moves import Ns, reach
from tpusim.schedule import GroupSchedule, Row, Transferred

MOST_OPS = 100
"""Longer groups are left as they are (layer_group.md 13)."""
COMPUTE_BOUND = 1.1
"""Two rows stay apart if in both the ops take this many times as long as the transfers."""
Rows = tuple[Row, ...]
Replaced = Callable[[GroupSchedule, Rows], GroupSchedule | None]
"""The group with other rows, placed and checked; None if that fails."""


def combined(plan: GroupSchedule, model: CostModel, replaced: Replaced, ns: Ns) -> GroupSchedule:
    """The group with rows merged, and then one pair of transfers exchanged, if that is quicker and fits."""
    if len(plan.graph.ops) > MOST_OPS:
        return plan
    best, at = plan, 0
    while at < len(best.rows) - 1:
        new = _quicker(best, merged(best.rows, at, ns), model, replaced)
        best, at = (best, at + 1) if new is None else (new, at)
    return next((new for rows in exchanged(best.rows, ns) if (new := _quicker(best, rows, model, replaced))), best)


def _quicker(plan: GroupSchedule, rows: Rows | None, model: CostModel, replaced: Replaced) -> GroupSchedule | None:
    """The group with these rows if it is quicker by them and works."""
    if rows is None or model.group_ns(replace(plan, rows=rows)) >= model.group_ns(plan) - GAIN_NS:
        return None
    return replaced(plan, rows)


def merged(rows: Sequence[Row], at: int, ns: Ns) -> Rows | None:
    """The rows with `at` and the next as one; None if both compute long or a transfer has nowhere to go."""
    first, second = rows[at], rows[at + 1]
    if all(_computes_long(row, ns) for row in (first, second)):
        return None
    one = Row((*first.layers, *second.layers), (*first.transfers, *second.transfers))
    new = [*rows[:at], one, *rows[at + 2 :]]
    for transfer in one.transfers:
        if one.touches(transfer.value):
            row = next(reach(new, transfer, at), None)
            if row is None:
                return None
            _move(new, transfer, at, row)
    return tuple(new)


def _computes_long(row: Row, ns: Ns) -> bool:
    return sum(map(ns, row.layers)) > COMPUTE_BOUND * sum(map(ns, row.transfers))


def exchanged(rows: Sequence[Row], ns: Ns) -> Iterator[Rows]:
    """The rows with a load and an earlier store in each other's places, the load out of a row that moves longer."""
    for at, row in enumerate(rows):
        if sum(map(ns, row.layers)) >= sum(map(ns, row.transfers)):
            continue
        for load in (t for t in row.transfers if t.kind == "load"):
            for other in reach(rows, load, at):
                for store in (t for t in rows[other].transfers if t.kind == "store" and at in reach(rows, t, other)):
                    yield _swapped(rows, (at, load), (other, store))


def _swapped(rows: Sequence[Row], one: tuple[int, Transferred], two: tuple[int, Transferred]) -> Rows:
    new = list(rows)
    for (here, transfer), (there, _) in ((one, two), (two, one)):
        _move(new, transfer, here, there)
    return tuple(new)


def _move(rows: list[Row], transfer: Transferred, at: int, to: int) -> None:
    rows[at] = rows[at].without(transfer)
    rows[to] = rows[to].plus(transfer)
