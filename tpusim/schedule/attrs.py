"""The text form of a schedule: `flow` and section counts of a `tpu.Group`, `#tpu.lg` of its items (layer_group.md 14).

A module written by hand is read like a module of the search: only these attributes matter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim.errors import ImportModelError
from tpusim.ir.attrs import LayerGroupInfo, int_attr, ints, ints_attr, op_name, value_name
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.ops.framework.logical import AXES, PIPELINE_STAGES
from tpusim.ops.structure import TopWeight, TpuGroup, TpuLoad, TpuStore, TpuYield, group_info
from tpusim.schedule.graph import Subgraph
from tpusim.schedule.group import Allocation, GroupSchedule, Guest, Overlap
from tpusim.schedule.rows import Row, Scheduled, Transferred, stage_of, tensor_of
from tpusim.schedule.steps import Sections, ValueSlices

Way = Literal["up", "down"]
Kind = TypeVar("Kind", bound=Scheduled)


# -------------------------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True)
class ScheduleAttrs:
    """The text form of a schedule: attributes of the group, and `#tpu.lg` of every op, load and store."""

    group: dict[str, Attribute]
    items: dict[Scheduled, LayerGroupInfo]


def to_attrs(schedule: GroupSchedule) -> ScheduleAttrs:
    """The text form of a schedule."""
    ids = _numbered(schedule)
    group: dict[str, Attribute] = {f"{axis}secs": int_attr(schedule.sections.count(axis)) for axis in AXES}
    group["swpipl_stage_num"] = int_attr(PIPELINE_STAGES)
    group["group_type"] = int_attr(int(schedule.graph.kind))
    group["flow"] = ints_attr(_by_row({at: [ids[item] for item in row.items] for at, row in enumerate(schedule.rows)}))
    overlap = schedule.overlap
    lists = {
        "self_up": [ids[t] for t in overlap.self_up],
        "self_down": [ids[t] for t in overlap.self_down],
        "other_up": _guests(overlap.other_up),
        "other_down": _guests(overlap.other_down),
    }
    group |= {f"{key}_overlap_op": ints_attr(codes) for key, codes in lists.items() if codes}
    return ScheduleAttrs(group, {item: _info(schedule, item, number) for item, number in ids.items()})


def _numbered(schedule: GroupSchedule) -> dict[Scheduled, int]:
    """Ids by stage, then row, transfers before ops."""
    ids: dict[Scheduled, int] = {}
    for stage in range(PIPELINE_STAGES):
        for row in schedule.rows:
            for item in (*row.transfers, *row.layers):
                if stage_of(item) == stage:
                    ids[item] = len(ids)
    return ids


def _guests(guests: Sequence[Guest]) -> list[int]:
    rows = sorted({guest.row for guest in guests})
    return _by_row({row: [_numbered(g.home)[g.transfer] for g in guests if g.row == row] for row in rows})


def _by_row(ids: Mapping[int, Sequence[int]]) -> list[int]:
    """The flow list: for each row -(row + 1), then the ids of its items."""
    return [code for row, found in ids.items() for code in (-(row + 1), *found)]


def _info(schedule: GroupSchedule, item: Scheduled, number: int) -> LayerGroupInfo:
    value, placed = tensor_of(item), schedule.allocation
    info = replace(
        slice_info(schedule.slices[value]),
        out_addr=placed.address[value],
        out_size=placed.size[value],
        eu_align=value not in schedule.graph.compact,
        id=number,
        stage=stage_of(item),
        group_type=int(schedule.graph.kind),
    )
    if isinstance(item, TpuOp) and item in placed.address:
        info = replace(info, buffer_addr=placed.address[item], buffer_size=placed.size[item])
    return info


def slice_info(slices: ValueSlices) -> LayerGroupInfo:
    """A tensor's slices as the `#tpu.lg` attribute stores them: offsets and extents per axis."""
    fields: dict[str, tuple[int, ...]] = {}
    for axis in AXES:
        windows = slices.along(axis)
        fields[f"{axis}_idx"] = tuple(w[0] for w in windows)
        fields[f"{axis}_slice"] = tuple(w[1] for w in windows)
    return LayerGroupInfo(**fields)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------------------- reading


