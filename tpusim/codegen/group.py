"""Replay of one layer group: the loop of spec/layer_group.md 15 over the `flow` of a tpu.Group."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from xdsl.ir import Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.codegen.emitter import Emitter
from tpusim.codegen.holds import namer, source_name
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import LayerGroupInfo, ints, op_name, value_name
from tpusim.ir.types import address_of, is_tensor, shape_of
from tpusim.isa.commands import Command, slice_owner
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View
from tpusim.isa.stream import Location
from tpusim.ops.base import GroupType, TensorSlice, TpuOp, Window
from tpusim.ops.emission import Placed, SliceContext
from tpusim.ops.logical import AXES, PIPELINE_STAGES, Extents, logical_axes, loop_steps
from tpusim.ops.structure import (
    TopWeight,
    TpuGroup,
    TpuLoad,
    TpuStore,
    TpuYield,
    group_info,
)
from tpusim.ops.views import gmem_view, lmem_view, lmem_window, transfers


@dataclass(frozen=True)
class Step:
    """One iteration's position along the sliced axes."""

    n: int = 0
    c: int = 0
    h: int = 0
    d: int = 0
    w: int = 0

    def text(self) -> str:
        """Short form for commands and messages: "n0h2"."""
        extra = "".join(f"{a}{getattr(self, a)}" for a in "cdw" if getattr(self, a))
        return f"n{self.n}h{self.h}{extra}"


def steps_of(sections: dict[str, int]) -> list[Step]:
    """All steps in loop order: c fastest, then w, h, d, n."""
    return [Step(**at) for at in loop_steps(sections)]


def info_of(op: Operation) -> LayerGroupInfo:
    """The op's `#tpu.lg`. Raises ImportModelError if it has none."""
    info = group_info(op)  # type: ignore[arg-type]
    if info is None:
        raise ImportModelError(f"{op.name} '{op_name(op)}': #tpu.lg is required inside a group; run `tpusim group`")
    return info


def entry(indices: Sequence[int], sizes: Sequence[int], step: int) -> Window:
    """The window of a step; a table shorter than the loop repeats (held tensors have one entry)."""
    return indices[step % len(indices)], sizes[step % len(sizes)]


def slice_at(info: LayerGroupInfo, step: Step) -> TensorSlice:
    """The slice of a tensor at a step."""
    return TensorSlice(
        entry(info.n_idx, info.n_slice, step.n),
        entry(info.c_idx, info.c_slice, step.c),
        entry(info.h_idx, info.h_slice, step.h),
        entry(info.w_idx, info.w_slice, step.w),
        entry(info.d_idx, info.d_slice, step.d),
    )


def overstepped(info: LayerGroupInfo, step: Step) -> bool:
    """Whether the step lies outside the tensor's tables, i.e. the tensor is resident."""
    return any(getattr(step, a) >= len(getattr(info, f"{a}_idx")) for a in AXES)


def extents(value: SSAValue, info: LayerGroupInfo, chip: ChipSpec) -> Extents:
    """(n, c, d, h, w) of the whole tensor as its group sees it."""
    return logical_axes(shape_of(value), GroupType(info.group_type), chip)


