"""A group as its text says it is: rows, transfers and buffers of a `tpu.Group`, from `flow` and `#tpu.lg` alone.

Nothing of the search is needed, so that a module written by hand reads the same (layer_group.md 8, 9, 14).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal, TypeAlias

from xdsl.ir import Operation, SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import LayerGroupInfo, ints, op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, storage_dtype
from tpusim.layer_group.reuse import laid_out_alike
from tpusim.layer_group.slicing import ValueSlices
from tpusim.ops.base import GroupType, TpuOp
from tpusim.ops.logical import AXES
from tpusim.ops.structure import TopWeight, TpuGroup, TpuLoad, TpuStore, TpuYield, group_info

Engine: TypeAlias = Literal["TIU", "load", "store"]
Kind: TypeAlias = Literal["input", "weight", "result", "work"]


@dataclass(frozen=True)
class Item:
    """One entry of a row. tensor: what is computed or moved; bytes: of its largest slice; held: it runs once."""

    engine: Engine
    name: str
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
    """The operand of its op whose bytes a result takes, as it may (layer_group.md 10.1, rule 6)."""

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.address + self.size

    def banks(self, chip: ChipSpec) -> tuple[int, int]:
        """(first, last) bank it touches."""
        return self.address // chip.lmem_bank_bytes, max(self.end - 1, self.address) // chip.lmem_bank_bytes


@dataclass(frozen=True)
class Visit:
    """A transfer that a group does for its neighbour (layer_group.md 13): which row, which group, where in its memory.

    A store of the group before runs in the first iteration that computes, a load of the group after in the last one.
    """

    row: int
    item: Item
    group: int
    address: int
    size: int


@dataclass(frozen=True)
class GroupView:
    """What a person sees of one group. rows: per row its items; areas by address."""

    index: int
    ops: tuple[tuple[str, str], ...]
    """(name, IR name) of each op."""
    kind: GroupType
    sections: Mapping[str, int]
    rows: tuple[tuple[Item, ...], ...]
    areas: tuple[Area, ...]
    chip: ChipSpec
    cores: int = 1
    """How many share the steps."""
    visits: tuple[Visit, ...] = ()
    """Transfers that it does for its neighbours."""
    given: tuple[Item, ...] = ()
    """Its own transfers of the first or the last step that a neighbour does."""

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
        """Areas that are alive in one row and share bytes, but for results that may; no group of the search has any."""
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
    """An op outside every group."""

    name: str
    op: str
    reason: str


def views(model: Model) -> Iterator[GroupView | GlobalView]:
    """Groups and global ops in program order. Raises ImportModelError for a group without its schedule."""
    chip = chips.of(model)
    index = 0
    for op in model.ops:
        if isinstance(op, TpuGroup):
            yield read_group(op, index, chip, model.number("module.cores") or 1)
            index += 1
        elif isinstance(op, TpuOp):
            reason = op.attributes.get("global_reason")
            yield GlobalView(op_name(op), op.name, getattr(reason, "data", ""))


def read_group(group: TpuGroup, index: int, chip: ChipSpec, cores: int = 1) -> GroupView:
    """One group from its attributes."""
    reader = _Reader(group, chip)
    names = tuple((op_name(op), op.name) for op in reader.items if isinstance(op, TpuOp))
    kind = group.attributes.get("group_type")
    return GroupView(
        index=index,
        ops=names,
        kind=GroupType(kind.value.data) if kind is not None else GroupType.NORMAL,  # type: ignore[attr-defined]
        sections=group.sections(),
        rows=tuple(tuple(reader.item(op) for op in row) for row in reader.rows),
        areas=tuple(sorted(reader.areas(), key=lambda a: (a.address, min(a.rows, default=0)))),
        chip=chip,
        cores=cores,
        visits=tuple(_visits(group, index, chip)),
        given=tuple(
            reader.item(op) for op in reader.items if reader.infos[op].id in group.given("up") | group.given("down")
        ),
    )


def _visits(group: TpuGroup, index: int, chip: ChipSpec) -> Iterator[Visit]:
    """What a group does for the groups beside it."""
    ways: tuple[tuple[Literal["up", "down"], int], ...] = (("up", index - 1), ("down", index + 1))
    for way, number in ways:
        rows, other = group.taken(way), group.neighbour(way)
        if not rows or other is None:
            continue
        reader = _Reader(other, chip)
        by_id = {info.id: op for op, info in reader.infos.items()}
        for row, codes in rows.items():
            for op in (by_id[code] for code in codes if code in by_id):
                info = reader.infos[op]
                yield Visit(row, reader.item(op), number, info.out_addr, info.out_size)


def tensor_name(value: SSAValue) -> str:
    """The tensor's name; the result of a group is the tensor that is stored to it."""
    group = value.owner
    if not isinstance(group, TpuGroup):
        return value_name(value)
    last = group.body.block.last_op
    assert isinstance(last, TpuYield)
    store = last.operands[list(group.results).index(value)].owner  # type: ignore[arg-type]
    return value_name(store.operands[0]) if isinstance(store, TpuStore) else value_name(value)


def _info(op: Operation) -> LayerGroupInfo:
    info = group_info(op)  # type: ignore[arg-type]
    if info is None:
        raise ImportModelError(f"{op.name} '{op_name(op)}': #tpu.lg is required inside a group; run `tpusim group`")
    return info


