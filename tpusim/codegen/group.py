"""The commands of one layer group: the commands of every item in its loop (`tpusim.schedule.turns`)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, product
from typing import Any, cast

from msgspec.structs import replace as replace_struct
from xdsl.ir import Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.codegen.emitter import Emitter
from tpusim.codegen.provenance import namer, source_name
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.types import address_of, is_tensor, shape_of
from tpusim.isa.commands import Command, Fill, Source, slice_owner
from tpusim.isa.layout import align, distance_bytes, work_area
from tpusim.isa.region import View
from tpusim.isa.stream import Location
from tpusim.ops.framework.base import TensorSlice, TpuOp
from tpusim.ops.framework.emission import Placed, SliceContext
from tpusim.ops.framework.logical import Extents, logical_axes
from tpusim.ops.framework.views import gmem_view, lmem_view, lmem_window, transfers
from tpusim.ops.pad import borders
from tpusim.ops.structure import TpuGroup, TpuLoad, TpuStore, Transfer
from tpusim.schedule import GroupSchedule, Overlap, Scheduled, Step, Transferred, turns, work_bytes


class LocalContext(SliceContext):
    """The EmitContext of one op at one step of a group."""

    def __init__(self, emitter: Emitter, op: TpuOp, group: GroupSchedule, step: Step) -> None:
        super().__init__(op, emitter.chip, group.graph.kind, group.slices[op.results[0]].at(step))
        self._emitter = emitter
        self._group = group
        self._step = step
        self._has_views = False
        operands = [self._held(i) for i, value in enumerate(op.operands) if is_tensor(value)]
        self._name_of = namer(operands, slice_owner(op_name(op), step.text(), emitter.group), emitter.chip)

    def _held(self, index: int) -> tuple[Source, View]:
        """The source of the operand's slice, and its view in local memory."""
        value, at = self.op.operands[index], self.placed(index)
        owner = value.owner
        assert isinstance(owner, Operation)
        held = self._group.slices[value].oversteps(self._step)
        step = self._emitter.first_step if held else self._step.text()
        view = lmem_view(value, at.address, at.have.shape, self.chip, constant=at.constant, aligned=at.aligned)
        loaded = isinstance(owner, TpuLoad)
        return slice_owner(op_name(owner), step, self._emitter.group, loaded=loaded), view

    def placed(self, index: int) -> Placed:
        """The operand as its Load or its op placed it."""
        value, group = self.op.operands[index], self._group
        graph, have = group.graph, group.slices[value].at(self._step)
        return Placed(have, group.allocation.address[value], value in graph.constants, value not in graph.compact)

    def loaded_alone(self, index: int) -> bool:
        """Whether the operand has a Load that nothing else reads."""
        value = self.op.operands[index]
        return isinstance(value.owner, TpuLoad) and value.has_one_use()

    def output_address(self) -> int:
        """Where the result's slice is in local memory, in bytes from the start of a lane."""
        return self._group.allocation.address[self.op.results[0]]

    def where(self) -> str:
        """The name of the step of the group's loop in messages."""
        return self._step.text()

    def buffer(self) -> int:
        """LMEM byte offset of the work buffer; a caller makes views in it."""
        self._has_views = True
        return self._group.allocation.address.get(self.op, 0)

    def unnamed_buffer(self) -> View | None:
        """The work buffer, if no view of the op's commands states the part of it that they use."""
        address, size = self._group.allocation.address.get(self.op), self._group.allocation.size.get(self.op, 0)
        return None if self._has_views or address is None or not size else work_area(address, size, self.chip)

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Append a TIU command with the op's name and the step of the group's loop."""
        self._emitter.add(cls, name_of=self._name_of, op=op_name(self.op), step=self._step.text(), **fields)


def with_work_areas(group: GroupSchedule, chip: ChipSpec) -> GroupSchedule:
    """The group with work areas that are large enough for its commands; only groups that TPU-MLIR placed need this.

    Areas outside of local memory, where some chips have tables, are moved to the end. Then follows one area for the ops
    whose work area is too small, which they use in turn; the library computes these ops with fewer bytes.
    """
    placed = group.allocation
    needed = {op: work_bytes(op, group.slices, group.graph, chip) for op in group.graph.ops}
    large = {op: size for op, size in needed.items() if size > placed.size.get(op, 0)}
    outside = [owner for owner, start in placed.address.items() if start + placed.size[owner] > chip.lmem_bytes]
    if not large and not outside:
        return group
    address, size = dict(placed.address), {**placed.size, **large}
    inside = (address[owner] + placed.size[owner] for owner in address if owner not in outside)
    stop = align(max(inside, default=0), chip.eu_bytes)
    for owner in outside:
        address[owner], stop = stop, align(stop + placed.size[owner], chip.eu_bytes)
    address |= dict.fromkeys(large, stop)
    peak = stop + max(large.values(), default=0)
    return replace(group, allocation=replace(placed, address=address, size=size, peak_bytes=peak))


def emit_group(group: GroupSchedule, emitter: Emitter) -> None:
    """All commands of one group: consecutive steps on each core, between two barriers; idle cores only have these."""
    if emitter.cores > 1 and group.overlap != Overlap():
        raise ImportModelError(
            f"tpu.Group {', '.join(map(op_name, group.graph.ops[:3]))}: overlaps adjacent groups, which needs one "
            f"core, got {emitter.cores} cores; group the module for {emitter.cores} cores"
        )
    emitter.barrier()
    for core, steps in enumerate(group.shares(emitter.cores)):
        emitter.core = core
        if steps:
            _emit_steps(group, steps, emitter)
    emitter.core = 0
    emitter.barrier()


def _emit_steps(group: GroupSchedule, steps: range, emitter: Emitter) -> None:
    """The loop over the steps of one core; tensors that stay are loaded in its first iterations."""
    emitter.first_step = group.sections.loop[steps[0]].text()
    for _, row in groupby(turns(group, steps), key=lambda turn: (turn.iteration, turn.row)):
        emitter.begin_row()
        for turn in row:
            if isinstance(turn.item, Transferred) and turn.home is not group:  # for the next group, or the one before
                emitter.home = emitter.group + (1 if turn.item.kind == "load" else -1)
            _emit_item(turn.item, turn.home, turn.home.sections.loop[turn.step], emitter)
            emitter.home = -1
    emitter.end_rows()


def _emit_item(item: Scheduled, group: GroupSchedule, step: Step, emitter: Emitter) -> None:
    if isinstance(item, TpuOp):
        context, first = LocalContext(emitter, item, group, step), len(emitter.commands)
        item.emit(context)
        if (work := context.unnamed_buffer()) is not None:
            emitter.claim(first, work)
        emitter.locations.append(_location(item, context, len(emitter.commands) - 1))
    elif item.kind == "load":
        _load(item.value, group, step, emitter)
    else:
        _store(item.value, group, step, emitter)


def _location(op: TpuOp, context: LocalContext, command: int) -> Location:
    """Where the op's result slice is after its last command."""
    part, shape = context.output_slice(), shape_of(op.results[0])
    return Location(
        command=command,
        tensor=op_name(op),
        view=context.output(),
        start=(part.n[0], part.c[0], part.d[0], part.h[0], part.w[0]),
        whole=logical_axes(shape, context.group_type, context.chip),
        shape=shape,
        depth=part.d[1],
    )