class LocalContext(SliceContext):
    """The EmitContext of one op at one step of a group."""

    def __init__(self, emitter: Emitter, op: TpuOp, step: Step) -> None:
        self._info = info_of(op)
        super().__init__(op, emitter.chip, GroupType(self._info.group_type), slice_at(self._info, step))
        self._emitter = emitter
        self._step = step
        operands = [self._held(i) for i, value in enumerate(op.operands) if is_tensor(value)]
        self._name_of = namer(operands, slice_owner(op_name(op), step.text()), emitter.chip)

    def _held(self, index: int) -> tuple[str, View]:
        """The operand's slice in local memory, and the name of what put it there."""
        value, at = self.op.operands[index], self.placed(index)
        owner = value.owner
        assert isinstance(owner, Operation)
        held = overstepped(info_of(owner), self._step)
        step = self._emitter.first_step if held else self._step.text()
        view = lmem_view(value, at.address, at.have.shape, self.chip, constant=at.constant, aligned=at.aligned)
        return slice_owner(op_name(owner), step), view

    def placed(self, index: int) -> Placed:
        """The operand as its Load or its op put it."""
        owner = self.op.operands[index].owner
        assert isinstance(owner, Operation)
        info = info_of(owner)
        constant = isinstance(owner, TpuLoad) and isinstance(owner.input.owner, TopWeight)
        return Placed(slice_at(info, self._step), info.out_addr, constant, info.eu_align)

    def output_address(self) -> int:
        """Where the result is."""
        return self._info.out_addr

    def where(self) -> str:
        """The step, for messages."""
        return self._step.text()

    def buffer(self) -> int:
        """LMEM byte offset of the work buffer."""
        return self._info.buffer_addr

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Append a TIU command."""
        self._emitter.add(cls, name_of=self._name_of, op=op_name(self.op), step=self._step.text(), **fields)


def emit_group(group: TpuGroup, emitter: Emitter) -> None:
    """All commands of one group: consecutive steps on each core, between two barriers; idle cores have these only."""
    items = {info_of(op).id: op for op in group.body.block.ops if not isinstance(op, TpuYield)}
    rows = _rows(group, items)
    steps = steps_of(group.sections())
    if emitter.cores > 1 and any(group.given(way) or group.taken(way) for way in ("up", "down")):
        raise ImportModelError(
            f"tpu.Group {', '.join(op_names(group)[:3])}: overlaps its neighbours, between which {emitter.cores} cores "
            f"meet; run `tpusim group --cores {emitter.cores}`"
        )
    share = ceil_div(len(steps), emitter.cores)
    emitter.barrier()
    for core in range(emitter.cores):
        emitter.core, part = core, steps[core * share : (core + 1) * share]
        if part:
            _replay(rows, part, _Visits(group, len(part)), emitter)
    emitter.core = 0
    emitter.barrier()


def _replay(rows: list[list[Operation]], steps: list[Step], visits: "_Visits", emitter: Emitter) -> None:
    """The loop over the steps of one core; tensors that stay are loaded in its first iterations."""
    ring: deque[Step] = deque(maxlen=PIPELINE_STAGES)
    emitter.first_step = steps[0].text()
    for iteration in range(len(steps) + PIPELINE_STAGES - 1):
        draining = iteration - len(steps) + 1
        ring.appendleft(steps[iteration] if draining <= 0 else steps[-1])
        for number, row in enumerate(rows):
            emitter.begin_row()
            for op in row:
                if not visits.skips(op, iteration):
                    _emit_item(op, emitter, ring, min(iteration, PIPELINE_STAGES - 1), max(draining, 0), iteration)
            visits.emit(number, iteration, emitter)
    emitter.end_rows()


class _Visits:
    """Transfers that a group and its neighbours do for each other (layer_group.md 13, 15)."""

    def __init__(self, group: TpuGroup, steps: int) -> None:
        self._skipped = {0: group.given("up"), steps + PIPELINE_STAGES - 2: group.given("down")}
        self._guests = [(1, *_guests(group, "up")), (steps, *_guests(group, "down"))]

    def skips(self, op: Operation, iteration: int) -> bool:
        """Whether a neighbour does this item of the first or last iteration."""
        return iteration in self._skipped and info_of(op).id in self._skipped[iteration]

    def emit(self, row: int, iteration: int, emitter: Emitter) -> None:
        """The neighbours' items of a row: stores of a last step beside the first ops, loads of a first step the last.

        A group of one step has both in one iteration.
        """
        for when, rows, step in self._guests:
            for op in rows.get(row, ()) if when == iteration else ():
                (_load if isinstance(op, TpuLoad) else _store)(op, emitter, info_of(op), step)  # type: ignore[arg-type]


def _guests(group: TpuGroup, way: Literal["up", "down"]) -> tuple[dict[int, list[Operation]], Step]:
    """(row -> transfers of the neighbour that run in it, the step of the neighbour that they belong to)."""
    codes, other = group.taken(way), group.neighbour(way)
    if not codes:
        return {}, Step()
    wanted = TpuStore if way == "up" else TpuLoad
    moved = [op for op in other.body.block.ops if isinstance(op, wanted)] if other is not None else []
    items: dict[int, Operation] = {info_of(op).id: op for op in moved}
    lost = [code for row in codes.values() for code in row if code not in items]
    if other is None or lost:
        raise ImportModelError(
            f"tpu.Group: other_{way}_overlap_op names {lost or list(codes)}, which are no transfers of the group "
            f"{'before' if way == 'up' else 'after'} it; run `tpusim group`"
        )
    step = steps_of(other.sections())[-1] if way == "up" else steps_of(other.sections())[0]
    return {row: [items[code] for code in found] for row, found in codes.items()}, step


def _rows(group: TpuGroup, items: dict[int, Operation]) -> list[list[Operation]]:
    """The flow list as rows of ops; a negative entry starts a row."""
    if group.flow is None:
        raise ImportModelError("tpu.Group: attribute flow is required for code generation; run `tpusim group`")
    rows: list[list[Operation]] = []
    for code in ints(group.flow):
        if code < 0:
            rows.append([])
        elif code not in items or not rows:
            raise ImportModelError(f"tpu.Group: flow names item {code}, which is not in the group")
        else:
            rows[-1].append(items[code])
    return rows


def _emit_item(op: Operation, emitter: Emitter, ring: deque[Step], newest: int, draining: int, iteration: int) -> None:
    """Execute one item if its stage is active and, for a resident tensor, only the first time."""
    info = info_of(op)
    if info.stage > newest or info.stage < draining:
        return
    step = ring[info.stage]
    if overstepped(info, step) and iteration != info.stage:
        return
    if isinstance(op, TpuLoad):
        _load(op, emitter, info, step)
    elif isinstance(op, TpuStore):
        _store(op, emitter, info, step)
    elif isinstance(op, TpuOp):
        context = LocalContext(emitter, op, step)
        op.emit(context)
        emitter.locations.append(_location(op, context, len(emitter.commands) - 1))


def _location(op: TpuOp, context: LocalContext, command: int) -> Location:
    """Where the op's result slice is after its last command."""
    part, shape = context.output_slice(), shape_of(op.results[0])
    return Location(
        command=command,
        tensor=op_name(op),
        view=context.output(),
        start=(part.n[0], part.c[0], part.d[0], part.h[0], part.w[0]),
        whole=extents(op.results[0], info_of(op), context.chip),
        shape=shape,
        depth=part.d[1],
    )


