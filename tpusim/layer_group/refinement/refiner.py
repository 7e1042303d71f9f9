"""What is done to groups once they are chosen (layer_group.md 8.4, 10.1, 13).

Every step is a switch of `Refinements`, and is kept where the replay of `validity` finds nothing wrong. With wide rows
every step is kept only where the cost model says that the group is quicker by it.
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

    timestep_moves: loads to earlier rows, stores to later ones, where the DMA is slower than the ops beside it.
    in_place: results may take the bytes of an operand that dies there.
    group_overlap: first loads run beside the last ops of the group before, last stores beside the first ops of the
    group after.
    timestep_combine: rows become one, and a load and a store change places, in groups of up to 100 ops.
    wide_rows: rows become one beside transfers that take longer than the ops of one, in groups of any size.
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
        """Groups by their identity, and what became of them: several strategies may find the same."""

    def refined(self, decided: Sequence[Decided]) -> list[Decided]:
        """The groups, each as quick as the steps make it, and then their edges beside their neighbours' ops."""
        found = [self._group(item) if isinstance(item, GroupSchedule) else item for item in decided]
        meet = self.model.cores > 1  # Decision: several cores meet between two groups, so that nothing overlaps
        return overlapped(found, self.model) if self._steps.group_overlap and not meet else found

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
        """The group by steps that ask, one by one, whether it is quicker, which is more than TPU-MLIR does."""
        ns = self._ns_of(plan)
        moved = self._moved(plan, ns) if self._steps.timestep_moves else plan
        found = combined(moved, self.model, self.replaced, ns) if self._steps.timestep_combine else moved
        found = widened(found, self.model, self.replaced, ns)
        return self._moved(found, ns) if found is not moved and self._steps.timestep_moves else found

    def _ns_of(self, plan: GroupSchedule) -> Ns:
        """What each item of the group takes at the first step, asked once."""
        costs: dict[Scheduled, float] = {}

        def ns(item: Scheduled) -> float:
            if item not in costs:
                costs[item] = self.model.item_ns(item, plan, 0)
            return costs[item]

        return ns

    def _moved(self, plan: GroupSchedule, ns: Ns) -> GroupSchedule:
        """With as many of the moves of section 8.4 as can be placed: all, else half of them, and so on."""
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
        """Steps of a core: of the first, and of the last one that has any."""
        busy = [len(share) for share in plan.shares(self.model.cores) if share]
        return {busy[0], busy[-1]}

    def _better(self, new: GroupSchedule, old: GroupSchedule) -> bool:
        return self.model.group_ns(new) < self.model.group_ns(old) - GAIN_NS
