"""What a group costs on the chip's clock, before anything has an address (layer_group.md 11, DL-06).

The loop of section 15 is replayed with the very commands that code generation would emit, so that cycles come from
one place (`tpusim.isa.cycles`). An item's slices differ little in size; each size is costed once per search.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import op_name
from tpusim.ir.types import is_tensor
from tpusim.isa.commands import Command, Fill, GlobalKernel, Move
from tpusim.isa.cycles import command_ns
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View
from tpusim.layer_group.graph import Subgraph, subgraph
from tpusim.layer_group.lifetime import largest_slice
from tpusim.layer_group.plan import Decided, GroupPlan
from tpusim.layer_group.sections import extents
from tpusim.layer_group.slicing import ValueSlices, whole_slices
from tpusim.layer_group.timestep import Transferred
from tpusim.ops.base import GroupType, TensorSlice, TpuOp
from tpusim.ops.emission import Placed, SliceContext, WholeContext
from tpusim.ops.logical import AXES, LOOP_ORDER, PIPELINE_STAGES, loop_steps
from tpusim.ops.views import gmem_view, lmem_view, transfers

Times = np.ndarray
"""float64 nanoseconds per iteration."""
Step = Mapping[str, int]
"""Index of the section along each axis."""
Visits = Mapping[tuple[int, int], float]
"""Nanoseconds of transfers by (iteration, row)."""
GAIN_NS = 1e-3
"""Less than this is no gain: sums of times differ by their order."""
OfSlices = Callable[[list[TensorSlice]], float]
"""Nanoseconds of an op's or a transfer's slices."""


class _Item(NamedTuple):
    """An op or a transfer of a row: its pipeline stage, its time at each step of the loop, whether it runs once."""

    stage: int
    times: Times
    once: bool


@dataclass
class CostModel:
    """Costs of groups and of global layers on a chip, in nanoseconds; remembers what a slice of an op costs.

    cores: how many share the steps of a group; global layers run on one.
    """

    chip: ChipSpec
    cores: int = 1
    _slices: dict[object, float] = field(default_factory=dict[object, float])
    _globals: dict[TpuOp, float] = field(default_factory=dict[TpuOp, float])

    def group_ns(self, plan: GroupPlan) -> float:
        """Time of a group (section 11): replay, or filling, kernel and draining, as the chip's field says.

        Of several cores the first one's share counts, the largest; Decision: with the DMA rate that it has while the
        others move data too.
        """
        steps = _steps(plan)
        share = ceil_div(len(steps), self.cores)
        model = self if share == len(steps) else self._beside_others
        return model._loop_ns(plan, steps[:share])

    def total_ns(self, decided: Iterable[Decided]) -> float:
        """Time of groups and global layers, one after the other."""
        return sum(self.group_ns(d) if isinstance(d, GroupPlan) else self.global_ns(d[0]) for d in decided)

    @cached_property
    def _beside_others(self) -> "CostModel":
        """The costs of one core while the others work too."""
        return CostModel(self.chip.beside_others())

    def _loop_ns(self, plan: GroupPlan, steps: list[Step]) -> float:
        """Time of these steps on one core."""
        layers = [[self._layer(op, plan, steps) for op in row.layers] for row in plan.rows]
        moves = [[self._transfer(t, plan, steps) for t in row.transfers] for row in plan.rows]
        visits = self._visits(plan)
        if self.chip.group_cost == "replay":
            return _replayed(layers, moves, len(steps), self.chip, visits)
        return _in_stages(layers, moves, len(steps), self.chip, visits)

    def row_ns(self, plan: GroupPlan, iteration: int) -> list[tuple[float, float]]:
        """(ops, transfers) of every row in one iteration of the loop, with what neighbours do for each other."""
        steps = plan.sections.steps
        visits = self._visits(plan)

        def runs(stage: int, value: SSAValue | None = None) -> bool:
            once = value is not None and plan.slices[value].resident
            return 0 <= iteration - stage < steps and (iteration == stage or not once)

        return [
            (
                sum(self.item_ns(op, plan, iteration - 1) for op in row.layers if runs(1)),
                sum(self.item_ns(t, plan, iteration - t.stage) for t in row.transfers if runs(t.stage, t.value))
                + visits.get((iteration, number), 0.0),
            )
            for number, row in enumerate(plan.rows)
        ]

    def edge_ns(self, transfer: Transferred, home: GroupPlan) -> float:
        """Time of a load of a group's first step, or of a store of its last one."""
        last = transfer.kind == "store" and self.chip.group_cost == "replay"  # stages take the first slice for all
        return self.item_ns(transfer, home, home.sections.steps - 1 if last else 0)

    def _visits(self, plan: GroupPlan) -> Visits:
        """What overlap with the neighbours adds to the transfers of a row in an iteration, or takes from them."""
        found: dict[tuple[int, int], float] = {}
        steps, overlap = plan.sections.steps, plan.overlap
        for iteration, gone in ((0, overlap.self_up), (steps + PIPELINE_STAGES - 2, overlap.self_down)):
            for number, row in enumerate(plan.rows):
                for transfer in row.transfers:
                    if transfer in gone:
                        key = iteration, number
                        found[key] = found.get(key, 0.0) - self.edge_ns(transfer, plan)
        for iteration, guests in ((1, overlap.other_up), (steps, overlap.other_down)):
            for guest in guests:
                key = iteration, guest.row
                found[key] = found.get(key, 0.0) + self.edge_ns(guest.transfer, guest.home)
        return found

    def global_ns(self, op: TpuOp) -> float:
        """Time of an op outside any group; nothing for one whose result is its operand's bytes."""
        found = self._globals.get(op)
        if found is None:
            bench = _GlobalBench(op, self.chip)
            if not op.in_place():
                op.emit(bench)
            found = self._globals[op] = bench.ns
        return found

    def compute_ns(self, op: TpuOp) -> float:
        """The least that an op takes to compute uncut, over the group types it may be in; 0 for a view."""
        if op.in_place():
            return 0.0
        kinds = (kind for kind in GroupType if op.why_not_in(kind, self.chip) is None)
        return min((self._uncut(op, subgraph([op], kind)) for kind in kinds), default=0.0)

    def _uncut(self, op: TpuOp, graph: Subgraph) -> float:
        whole = {v: largest_slice(s) for v, s in whole_slices(graph, self.chip).items()}
        bench = _Bench(op, graph, whole[op.results[0]], whole, self.chip)
        op.emit(bench)
        return bench.ns

    def item_ns(self, item: TpuOp | Transferred, plan: GroupPlan, step: int) -> float:
        """Time of one op or transfer of a group at one step of its loop."""
        steps = _steps(plan)[step : step + 1]
        found = self._transfer(item, plan, steps) if isinstance(item, Transferred) else self._layer(item, plan, steps)
        return float(found.times[0])

    def _layer(self, op: TpuOp, plan: GroupPlan, steps: list[Step]) -> _Item:
        operands = [v for v in op.operands if is_tensor(v)]
        slices = [plan.slices[v] for v in (op.results[0], *operands)]

        def cost(at: list[TensorSlice]) -> float:
            bench = _Bench(op, plan.graph, at[0], dict(zip(operands, at[1:], strict=True)), self.chip)
            op.emit(bench)
            return bench.ns

        compact = tuple(v in plan.graph.compact for v in operands)
        return _Item(1, self._times((op, plan.graph.kind, compact), slices, steps, cost), once=False)

    def _transfer(self, transfer: Transferred, plan: GroupPlan, steps: list[Step]) -> _Item:
        value, graph = transfer.value, plan.graph
        slices = plan.slices[value]
        key = (value, transfer.kind, graph.kind, value in graph.compact)
        once = slices.resident
        times = self._times(key, [slices], steps[:1] if once else steps, lambda at: self._moved(transfer, at[0], graph))
        return _Item(transfer.stage, times, once)

    def _moved(self, transfer: Transferred, part: TensorSlice, graph: Subgraph) -> float:
        """Time of the DMA commands of one slice."""
        value = transfer.value
        constant = value in graph.constants
        whole = gmem_view(value, 0, self.chip, constant=constant)
        local = lmem_view(value, 0, part.shape, self.chip, constant=constant, aligned=value not in graph.compact)
        pairs = transfers(whole, extents(value, graph, self.chip), part, local, self.chip)
        load = transfer.kind == "load"
        return sum(_move_ns(*((g, m) if load else (m, g)), self.chip) for g, m in pairs)

    def _times(self, key: object, slices: list[ValueSlices], steps: list[Step], cost: OfSlices) -> Times:
        """Time at each step; slices of equal sizes take the same."""
        result = np.empty(len(steps))
        for i, step in enumerate(steps):
            sizes = tuple(s.along(axis)[step[axis] % len(s.along(axis))][1] for s in slices for axis in AXES)
            found = self._slices.get((key, sizes))
            if found is None:
                found = self._slices[key, sizes] = cost([_slice_at(s, step) for s in slices])
            result[i] = found
        return result