def from_attrs(group: TpuGroup) -> GroupSchedule:
    """The schedule of a group in text form. Raises ImportModelError if its attributes are missing or contradict."""
    reader = _Reader(group)
    overlap = Overlap(reader.given("up"), reader.given("down"), _taken(group, "up"), _taken(group, "down"))
    return replace(reader.schedule(), overlap=overlap)


class _Reader:
    """Items, rows and areas of one group, without what its neighbours do."""

    def __init__(self, group: TpuGroup) -> None:
        self._group = group
        self._ops = [op for op in group.body.block.ops if not isinstance(op, TpuYield)]
        self._infos = {op: _info_of(op) for op in self._ops}
        self._items = {op: _item(op, info) for op, info in self._infos.items()}
        self.by_id = {info.id: self._items[op] for op, info in self._infos.items()}

    def schedule(self) -> GroupSchedule:
        """The group's schedule from its attributes, without the overlap with its neighbours."""
        owners = {op: info for op, info in self._infos.items() if not isinstance(op, TpuStore)}
        self._check_stores()
        graph = self._graph()
        slices = {tensor_of(self._items[op]): _slices(info) for op, info in owners.items()}
        return GroupSchedule(graph, Sections(**self._group.sections()), slices, self._rows(), _placed(owners))

    def given(self, way: Way) -> tuple[Transferred, ...]:
        """Transfers of this group that a neighbour does."""
        codes = sorted(self._group.given(way))
        kind = "load" if way == "up" else "store"
        return tuple(self.transfers(codes, kind, f"self_{way}_overlap_op", "").values())

    def transfers(self, codes: Iterable[int], kind: str, name: str, where: str) -> dict[int, Transferred]:
        """The transfers of a list of ids. Raises ImportModelError for an id of something else."""
        known = {n: i for n, i in self.by_id.items() if isinstance(i, Transferred) and i.kind == kind}
        lost = [code for code in codes if code not in known]
        if lost:
            raise ImportModelError(
                f"tpu.Group: {name} names {lost}, which are no transfers of the group{where}; run `tpusim group`"
            )
        return {code: known[code] for code in codes}

    def _rows(self) -> tuple[Row, ...]:
        if self._group.flow is None:
            raise ImportModelError("tpu.Group: attribute flow is required, the rows of its loop; run `tpusim group`")
        rows: list[list[Scheduled]] = []
        for code in ints(self._group.flow):
            if code < 0:
                rows.append([])
            elif code not in self.by_id or not rows:
                raise ImportModelError(f"tpu.Group: flow names item {code}, which is not in the group")
            else:
                rows[-1].append(self.by_id[code])
        seen = {item for row in rows for item in row}
        lost = next((op for op, item in self._items.items() if item not in seen), None)
        if lost is not None:
            raise ImportModelError(
                f"{lost.name} '{op_name(lost)}': no row of the group's flow has it; run `tpusim group`"
            )
        return tuple(Row(_of(row, TpuOp), _of(row, Transferred)) for row in rows)

    def _graph(self) -> Subgraph:
        loads = [op for op in self._ops if isinstance(op, TpuLoad)]
        weights = tuple(op.output for op in loads if isinstance(op.input.owner, TopWeight))
        inputs = tuple(op.output for op in loads if not isinstance(op.input.owner, TopWeight))
        ops = tuple(op for op in self._ops if isinstance(op, TpuOp))
        stored = {op.input for op in self._ops if isinstance(op, TpuStore)}
        outputs = tuple(op.results[0] for op in ops if op.results[0] in stored)
        compact = frozenset(op.output for op in loads if not self._infos[op].eu_align)
        return Subgraph(ops, inputs, weights, outputs, compact, self._kind())

    def _kind(self) -> GroupType:
        """The group's type; without it that of its items."""
        kind = self._group.attributes.get("group_type")
        if isinstance(kind, IntegerAttr):
            return GroupType(kind.value.data)
        return GroupType(next((info.group_type for info in self._infos.values()), 0))

    def _check_stores(self) -> None:
        stored: set[SSAValue] = set()
        for store in (op for op in self._ops if isinstance(op, TpuStore)):
            self._check(store)
            if store.input in stored:
                raise ImportModelError(f"tpu.Store '{op_name(store)}': '{value_name(store.input)}' is stored twice")
            stored.add(store.input)

    def _check(self, store: TpuStore) -> None:
        """Raise ImportModelError unless a store reads its tensor at the address and with the slices of its producer."""
        source, own = store.input.owner, self._infos[store]
        made = self._infos.get(source) if isinstance(source, Operation) else None
        if made is None:
            raise ImportModelError(f"tpu.Store '{op_name(store)}': the group has no '{value_name(store.input)}'")
        for name in ("out_addr", *(f"{axis}_{part}" for axis in AXES for part in ("idx", "slice"))):
            if getattr(own, name) != getattr(made, name):
                raise ImportModelError(
                    f"tpu.Store '{op_name(store)}': {name} must be that of '{value_name(store.input)}', "
                    f"{getattr(made, name)}, got {getattr(own, name)}; change both"
                )