class _Reader:
    """Rows and lifetimes of one group."""

    def __init__(self, group: TpuGroup, chip: ChipSpec) -> None:
        self.chip = chip
        self.items = [op for op in group.body.block.ops if not isinstance(op, TpuYield)]
        self.infos = {op: _info(op) for op in self.items}
        self.rows = self._rows(group)
        self.row_of = {op: i for i, row in enumerate(self.rows) for op in row}
        self.steps = prod(group.sections().values())
        lost = next((op for op in self.items if op not in self.row_of), None)
        if lost is not None:
            raise ImportModelError(
                f"{lost.name} '{op_name(lost)}': no row of the group's flow has it; run `tpusim group`"
            )

    def _rows(self, group: TpuGroup) -> list[list[Operation]]:
        if group.flow is None:
            raise ImportModelError("tpu.Group: attribute flow is required to show its rows; run `tpusim group`")
        by_id = {info.id: op for op, info in self.infos.items()}
        rows: list[list[Operation]] = []
        for code in ints(group.flow):
            if code < 0:
                rows.append([])
            elif code not in by_id or not rows:
                raise ImportModelError(f"tpu.Group: flow names item {code}, which is not in the group")
            else:
                rows[-1].append(by_id[code])
        return rows

    def held(self, op: Operation) -> bool:
        """Whether the tensor has one slice although the loop has several steps."""
        return self.steps > 1 and all(len(getattr(self.infos[op], f"{axis}_idx")) == 1 for axis in AXES)

    def item(self, op: Operation) -> Item:
        """One entry of a row."""
        moved = isinstance(op, TpuLoad | TpuStore)
        engine: Engine = "load" if isinstance(op, TpuLoad) else "store" if isinstance(op, TpuStore) else "TIU"
        value = op.operands[0] if moved else op.results[0]
        info = self.infos[op]
        elements = prod(max(getattr(info, f"{axis}_slice")) for axis in AXES)
        size = elements * storage_dtype(element_of(value)).itemsize
        return Item(engine, op_name(op), tensor_name(value), info.stage, size, self.held(op))

    def areas(self) -> Iterator[Area]:
        """Every tensor and work area."""
        found = {op: self._area(op, self.infos[op]) for op in self.items if not isinstance(op, TpuStore)}
        for op in self.items:
            info = self.infos[op]
            if op in found:
                yield replace(found[op], in_place_of=self._in_place_of(op, found))
            if info.buffer_size:
                row = self.row_of[op]
                name = f"{op_name(op)} work"
                yield Area(name, "work", info.buffer_addr, info.buffer_size, False, frozenset({row}), {row: "W"})

    def _in_place_of(self, op: Operation, areas: Mapping[Operation, Area]) -> str:
        """The operand whose bytes the op's result takes as it may; empty if there is none."""
        if not isinstance(op, TpuOp) or not self.chip.results_in_place:
            return ""
        mine = areas[op]
        for index, value in enumerate(op.operands):
            owner = value.owner
            theirs = areas.get(owner) if isinstance(owner, Operation) else None
            if theirs is None or not op.may_overwrite(index) or theirs.kind == "weight" or theirs.held:
                continue
            same = (theirs.address, theirs.size) == (mine.address, mine.size)
            alike = laid_out_alike(self._slices(owner), self._slices(op))  # type: ignore[arg-type]
            row = self.row_of[op]
            dies = theirs.rows & mine.rows == frozenset([row]) and theirs.marks.get(row) == "R"
            users = [u.operation for u in value.uses if isinstance(u.operation, TpuOp)]
            if same and alike and dies and users == [op]:
                return theirs.name
        return ""

    def _slices(self, op: Operation) -> ValueSlices:
        """The windows of the op's tensor, per axis."""
        info = self.infos[op]
        pairs = (zip(getattr(info, f"{a}_idx"), getattr(info, f"{a}_slice"), strict=True) for a in AXES)
        return ValueSlices(*(tuple(p) for p in pairs))

    def _area(self, op: Operation, info: LayerGroupInfo) -> Area:
        kind: Kind = "result"
        name = op_name(op)
        if isinstance(op, TpuLoad):
            kind, name = ("weight" if isinstance(op.input.owner, TopWeight) else "input"), tensor_name(op.input)
        users = self._users(op.results[0])
        count, begin = len(self.rows), self._time(op)
        end = max([begin, *(self._time(u) for u in users)])
        held = self.held(op)
        whole = held or end - begin >= count
        rows = range(count) if whole else [t % count for t in range(begin, end + 1)]
        marks: dict[int, str] = {self.row_of[op]: "L" if isinstance(op, TpuLoad) else "W"}
        for user in users:
            row = self.row_of[user]
            marks[row] = marks.get(row, "") + ("S" if isinstance(user, TpuStore) else "R")
        return Area(name, kind, info.out_addr, info.out_size, held, frozenset(rows), marks)

    def _users(self, value: SSAValue) -> list[Operation]:
        inside = set(self.items)
        return list(dict.fromkeys(u.operation for u in value.uses if u.operation in inside))

    def _time(self, op: Operation) -> int:
        """The row at which an item of a step runs, counted from the step's first: stage s is s loops later."""
        return self.infos[op].stage * len(self.rows) + self.row_of[op]
