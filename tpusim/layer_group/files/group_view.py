"""A readable view of a group: the schedule in its attributes, by the names of the module (layer_group.md 8, 9, 14)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, TypeAlias

from xdsl.ir import SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, option
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.upstream import GLOBAL_REASON
from tpusim.layer_group.local_memory import partners
from tpusim.layer_group.slicing import slice_bytes
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.ops.framework.logical import AXES
from tpusim.ops.structure import TpuLoad
from tpusim.schedule import (
    GroupSchedule,
    Guest,
    Scheduled,
    Transferred,
    areas,
    from_attrs,
    marks,
    numbered,
    stage_of,
    tensor_name,
    tensor_of,
)

Engine: TypeAlias = Literal["TIU", "load", "store"]
Kind: TypeAlias = Literal["input", "weight", "result", "work"]


@dataclass(frozen=True)
class EntryView:
    """One entry of a row. tensor: computed or moved; bytes: of its largest slice; held: the entry runs once."""

    engine: Engine
    tensor: str
    stage: int
    bytes: int
    held: bool


@dataclass(frozen=True)
class Area:
    """One area of local memory, in bytes per lane. rows: when it is alive; marks: what happens in a row.

    Marks: `L` loaded, `W` computed, `R` read, `S` stored.
    """

    name: str
    kind: Kind
    address: int
    size: int
    held: bool
    rows: frozenset[int]
    marks: Mapping[int, str]
    in_place_of: str = ""
    """The operand of its op whose bytes a result reuses in place (layer_group.md 10.1, rule 6)."""

    @property
    def end(self) -> int:
        """The first byte after the area."""
        return self.address + self.size

    def banks(self, chip: ChipSpec) -> tuple[int, int]:
        """The first and the last bank of local memory that the area touches."""
        return self.address // chip.lmem_bank_bytes, max(self.end - 1, self.address) // chip.lmem_bank_bytes


@dataclass(frozen=True)
class Visit:
    """A transfer that a group's loop does for a neighbouring group (layer_group.md 13): row, group and address.

    A store of the group before runs in the first iteration that computes, a load of the group after in the last one.
    """

    row: int
    item: EntryView
    group: int
    address: int
    size: int


@dataclass(frozen=True)
class GroupView:
    """The readable view of one group. index: its number (`tpusim.schedule.numbered`); areas by address.

    rows: the items of each row.
    """

    index: int
    ops: tuple[tuple[str, str], ...]
    """(name, IR name) of each op."""
    kind: GroupType
    sections: Mapping[str, int]
    rows: tuple[tuple[EntryView, ...], ...]
    areas: tuple[Area, ...]
    chip: ChipSpec
    cores: int = 1
    """Number of cores that share the steps of the group."""
    visits: tuple[Visit, ...] = ()
    """Transfers that its loop does for neighbouring groups."""
    given: tuple[EntryView, ...] = ()
    """Its transfers of the first or the last step that a neighbouring group's loop does."""

    @property
    def steps(self) -> int:
        """Iterations of the loop before the pipeline drains."""
        return prod(self.sections.values())

    @property
    def peak(self) -> int:
        """Highest byte per lane in use."""
        return max((a.end for a in self.areas), default=0)

    @cached_property
    def overlaps(self) -> tuple[tuple[Area, Area], ...]:
        """Areas alive in one row that share bytes, except results in place; no group of the search has any."""
        found: list[tuple[Area, Area]] = []
        for i, one in enumerate(self.areas):
            for other in self.areas[i + 1 :]:
                apart = other.address >= one.end or one.address >= other.end
                meant = one.in_place_of == other.name or other.in_place_of == one.name
                if not apart and not meant and not one.rows.isdisjoint(other.rows):
                    found.append((one, other))
        return tuple(found)


@dataclass(frozen=True)
class GlobalView:
    """An op outside every group, and why it is outside. index: its number; None for a view, which has no command."""

    index: int | None
    name: str
    op: str
    reason: str