def _info_of(op: Operation) -> LayerGroupInfo:
    info = group_info(op)  # type: ignore[arg-type]
    if info is None:
        raise ImportModelError(f"{op.name} '{op_name(op)}': #tpu.lg is required inside a group; run `tpusim group`")
    return info


def _item(op: Operation, info: LayerGroupInfo) -> Scheduled:
    if isinstance(op, TpuLoad):
        return Transferred(op.output, "load", info.stage)
    if isinstance(op, TpuStore):
        return Transferred(op.input, "store", info.stage)
    assert isinstance(op, TpuOp)
    return op


def _of(row: Iterable[Scheduled], kind: type[Kind]) -> tuple[Kind, ...]:
    return tuple(item for item in row if isinstance(item, kind))


def _slices(info: LayerGroupInfo) -> ValueSlices:
    """The windows of an item's tensor."""
    pairs = (zip(getattr(info, f"{a}_idx"), getattr(info, f"{a}_slice"), strict=True) for a in AXES)
    return ValueSlices(*(tuple(p) for p in pairs))


def _placed(infos: Mapping[Operation, LayerGroupInfo]) -> Allocation:
    address: dict[SSAValue | TpuOp, int] = {}
    size: dict[SSAValue | TpuOp, int] = {}
    for op, info in infos.items():
        address[op.results[0]], size[op.results[0]] = info.out_addr, info.out_size
        if info.buffer_size:
            if not isinstance(op, TpuOp):
                raise ImportModelError(
                    f"{op.name} '{op_name(op)}': buffer_size 0 is required, a transfer has no work area, got "
                    f"{info.buffer_size}; correct its #tpu.lg"
                )
            address[op], size[op] = info.buffer_addr, info.buffer_size
    return Allocation(address, size, max((address[o] + size[o] for o in address), default=0))


def _taken(group: TpuGroup, way: Way) -> tuple[Guest, ...]:
    """The transfers that a group does for others: loads of the group after it (up), stores of the one before (down)."""
    other = group.neighbour("after" if way == "up" else "before")
    rows = group.taken(way)
    codes = [code for found in rows.values() for code in found]
    name, where = f"other_{way}_overlap_op", " after it" if way == "up" else " before it"
    if not codes:
        return ()
    if other is None:
        raise ImportModelError(
            f"tpu.Group: {name} names {codes}, which are no transfers of the group{where}; run `tpusim group`"
        )
    reader = _Reader(other)
    moved, home = reader.transfers(codes, "load" if way == "up" else "store", name, where), reader.schedule()
    return tuple(Guest(row, moved[code], home) for row, found in rows.items() for code in found)