def _load(value: SSAValue, group: GroupSchedule, step: Step, emitter: Emitter) -> None:
    load, chip, graph = value.owner, emitter.chip, group.graph
    assert isinstance(load, TpuLoad)
    constant, part = value in graph.constants, group.slices[value].at(step)
    whole = gmem_view(load.input, _address(load.input), chip, constant=constant)
    address, aligned = group.allocation.address[value], value not in graph.compact
    local = lmem_view(value, address, part.shape, chip, constant=constant, aligned=aligned)
    lengths, kind = _extents(value, group, emitter), "channels" if value in graph.copied_by_loads else ""
    holds, name = Source(source_name(load.input)), op_name(load)
    for piece, steps, origin in _pieces(load, part, lengths, chip):
        outside = _from(whole, origin)
        held = lmem_window(local, part, piece, chip)
        for source, target, start in transfers(outside, lengths, piece, held, chip, steps):
            window = (None, None) if constant else (start, lengths)
            emitter.move(
                source, target, kind=kind, holds=holds, op=name, step=step.text(), window=window, strides=steps,
                origin=origin,
            )  # fmt: skip


def _pieces(
    load: TpuLoad, part: TensorSlice, lengths: Extents, chip: ChipSpec
) -> Iterator[tuple[TensorSlice, Extents | None, int | None]]:
    """The parts that a load moves at once: the whole slice, or channels at equal distances in global memory."""
    scattered = load.scattered(lengths)
    if scattered is None:
        yield part, _strides(load, lengths), None
    else:
        yield from scattered.pieces(part, chip.lanes)


