"""Shape search: the section counts of one group that cost least (search_better_v1, layer_group.md 10.2)."""

from collections.abc import Callable
from math import inf

from tpusim.chips import ChipSpec
from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.planning import first_guess, resectioned
from tpusim.layer_group.slicing import max_sections
from tpusim.ops.framework.base import Axis
from tpusim.schedule import GroupSchedule, Sections

SEARCH_ORDER: tuple[Axis, ...] = ("d", "w", "c", "n", "h")
"""The order in which axes are cut, the outermost loop first."""
PATIENCE = 3
"""Consecutive values of an axis without a gain after which the search stops (*SECS_SEARCH_RECORD_THRESHOLD)."""
MOST = 32
"""Most sections tried per axis (MAX_*SECS)."""


def better(found: GroupSchedule, model: CostModel, chip: ChipSpec) -> GroupSchedule:
    """The cheapest plan of the group over section counts; `found` itself if none costs less.

    Decision: counts with fewer steps than the first guess are not tried (U-77). A count that does not fit local memory
    is not counted as a value without gain, because a larger one may fit.
    """
    if len(found.graph.ops) == 1 and found.sections.steps == 1:
        return found
    search = _Search(found, model, chip)
    search.along(SEARCH_ORDER, {})
    return search.best


class _Search:
    """Nested loops over the counts of one group."""

    def __init__(self, found: GroupSchedule, model: CostModel, chip: ChipSpec) -> None:
        self.best, self._model, self._chip = found, model, chip
        self._cost = model.group_ns(found)
        self._limit = max_sections(found.graph, chip)
        guess = first_guess(found.graph, self._limit, chip)
        self._least = guess.steps if guess else 1

    def along(self, axes: tuple[Axis, ...], counts: dict[str, int]) -> float:
        """Try every count of the axes, the first outermost; returns the least cost, inf if nothing fitted."""
        if not axes:
            return self._try(Sections(**counts))
        axis, *rest = axes
        return _until_no_better(
            lambda count: self.along(tuple(rest), {**counts, axis: count}),
            range(1, min(self._limit.count(axis), MOST) + 1),
        )

    def _try(self, sections: Sections) -> float:
        if sections.steps < self._least:
            return inf
        plan = resectioned(self.best, sections, self._chip)
        if not isinstance(plan, GroupSchedule):
            return inf
        cost = self._model.group_ns(plan)
        if cost < self._cost * (1 - 1e-9):
            self.best, self._cost = plan, cost
        return cost


def _until_no_better(cost: Callable[[int], float], counts: range) -> float:
    """The least cost of the counts, in order, up to PATIENCE in a row that fit and are no better."""
    best, worse = inf, 0
    for count in counts:
        found = cost(count)
        worse = 0 if found < best else worse + (found < inf)
        best = min(best, found)
        if worse == PATIENCE:
            break
    return best
