"""Refinement of chosen groups (layer_group.md 8.4, 10.1, 13).

Every step is a switch of `Refinements`, and is kept if the replay of `validity` has no error. With wide rows
a step is kept only if the cost model also says that it makes the group quicker.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tpusim.chips import ChipSpec
from tpusim.layer_group.cost import GAIN_NS, CostModel
from tpusim.layer_group.local_memory import place
from tpusim.layer_group.planning import Decided
from tpusim.layer_group.refinement.balance import cycles_of
from tpusim.layer_group.refinement.combine import combined
from tpusim.layer_group.refinement.merge import recombined
from tpusim.layer_group.refinement.moves import Ns, moved_rows
from tpusim.layer_group.refinement.overlap import overlapped
from tpusim.layer_group.refinement.validity import problem
from tpusim.layer_group.refinement.widen import widened
from tpusim.schedule import GroupSchedule, Row, Scheduled


@dataclass(frozen=True, kw_only=True)
class Refinements:
    """Which steps are taken.

    timestep_moves: loads move to earlier rows, stores to later ones, if the DMA is slower than the ops of the row.
    in_place: results may reuse the bytes of an operand that dies in their row.
    group_overlap: first loads run during the last ops of the previous group, last stores during the first ops of the
    next group.
    timestep_combine: rows merge, and a load and a store change places, in groups of up to 100 ops.
    wide_rows: rows merge if a transfer takes longer than the ops of one row, in groups of any size.
    """

    timestep_moves: bool = True
    in_place: bool = True
    group_overlap: bool = True
    timestep_combine: bool = True
    wide_rows: bool = False


class Refiner:
    """Refines the groups of one module."""

    def __init__(self, chip: ChipSpec, steps: Refinements, cores: int = 1) -> None:
        self.chip = chip
        self.model = CostModel(chip, cores)
        self._steps = steps
        self._known: dict[int, tuple[GroupSchedule, GroupSchedule]] = {}
        """Group (by identity) -> its refined form: several strategies may choose the same group."""

    def refined(self, decided: Sequence[Decided]) -> list[Decided]:
        """The groups, each refined, and then with edges that overlap adjacent groups."""
        found = self.combined(decided)
        return self.overlapped(found) if self._steps.group_overlap else found

    def combined(self, decided: Sequence[Decided]) -> list[Decided]:
        """The groups, each with its rows refined."""
        return [self._group(item) if isinstance(item, GroupSchedule) else item for item in decided]

    def overlapped(self, decided: Sequence[Decided]) -> list[Decided]:
        """The groups with edges that overlap adjacent groups.

        Decision: several cores meet between two groups, so that nothing overlaps.
        """
        return list(decided) if self.model.cores > 1 else overlapped(decided, self.model)

    def _group(self, plan: GroupSchedule) -> GroupSchedule:
        if id(plan) not in self._known:
            self._known[id(plan)] = plan, self._refined(plan)
        return self._known[id(plan)][1]

    def _refined(self, plan: GroupSchedule) -> GroupSchedule:
        if not self.chip.engines_overlap:
            return plan
        if self._steps.wide_rows:
            return self._quickest(plan)
        if not self._steps.timestep_combine:
            return plan
        return recombined(plan, self.chip, self.replaced, cycles_of(plan, self.model))

    def _quickest(self, plan: GroupSchedule) -> GroupSchedule:
        """The group by steps that are kept only if quicker, each checked separately; TPU-MLIR does not check."""
        ns = self._ns_of(plan)
        moved = self._moved(plan, ns) if self._steps.timestep_moves else plan
        found = combined(moved, self.model, self.replaced, ns) if self._steps.timestep_combine else moved
        found = widened(found, self.model, self.replaced, ns)
        return self._moved(found, ns) if found is not moved and self._steps.timestep_moves else found

    def _ns_of(self, plan: GroupSchedule) -> Ns:
        """The time of each item of the group at the first step, cached."""
        costs: dict[Scheduled, float] = {}

        def ns(item: Scheduled) -> float:
            if item not in costs:
                costs[item] = self.model.item_ns(item, plan, 0)
            return costs[item]

        return ns

    def _moved(self, plan: GroupSchedule, ns: Ns) -> GroupSchedule:
        """The group with as many moves of section 8.4 as can be placed: all, else half of them, and so on."""
        rows, count = moved_rows(plan, ns, self.chip)
        while count:
            found = self.replaced(plan, rows)
            if found is not None:
                return found if self._better(found, plan) else plan
            rows, count = moved_rows(plan, ns, self.chip, most=count // 2)
        return plan

    def replaced(self, plan: GroupSchedule, rows: tuple[Row, ...]) -> GroupSchedule | None:
        """The group with other rows; None if it cannot be placed or does not work."""
        placed = place(plan.graph, rows, plan.slices, self.chip, plan.sections.steps)
        if placed is None:
            return None
        found = replace(plan, rows=rows, allocation=placed)
        return found if all(problem(found, most=steps) is None for steps in self._shares(found)) else None

    def _shares(self, plan: GroupSchedule) -> set[int]:
        """Numbers of steps of a core: of the first core, and of the last core with steps."""
        busy = [len(share) for share in plan.shares(self.model.cores) if share]
        return {busy[0], busy[-1]}

    def _better(self, new: GroupSchedule, old: GroupSchedule) -> bool:
        return self.model.group_ns(new) < self.model.group_ns(old) - GAIN_NS