def _steps(plan: GroupPlan) -> list[Step]:
    """All steps in the order of the loop."""
    return [*loop_steps({axis: plan.sections.count(axis) for axis in LOOP_ORDER})]


def _slice_at(slices: ValueSlices, step: Step) -> TensorSlice:
    at = {axis: slices.along(axis)[step[axis] % len(slices.along(axis))] for axis in AXES}
    return TensorSlice(at["n"], at["c"], at["h"], at["w"], at["d"])


def _replayed(layers: list[list[_Item]], moves: list[list[_Item]], steps: int, chip: ChipSpec, visits: Visits) -> float:
    """Every item with its own slice; a row takes as long as its slower engine, or both if they do not overlap."""
    total = 0.0
    for number, (computed, moved) in enumerate(zip(layers, moves, strict=True)):
        tiu, dma = _iterations(computed, steps), _iterations(moved, steps)
        for (iteration, row), ns in visits.items():
            dma[iteration] += ns if row == number else 0.0
        total += float((np.maximum(tiu, dma) if chip.engines_overlap else tiu + dma).sum())
    return total


def _iterations(items: list[_Item], steps: int) -> Times:
    """Time of one engine in one row, by iteration of the loop: stage s works on step k - s."""
    result = np.zeros(steps + PIPELINE_STAGES - 1)
    for item in items:
        result[item.stage : item.stage + len(item.times)] += item.times
    return result