def _store(value: SSAValue, group: GroupSchedule, step: Step, emitter: Emitter) -> None:
    slices, chip, owner = group.slices[value], emitter.chip, value.owner
    have = slices.at(step)
    part = have if emitter.cores == 1 else slices.unshared.at(step)
    if 0 in part.shape:
        return
    assert isinstance(owner, Operation)
    local = lmem_view(value, group.allocation.address[value], have.shape, chip, constant=False, aligned=True)
    store, result = _stored(value)
    whole = _from(gmem_view(value, _address(result), chip, constant=False), store.origin)
    home = emitter.group if emitter.home < 0 else emitter.home
    holds = slice_owner(op_name(owner), step.text(), home)
    lengths, name, at = _extents(value, group, emitter), op_name(store), step.text()
    steps, origin = _strides(store, lengths), store.origin
    if store.pads and not any(start for start, _ in (part.n, part.c, part.d, part.h, part.w)):
        outside = gmem_view(result, _address(result), chip, constant=False)
        for view in borders(store.middle, outside, store.pads, chip):
            emitter.add(Fill, output=view, value=store.pad_value, op=name, step=at, tensor=store.tensor)
    for piece in (part,) if steps is None or _as_wide(part, result, group, chip) else _rows(part):
        held = lmem_window(local, have, piece, chip)
        for target, source, start in transfers(whole, lengths, piece, held, chip, steps):
            emitter.move(
                source, target, holds=holds, op=name, step=at, tensor=store.tensor, window=(start, lengths),
                strides=steps, origin=origin,
            )  # fmt: skip


def _from(view: View, origin: int | None) -> View:
    """A tensor in global memory that begins `origin` elements after the view's start."""
    return replace_struct(view, address=view.address + distance_bytes(view, origin or 0))


def _as_wide(part: TensorSlice, result: SSAValue, group: GroupSchedule, chip: ChipSpec) -> bool:
    """Whether a slice has rows as long as the tensor outside the group; the compiler moves shorter rows one by one."""
    return part.w[1] == logical_axes(shape_of(result), group.graph.kind, chip)[4]


def _rows(part: TensorSlice) -> Iterator[TensorSlice]:
    """A slice row by row."""
    starts = (range(start, start + size) for start, size in (part.n, part.c, part.h))
    return (replace(part, n=(n, 1), c=(c, 1), h=(h, 1)) for n, c, h in product(*starts))


def _strides(transfer: Transfer, lengths: Extents) -> Extents | None:
    """Distances in global memory along the axes of a group; None for a tensor that is stored in order."""
    return cast("Extents | None", transfer.strides(lengths))


def _stored(value: SSAValue) -> tuple[TpuStore, SSAValue]:
    """The store of a tensor, and the result of the group that it writes."""
    store = next(use.operation for use in value.uses if isinstance(use.operation, TpuStore))
    group = store.parent_op()
    assert isinstance(group, TpuGroup)
    return store, group.result_of(store)


def _extents(value: SSAValue, group: GroupSchedule, emitter: Emitter) -> Extents:
    """(n, c, d, h, w) of the whole tensor as its group sees it."""
    return logical_axes(shape_of(value), group.graph.kind, emitter.chip)


def _address(value: SSAValue) -> int:
    address = address_of(value)
    if address is None:
        raise ImportModelError(f"tensor '{value_name(value)}': an address is required; run `tpusim assign` first")
    return address
