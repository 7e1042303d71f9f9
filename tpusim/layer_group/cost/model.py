"""The cost of a group on the chip's clock, before addresses are assigned (layer_group.md 11, DL-06).

The loop of section 15 is replayed with exactly the commands that code generation would emit, so that cycles come from
one place (`tpusim.isa.cycles`). An item's slices differ little in size; each size is costed once per search.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ir.types import is_tensor
from tpusim.layer_group.cost.benches import global_ns, slice_ns, transfer_ns
from tpusim.layer_group.planning import Decided
from tpusim.layer_group.slicing import whole_slice, whole_slices
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.ops.framework.logical import PIPELINE_STAGES
from tpusim.ops.interfaces import GroupRules, is_in_place
from tpusim.schedule import (
    GroupSchedule,
    Overlap,
    Row,
    Scheduled,
    Step,
    Subgraph,
    Transferred,
    Turn,
    ValueSlices,
    edge_step,
    largest_slice,
    subgraph,
    turns,
)

Times: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.float64]]"
"""Nanoseconds, indexed by row of the schedule and turn of the group's loop."""
GAIN_NS = 1e-3
"""Smaller differences are no gain, because sums of times depend on their order."""


@dataclass
class CostModel:
    """Costs of groups and of global layers on a chip, in nanoseconds; the cost of an op's slice is cached.

    cores: number of cores that share the steps of a group; global layers run on one core.
    """

    chip: ChipSpec
    cores: int = 1
    _slices: dict[object, float] = field(default_factory=dict[object, float])
    _globals: dict[TpuOp, float] = field(default_factory=dict[TpuOp, float])
    _tensors: dict[TpuOp, tuple[SSAValue, ...]] = field(default_factory=dict[TpuOp, tuple[SSAValue, ...]])
    _asked_of: tuple[Mapping[SSAValue, ValueSlices], range] | None = None
    _rows: dict[int, tuple[Row, float]] = field(default_factory=dict[int, tuple[Row, float]])
    """Rows by their identity, of the slices and steps of `_asked_of`."""
    _by_content: dict[object, tuple[tuple[ValueSlices, ...], float]] = field(
        default_factory=dict[object, "tuple[tuple[ValueSlices, ...], float]"]
    )
    """Cached rows of any group, by their content; slices are compared by identity, and therefore kept alive."""

    def group_ns(self, group: GroupSchedule) -> float:
        """Time of a group (section 11): replay, or filling, kernel and draining, as `GroupRules.COST` says.

        On several cores the first core's share counts, which is the largest; Decision: at the DMA rate that it has
        while the other cores move data too.
        """
        steps = group.shares(self.cores)[0]
        model = self if len(steps) == group.sections.steps else self._under_contention
        replays = rules(self.chip, GroupRules).COST == "replay"
        return model._replayed(group, steps) if replays else model._in_stages(group, steps)

    def total_ns(self, decided: Iterable[Decided]) -> float:
        """Time of groups and global layers, one after the other."""
        return sum(self.group_ns(d) if isinstance(d, GroupSchedule) else self.global_ns(d[0]) for d in decided)

    @cached_property
    def _moving(self) -> ChipSpec:
        """The chip with the rates of a group's transfers; the search assumes one core (U-78)."""
        return self.chip.searched() if self.cores == 1 else self.chip

    @cached_property
    def _under_contention(self) -> "CostModel":
        """The cost model of one core while the other cores work too."""
        return CostModel(self.chip.under_contention(), self.cores)

    def _replayed(self, group: GroupSchedule, steps: range) -> float:
        """Every item with its exact slice; a row takes its slower engine's time, or the sum if they do not overlap."""
        if group.overlap == Overlap():
            return sum(self._row_sum(group, steps, row) for row in group.rows)
        return sum(map(float, self._row_ns(self._engines(group, steps)).sum(axis=1)))

    def _row_sum(self, group: GroupSchedule, steps: range, row: Row) -> float:
        """Time of one row in all iterations; cached while groups with the same slices and other rows are costed."""
        if self._asked_of is None or self._asked_of[0] is not group.slices or self._asked_of[1] != steps:
            self._asked_of, self._rows = (group.slices, steps), {}
        found = self._rows.get(id(row))
        if found is None:
            found = self._rows[id(row)] = row, self._known_row_sum(group, steps, row)
        return found[1]

    def _known_row_sum(self, group: GroupSchedule, steps: range, row: Row) -> float:
        """The same for a row of any group: groups of one search share rows and slices (`slice_group`)."""
        values = [value for item in row.items for value in self._values(item)]
        slices, compact = tuple([group.slices[v] for v in values]), tuple([v in group.graph.compact for v in values])
        copied = tuple([v in group.graph.copied_by_loads for v in values])
        key = row, group.graph.kind, compact, copied, group.sections, steps, tuple(map(id, slices))
        found = self._by_content.get(key)
        if found is None:
            times = self._row_ns(self._engines(replace(group, rows=(row,)), steps)).sum(axis=1)
            found = self._by_content[key] = slices, float(times[0])
        return found[1]

    def _in_stages(self, group: GroupSchedule, steps: range) -> float:
        """Filling, kernel and draining with the first slices (section 11).

        Decision: if the engines do not overlap, a row takes the sum of both, as on the clock (hardware.md 5.3).
        """
        count = len(steps) + PIPELINE_STAGES - 1
        edges = sorted({*range(PIPELINE_STAGES), *range(len(steps), count)} & {*range(count)})
        kernel = [PIPELINE_STAGES] if count > len(edges) else []
        found = self._row_ns(self._engines(group, steps, [*edges, *kernel], first_slices=True))
        times = [sum(column) for column in found.T.tolist()]
        return sum(times[: len(edges)]) + (count - len(edges)) * (times[-1] if kernel else 0.0)

    def _row_ns(self, engines: tuple[Times, Times]) -> Times:
        tiu, dma = engines
        return np.maximum(tiu, dma) if self.chip.engines_overlap else tiu + dma

    def _engines(
        self,
        group: GroupSchedule,
        steps: range,
        iterations: Sequence[int] | None = None,
        *,
        first_slices: bool = False,
    ) -> tuple[Times, Times]:
        """How long the TIU and the DMA work in each row of some iterations (default: all)."""
        wanted = range(len(steps) + PIPELINE_STAGES - 1) if iterations is None else iterations
        tiu, dma = ([[0.0] * len(wanted) for _ in group.rows] for _ in range(2))
        column = {iteration: i for i, iteration in enumerate(wanted)}
        for turn in turns(group, steps, wanted):
            engine = dma if isinstance(turn.item, Transferred) else tiu
            step = steps[0] if first_slices else turn.step
            ns = self.item_ns(turn.item, group, step) if turn.home is group else self._guest_ns(turn)
            engine[turn.row][column[turn.iteration]] += ns
        return np.array(tiu), np.array(dma)

    def _guest_ns(self, turn: Turn) -> float:
        assert isinstance(turn.item, Transferred)
        return self.edge_ns(turn.item, turn.home)

    def row_ns(self, group: GroupSchedule, iteration: int) -> list[tuple[float, float]]:
        """(ops, transfers) of every row in one iteration of the loop, with what neighbours do for each other."""
        tiu, dma = self._engines(group, range(group.sections.steps), [iteration])
        return [*zip(tiu[:, 0].tolist(), dma[:, 0].tolist(), strict=True)]

    def edge_ns(self, transfer: Transferred, home: GroupSchedule) -> float:
        """Time of a load of a group's first step, or of a store of its last one."""
        exact = rules(self.chip, GroupRules).COST == "replay"  # stages use the first slice for all
        return self.item_ns(transfer, home, edge_step(transfer, home) if exact else 0)

    def item_ns(self, item: Scheduled, group: GroupSchedule, step: int, *, one_bank: bool = False) -> float:
        """Time of one op or transfer of a group at one step of its loop; slices of equal size take equally long.

        one_bank: an op's operands and result lie in one bank.
        """
        graph, at, values = group.graph, group.sections.loop[step], self._values(item)
        sizes = tuple([self._cut(item, group, v).sizes_at(at) for v in values])
        compact = graph.compact and tuple([v in graph.compact for v in values])
        what = (item.value, item.kind) if isinstance(item, Transferred) else item
        copied = graph.copied_by_loads and tuple([v in graph.copied_by_loads for v in values])
        key = what, graph.kind, compact, copied, sizes, one_bank
        found = self._slices.get(key)
        if found is None:
            found = self._slices[key] = self._asked(item, group, at, one_bank=one_bank)
        return found

    def global_ns(self, op: TpuOp) -> float:
        """Time of an op outside any group; 0 if its result shares its operand's bytes."""
        found = self._globals.get(op)
        if found is None:
            found = self._globals[op] = global_ns(op, self.chip)
        return found

    def compute_ns(self, op: TpuOp) -> float:
        """The least time to compute an op uncut, over its possible group types; 0 for a view."""
        if is_in_place(op):
            return 0.0
        kinds = (kind for kind in GroupType if op.why_not_in(kind, self.chip) is None)
        return min((self._uncut(op, kind) for kind in kinds), default=0.0)

    def moved_ns(self, value: SSAValue, how: Literal["load", "store"], op: TpuOp) -> float:
        """The least time to move a whole tensor for `op`, over its possible group types."""
        kinds = (kind for kind in GroupType if op.why_not_in(kind, self.chip) is None)
        return min((self._moved(value, how, subgraph([op], self.chip, kind)) for kind in kinds), default=0.0)

    def _moved(self, value: SSAValue, how: Literal["load", "store"], graph: Subgraph) -> float:
        whole = largest_slice(whole_slice(value, graph, self.chip))
        return transfer_ns(Transferred(value, how, 0), whole, graph, self._moving)

    def _uncut(self, op: TpuOp, kind: GroupType) -> float:
        graph = subgraph([op], self.chip, kind)
        whole = {v: largest_slice(s) for v, s in whole_slices(graph, self.chip).items()}
        return slice_ns(op, graph, whole[op.results[0]], whole, self.chip)

    def _values(self, item: Scheduled) -> tuple[SSAValue, ...]:
        """What an item's time depends on: a transfer's tensor, an op's result and operands."""
        if isinstance(item, Transferred):
            return (item.value,)
        found = self._tensors.get(item)
        if found is None:
            found = self._tensors[item] = (item.results[0], *(v for v in item.operands if is_tensor(v)))
        return found

    def _cut(self, item: Scheduled, group: GroupSchedule, value: SSAValue) -> ValueSlices:
        """The slices that an item reads or writes; on several cores no element is stored by two cores."""
        slices = group.slices[value]
        return slices.unshared if self.cores > 1 and isinstance(item, Transferred) and item.kind == "store" else slices

    def _asked(self, item: Scheduled, group: GroupSchedule, step: Step, *, one_bank: bool) -> float:
        """Time of the commands of one slice."""
        have = {v: self._cut(item, group, v).at(step) for v in self._values(item)}
        if isinstance(item, Transferred):
            return transfer_ns(item, have[item.value], group.graph, self._moving)
        return slice_ns(item, group.graph, have[item.results[0]], have, self.chip, one_bank=one_bank)
