"""Wide rows: a row whose transfers take longer than its ops is merged with others; TPU-MLIR does not do this.

Rows are barriers, so that the load of a large filter in the row of a short op delays the ops that follow. Adjacent
rows merge until their ops take as long as the transfer; other transfers that cannot stay in the new row go to
the row with the most slack. A merge is kept if the group is quicker, can be placed and works.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from tpusim.layer_group.cost import GAIN_NS, CostModel
from tpusim.layer_group.refinement.moves import Ns, reach
from tpusim.schedule import GroupSchedule, Row, Transferred, stage_of

LONGEST = 24
"""Most rows that merge into one, and most rows that a transfer passes."""
TRIED = 4
"""Most spans around a row that are placed, the quickest first."""
Rows = tuple[Row, ...]
Replaced = Callable[[GroupSchedule, Rows], GroupSchedule | None]
"""The group with other rows, placed and checked; None if that fails."""


def widened(plan: GroupSchedule, model: CostModel, replaced: Replaced, ns: Ns) -> GroupSchedule:
    """The group with wider rows, as long as each makes it quicker."""
    hopeless: set[Row] = set()
    if plan.sections.steps == 1:
        ns = _of_middle(ns)
    while True:
        short = [(lack, at) for at, row in enumerate(plan.rows) if (lack := _lack(row, ns)) > GAIN_NS]
        at = next((at for _, at in sorted(short, reverse=True) if plan.rows[at] not in hopeless), None)
        if at is None:
            return plan
        found = _wider(plan, at, model, replaced, ns)
        if found is None:
            hopeless.add(plan.rows[at])
        else:
            plan = found


def _of_middle(ns: Ns) -> Ns:
    """Times of items during ops in a group of one step; first loads and last stores run before and after the ops."""
    return lambda item: ns(item) if stage_of(item) == 1 else 0.0


def _lack(row: Row, ns: Ns) -> float:
    """By how much the transfers take longer than the ops."""
    return sum(map(ns, row.transfers)) - sum(map(ns, row.layers))


def _wider(plan: GroupSchedule, at: int, model: CostModel, replaced: Replaced, ns: Ns) -> GroupSchedule | None:
    """The group with the row and some adjacent rows merged; None if no span of rows makes it quicker."""
    least = model.group_ns(plan) - GAIN_NS
    able = [(model.group_ns(replace(plan, rows=rows)), rows) for rows in spans(plan.rows, at, ns)]
    quicker = sorted((item for item in able if item[0] < least), key=lambda item: item[0])
    return next((found for _, rows in quicker[:TRIED] if (found := replaced(plan, rows)) is not None), None)


def spans(rows: Sequence[Row], at: int, ns: Ns) -> Iterator[Rows]:
    """The rows with a span around `at` as one, longer and longer, until it computes for long enough."""
    for back in (True, False):
        first = last = at
        for _ in range(LONGEST):
            first, last = (first - 1, last) if back else (first, last + 1)
            if first < 0 or last == len(rows):
                break
            found = merged(rows, first, last, ns)
            if found is not None:
                yield found
                if _lack(found[first], ns) <= 0:
                    break


def merged(rows: Sequence[Row], first: int, last: int, ns: Ns) -> Rows | None:
    """The rows `first` to `last` as one; None if a transfer has nowhere to go."""
    span = rows[first : last + 1]
    one = Row(tuple(op for row in span for op in row.layers), tuple(t for row in span for t in row.transfers))
    new = [*rows[:first], one, *rows[last + 1 :]]
    for transfer in one.transfers:
        if one.touches(transfer.value):
            to = _roomiest(new, transfer, first, ns)
            if to is None:
                return None
            new[first], new[to] = new[first].without(transfer), new[to].plus(transfer)
    return tuple(new)


def _roomiest(rows: Sequence[Row], transfer: Transferred, at: int, ns: Ns) -> int | None:
    """The possible row with the most slack after the transfer moves to it, on ties the nearest; None without any."""
    cost = ns(transfer)
    able = islice(reach(rows, transfer, at), LONGEST)
    return min(
        able, key=lambda row: max(_lack(rows[row], ns) + cost, 0.0) - max(_lack(rows[row], ns), 0.0), default=None
    )
