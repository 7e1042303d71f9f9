"""`GroupSchedule`: all decisions about a layer group."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.ir import SSAValue

from tpusim.isa.layout import ceil_div
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.logical import AXES
from tpusim.schedule.graph import Subgraph
from tpusim.schedule.rows import Row, Scheduled, Transferred, stage_of, tensor_of
from tpusim.schedule.steps import Sections, ValueSlices


@dataclass(frozen=True)
class Allocation:
    """The areas of local memory: address and size (bytes per lane) by owner, a tensor or an op with a work area."""

    address: Mapping[SSAValue | TpuOp, int]
    size: Mapping[SSAValue | TpuOp, int]
    peak_bytes: int
    reused: Mapping[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Result -> the operand whose bytes it takes (layer_group.md 10.1, rule 6)."""


@dataclass(frozen=True)
class Guest:
    """A transfer of a neighbouring group that runs in a row of this one."""

    row: int
    transfer: Transferred
    home: "GroupSchedule"


@dataclass(frozen=True)
class Overlap:
    """The transfers that a group and its neighbours do for each other (layer_group.md 13, 15).

    up: loads, which move up into the group before theirs. down: stores, which move down into the group after theirs.
    """

    self_up: tuple[Transferred, ...] = ()
    """Loads for the first step that the previous group does."""
    self_down: tuple[Transferred, ...] = ()
    """Stores of the last step that the next group does."""
    other_up: tuple[Guest, ...] = ()
    """Loads of the next group that run during the ops of the last step."""
    other_down: tuple[Guest, ...] = ()
    """Stores of the previous group that run during the ops of the first step."""


@dataclass(frozen=True)
class Entry:
    """An item of a row. stays: steps at which its tensor of an earlier step is still valid and is not moved."""

    item: Scheduled
    stage: int
    stays: Container[int]


@dataclass(frozen=True)
class GroupSchedule:
    """The complete schedule of a layer group: produced by planning, read by everything else.

    Its tensors are the values of the module for a planned group, and the results of loads and ops for a group that was
    read from attributes.
    """

    graph: Subgraph
    sections: Sections
    slices: Mapping[SSAValue, ValueSlices]
    rows: tuple[Row, ...]
    allocation: Allocation
    overlap: Overlap = Overlap()

    def held(self, value: SSAValue) -> bool:
        """Whether a tensor is loaded once although the loop has several steps."""
        return self.sections.steps > 1 and self.slices[value].resident

    def shares(self, cores: int) -> list[range]:
        """The steps of each core: ceil(steps, cores) consecutive ones; later cores may have none."""
        steps = range(self.sections.steps)
        share = ceil_div(len(steps), cores)
        return [steps[core * share : (core + 1) * share] for core in range(cores)]

    @cached_property
    def entries(self) -> tuple[tuple[Entry, ...], ...]:
        """The items of every row with their data for the loop."""
        return tuple(tuple(Entry(i, stage_of(i), self._stays(tensor_of(i))) for i in row.items) for row in self.rows)

    def _stays(self, value: SSAValue) -> Container[int]:
        slices = self.slices[value]
        if slices.resident:
            return range(1, self.sections.steps)
        if all(len(slices.along(axis)) >= self.sections.count(axis) for axis in AXES):
            return ()
        return frozenset(i for i, step in enumerate(self.sections.loop) if slices.oversteps(step))
