"""The loop of a group (layer_group.md 15), defined here only: the items of each iteration and row, and their steps.

Iteration k runs stage 0 for step k, stage 1 for step k-1, stage 2 for step k-2; two more iterations than steps drain
the pipeline. Tensors that stay in local memory are loaded in the first iteration of their stage only.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tpusim.ops.framework.logical import PIPELINE_STAGES
from tpusim.schedule.group import GroupSchedule, Guest
from tpusim.schedule.rows import Scheduled, Transferred


class Turn(NamedTuple):
    """An item that runs. step: in the loop of its group, `home`; row: of the group in whose loop it runs."""

    iteration: int
    row: int
    item: Scheduled
    step: int
    home: GroupSchedule


def turns(group: GroupSchedule, steps: range | None = None, iterations: Iterable[int] | None = None) -> Iterator[Turn]:
    """Everything that runs for consecutive steps of a group on one core, in order, neighbours' transfers included.

    steps: all unless given. iterations: counted from the first of these steps; all unless given. Inside a row ops come
    first, then transfers, then guests; the engines run at the same time.
    """
    part = range(group.sections.steps) if steps is None else steps
    count = len(part)
    last = count + PIPELINE_STAGES - 2
    for iteration in range(last + 1) if iterations is None else iterations:
        given, guests = _edges(group, iteration, count, last)
        for row, entries in enumerate(group.entries):
            for entry in entries:
                at = iteration - entry.stage
                if 0 <= at < count and (at == 0 or part[at] not in entry.stays) and entry.item not in given:
                    yield Turn(iteration, row, entry.item, part[at], group)
            for guest in guests:
                if guest.row == row:
                    yield Turn(iteration, row, guest.transfer, edge_step(guest.transfer, guest.home), guest.home)


def _edges(
    group: GroupSchedule, iteration: int, count: int, last: int
) -> tuple[tuple[Transferred, ...], tuple[Guest, ...]]:
    """(transfers of this iteration that neighbours do, transfers that it does for neighbours)."""
    overlap = group.overlap
    given = overlap.self_up if iteration == 0 else overlap.self_down if iteration == last else ()
    stores = overlap.other_down if iteration == 1 else ()
    loads = overlap.other_up if iteration == count else ()
    return given, (*stores, *loads)


def edge_step(transfer: Transferred, home: GroupSchedule) -> int:
    """The step of a transfer that a neighbour does: the first for loads, the last for stores."""
    return 0 if transfer.kind == "load" else home.sections.steps - 1