def _load(op: TpuLoad, emitter: Emitter, info: LayerGroupInfo, step: Step) -> None:
    constant = isinstance(op.input.owner, TopWeight)
    part, chip = slice_at(info, step), emitter.chip
    whole = gmem_view(op.input, _address(op.input), chip, constant=constant)
    local = lmem_view(op.output, info.out_addr, part.shape, chip, constant=constant, aligned=info.eu_align)
    for source, target in transfers(whole, extents(op.input, info, chip), part, local, chip):
        emitter.move(source, target, holds=source_name(op.input), op=op_name(op), step=step.text())


def _store(op: TpuStore, emitter: Emitter, info: LayerGroupInfo, step: Step) -> None:
    have, chip = slice_at(info, step), emitter.chip
    part = have if emitter.cores == 1 else slice_at(unshared(info), step)
    if 0 in part.shape:
        return
    group = op.parent_op()
    assert isinstance(group, TpuGroup)
    last = group.body.block.last_op
    assert isinstance(last, TpuYield)
    result = group.results[list(last.operands).index(op.output)]
    name = value_name(op.input)
    local = lmem_view(op.input, info.out_addr, have.shape, chip, constant=False, aligned=True)
    whole = gmem_view(result, _address(result), chip, constant=False)
    local = lmem_window(local, have, part, chip)
    owner = op.input.owner
    assert isinstance(owner, Operation)
    holds = slice_owner(op_name(owner), step.text())
    for target, source in transfers(whole, extents(result, info, chip), part, local, chip):
        emitter.move(source, target, holds=holds, op=op_name(op), step=step.text(), tensor=name)


def unshared(info: LayerGroupInfo) -> LayerGroupInfo:
    """The windows of a stored tensor without what an earlier window along the axis has, so that no two steps store the
    same element: steps of different cores are not ordered. A tensor that has users in its group may have halos.
    """
    fields: dict[str, tuple[int, ...]] = {}
    for axis in AXES:
        starts: list[int] = []
        sizes: list[int] = []
        end = 0
        for start, size in zip(getattr(info, f"{axis}_idx"), getattr(info, f"{axis}_slice"), strict=True):
            starts.append(max(start, end))
            sizes.append(max(start + size - starts[-1], 0))
            end = max(end, start + size)
        fields |= {f"{axis}_idx": tuple(starts), f"{axis}_slice": tuple(sizes)}
    return replace(info, **fields)  # type: ignore[arg-type]


def _address(value: SSAValue) -> int:
    address = address_of(value)
    if address is None:
        raise ImportModelError(f"tensor '{value_name(value)}': an address is required; run `tpusim assign` first")
    return address


def lmem_peak(group: TpuGroup) -> int:
    """Highest byte per lane any buffer of the group reaches."""
    peak = 0
    for op in group.body.block.ops:
        if isinstance(op, TpuYield):
            continue
        info = info_of(op)
        peak = max(peak, info.out_addr + info.out_size, info.buffer_addr + info.buffer_size)
    return peak


def op_names(group: TpuGroup) -> tuple[str, ...]:
    """Names of the group's ops, transfers left out."""
    return tuple(op_name(op) for op in group.body.block.ops if isinstance(op, TpuOp) and is_tensor(op.results[0]))