def _in_stages(
    layers: list[list[_Item]], moves: list[list[_Item]], steps: int, chip: ChipSpec, visits: Visits
) -> float:
    """Filling, kernel and draining with the first slices (section 11).

    Decision: where the engines do not overlap a row takes the sum of both, as on the clock (hardware.md 5.3).
    """

    def rows(iteration: int) -> Iterator[float]:
        """The rows of an iteration: stages that have a step, what runs once in the iteration of its stage."""
        first, last = max(iteration - steps + 1, 0), min(iteration, PIPELINE_STAGES - 1)
        for number, (computed, moved) in enumerate(zip(layers, moves, strict=True)):
            tiu, dma = (
                sum(
                    float(i.times[0])
                    for i in items
                    if first <= i.stage <= last and (not i.once or i.stage == iteration)
                )
                for items in (computed, moved)
            )
            dma += visits.get((iteration, number), 0.0)
            yield max(tiu, dma) if chip.engines_overlap else tiu + dma

    count = steps + PIPELINE_STAGES - 1
    edges = {*range(PIPELINE_STAGES), *range(steps, count)} & {*range(count)}
    kernel = sum(rows(PIPELINE_STAGES)) if count > len(edges) else 0.0
    return sum(sum(rows(iteration)) for iteration in sorted(edges)) + (count - len(edges)) * kernel


def _move_ns(source: View, target: View, chip: ChipSpec) -> float:
    return command_ns(Move(id=0, dep=0, op="", input=source, output=target), chip)


class _Bench(SliceContext):
    """Adds up the time of the commands of one op's slice; every address is 0."""

    def __init__(
        self, op: TpuOp, graph: Subgraph, out: TensorSlice, have: Mapping[SSAValue, TensorSlice], chip: ChipSpec
    ) -> None:
        super().__init__(op, chip, graph.kind, out)
        self._graph = graph
        self._have = have
        self.ns = 0.0

    def placed(self, index: int) -> Placed:
        """The operand's slice."""
        value = self.op.operands[index]
        graph = self._graph
        return Placed(self._have[value], 0, value in graph.constants, value not in graph.compact)

    def output_address(self) -> int:
        """Nowhere yet."""
        return 0

    def where(self) -> str:
        """The slice."""
        return str(self.output_slice())

    def buffer(self) -> int:
        """Nowhere yet."""
        return 0

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Count a TIU command."""
        self.ns += command_ns(cls(id=0, dep=0, op=op_name(self.op), **fields), self.chip)  # type: ignore[arg-type]


class _GlobalBench(WholeContext):
    """Adds up the time of a global layer; every address is 0."""

    def __init__(self, op: TpuOp, chip: ChipSpec) -> None:
        super().__init__(op, chip)
        self.ns = 0.0

    def address(self, value: SSAValue) -> int:
        """Nowhere yet."""
        del value
        return 0

    def kernel(self, body: Command, tiles: int, load_bytes: int, store_bytes: int) -> None:
        """Count a global kernel."""
        kernel = GlobalKernel(
            id=0, dep=0, op="", body=body, tiles=tiles, load_bytes=load_bytes, store_bytes=store_bytes  # type: ignore[arg-type]
        )  # fmt: skip
        self.ns += command_ns(kernel, self.chip)

    def move(self, source: View, target: View) -> None:
        """Count a copy."""
        self.ns += _move_ns(source, target, self.chip)

    def fill(self, target: View, value: float) -> None:
        """Count a fill."""
        self.ns += command_ns(Fill(id=0, dep=0, op="", output=target, value=value), self.chip)