def views(model: Model) -> Iterator[GroupView | GlobalView]:
    """Groups and global ops in program order. Raises ImportModelError for a group without its schedule."""
    chip = chips.of(model)
    for op, number in numbered(model):
        if isinstance(op, TpuOp):
            reason = op.attributes.get(GLOBAL_REASON)
            yield GlobalView(number, op_name(op), op.name, getattr(reason, "data", ""))
        elif number is not None:
            yield view_of(from_attrs(op), number, chip, model.number("module.cores") or 1)


def view_number(found: Sequence[GroupView | GlobalView], number: int) -> GroupView | GlobalView:
    """The group or global layer of that number. Raises ConfigError if the module has none."""
    for view in found:
        if view.index == number:
            return view
    count = sum(view.index is not None for view in found)
    has = f"groups 0 to {count - 1} only" if count else "no groups"
    raise ConfigError(f"{option('group', number)}: the module has {has}; `tpusim group --show` lists them")


def group_number(found: Sequence[GroupView | GlobalView], number: int) -> GroupView:
    """The layer group of that number. Raises ConfigError if the module has none, or it is a global layer."""
    view = view_number(found, number)
    if isinstance(view, GroupView):
        return view
    able = [str(other.index) for other in found if isinstance(other, GroupView)]
    others = f"choose one of {', '.join(able)}" if able else "the module has only global layers"
    raise ConfigError(
        f"{option('group', number)}: a layer group, which has rows and sections, is required, got the global layer "
        f"'{view.name}' ({view.op}); {others}"
    )


def view_of(schedule: GroupSchedule, index: int, chip: ChipSpec, cores: int = 1) -> GroupView:
    """One group by names; index: its number. Neighbours that share transfers have the numbers before and after it."""
    overlap = schedule.overlap
    ways = ((overlap.other_down, index - 1), (overlap.other_up, index + 1))
    found = sorted(_areas(schedule, chip), key=lambda a: (a.address, min(a.rows, default=0)))
    return GroupView(
        index=index,
        ops=tuple((op_name(op), op.name) for op in schedule.graph.ops),
        kind=schedule.graph.kind,
        sections={axis: schedule.sections.count(axis) for axis in AXES},
        rows=tuple(tuple(_item(item, schedule) for item in row.items) for row in schedule.rows),
        areas=tuple(found),
        chip=chip,
        cores=cores,
        visits=tuple(_visit(guest, group) for guests, group in ways for guest in guests),
        given=tuple(_item(transfer, schedule) for transfer in (*overlap.self_up, *overlap.self_down)),
    )


def _visit(guest: Guest, group: int) -> Visit:
    placed, value = guest.home.allocation, guest.transfer.value
    return Visit(guest.row, _item(guest.transfer, guest.home), group, placed.address[value], placed.size[value])


def _item(item: Scheduled, schedule: GroupSchedule) -> EntryView:
    value = tensor_of(item)
    engine: Engine = item.kind if isinstance(item, Transferred) else "TIU"
    size = slice_bytes(value, prod(schedule.slices[value].sizes))
    return EntryView(engine, _tensor(value), stage_of(item), size, schedule.held(value))


def _tensor(value: SSAValue) -> str:
    """The name of a tensor; a loaded tensor has its name in global memory."""
    return tensor_name(value.owner.input if isinstance(value.owner, TpuLoad) else value)


def _areas(schedule: GroupSchedule, chip: ChipSpec) -> Iterator[Area]:
    """Every tensor and work area of the group, with address and rows."""
    placed, graph, rows = schedule.allocation, schedule.graph, schedule.rows
    found = areas(schedule)
    able, uses = partners(graph, rows, schedule.slices, found, chip), marks(rows)
    for buffer in found:
        owner = buffer.owner
        kind: Kind = "work" if isinstance(owner, TpuOp) else "result"
        kind = "weight" if owner in graph.constants else "input" if owner in graph.inputs else kind
        operands = able.get(owner, ()) if isinstance(owner, SSAValue) else ()
        taken = (_tensor(v) for v in operands if placed.address[v] == placed.address[owner])
        yield Area(
            f"{op_name(owner)} work" if isinstance(owner, TpuOp) else _tensor(owner),
            kind,
            placed.address[owner],
            buffer.size,
            buffer.held,
            buffer.rows(len(rows)),
            uses.get(owner, {}),
            next(taken, ""),
        )
