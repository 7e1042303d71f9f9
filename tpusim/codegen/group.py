"""Replay of one layer group: the loop of spec/layer_group.md 15 over the `flow` of a tpu.Group."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation, SSAValue

from tpusim.codegen.emitter import Emitter
from tpusim.codegen.views import gmem_slice, gmem_view, inside, lmem_view, lmem_window
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import LayerGroupInfo, ints, op_name, value_name
from tpusim.ir.types import address_of, is_tensor, shape_of
from tpusim.isa.commands import Command
from tpusim.isa.region import View
from tpusim.isa.stream import Location
from tpusim.ops.base import Axis, TensorSlice, TpuOp, Window, logical_shape
from tpusim.ops.structure import TopWeight, TpuGroup, TpuLoad, TpuStore, TpuYield, group_info

STAGES = 3


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
    return [
        Step(n, c, h, d, w)
        for n in range(sections["n"])
        for d in range(sections["d"])
        for h in range(sections["h"])
        for w in range(sections["w"])
        for c in range(sections["c"])
    ]


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
    )


def overstepped(info: LayerGroupInfo, step: Step) -> bool:
    """Whether the step lies outside the tensor's tables, i.e. the tensor is resident."""
    return any(getattr(step, a) >= len(getattr(info, f"{a}_idx")) for a in "ncdhw")


class LocalContext:
    """The EmitContext of one op at one step of a group."""

    local = True

    def __init__(self, emitter: Emitter, op: TpuOp, step: Step) -> None:
        self.chip = emitter.chip
        self._emitter = emitter
        self._op = op
        self._step = step
        self._info = info_of(op)
        self._out = slice_at(self._info, step)

    def _operand(self, index: int) -> tuple[Operation, LayerGroupInfo, TensorSlice]:
        owner = self._op.operands[index].owner
        assert isinstance(owner, Operation)
        info = info_of(owner)
        return owner, info, slice_at(info, self._step)

    def input_slice(self, index: int) -> TensorSlice:
        """The slice of the operand that is in local memory."""
        return self._operand(index)[2]

    def input(self, index: int, *, h: Window | None = None, w: Window | None = None) -> View:
        """The part of the operand's slice that this op's output slice needs."""
        owner, info, have = self._operand(index)
        constant = isinstance(owner, TpuLoad) and isinstance(owner.input.owner, TopWeight)
        value = self._op.operands[index]
        view = lmem_view(value, info.out_addr, have.shape, self.chip, constant=constant, aligned=info.eu_align)
        if constant and index in self._op.COMPACT_OPERANDS:
            return view
        want = TensorSlice(
            self._need("n", index, have.n),
            self._need("c", index, have.c),
            h or self._need("h", index, have.h),
            w or self._need("w", index, have.w),
        )
        if not (inside(want.h, have.h) and inside(want.w, have.w) and inside(want.n, have.n)):
            raise ImportModelError(
                f"{self._op.name} '{op_name(self._op)}' at {self._step.text()}: the slice of '{value_name(value)}' "
                f"{have} does not contain what is needed, {want}; the group's slices are inconsistent"
            )
        return lmem_window(view, have, want, self.chip)

    def _need(self, axis: Axis, index: int, have: Window) -> Window:
        """The window of an operand that the output slice needs, clipped to the tensor."""
        length = logical_shape(shape_of(self._op.operands[index]))["nchw".index(axis)]
        if length == 1:
            return 0, 1
        need = self._op.backward_slice(axis, getattr(self._out, axis), index)
        if need is None:
            return have
        start = max(need[0], 0)
        return start, min(need[0] + need[1], length) - start

    def output_slice(self) -> TensorSlice:
        """The result slice of this step."""
        return self._out

    def output(self) -> View:
        """Where the result slice goes."""
        value = self._op.results[0]
        return lmem_view(value, self._info.out_addr, self._out.shape, self.chip, constant=False, aligned=True)

    def buffer(self) -> int:
        """LMEM byte offset of the work buffer."""
        return self._info.buffer_addr

    def emit(self, cls: type[Command], **fields: Any) -> None:
        """Append a TIU command."""
        self._emitter.add(cls, op=op_name(self._op), step=self._step.text(), **fields)

    def move(self, source: View, target: View) -> None:
        """Not available inside a group: data movement between tensors of a group is TIU work."""
        raise NotImplementedError(f"{self._op.name}: no GDMA copies inside a layer group")

    def fill(self, target: View, value: float) -> None:
        """Not available inside a group, as `move`."""
        raise NotImplementedError(f"{self._op.name}: no GDMA fills inside a layer group")


def emit_group(group: TpuGroup, emitter: Emitter) -> None:
    """All commands of one group."""
    items = {info_of(op).id: op for op in group.body.block.ops if not isinstance(op, TpuYield)}
    rows = _rows(group, items)
    steps = steps_of(group.sections())
    ring: deque[Step] = deque(maxlen=STAGES)
    for iteration in range(len(steps) + STAGES - 1):
        draining = iteration - len(steps) + 1
        ring.appendleft(steps[iteration] if draining <= 0 else steps[-1])
        for row in rows:
            emitter.begin_row()
            for op in row:
                _emit_item(op, emitter, ring, min(iteration, STAGES - 1), max(draining, 0), iteration)
    emitter.end_rows()


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
        start=(part.n[0], part.c[0], part.h[0], part.w[0]),
        whole=logical_shape(shape),
        shape=shape,
    )


def _load(op: TpuLoad, emitter: Emitter, info: LayerGroupInfo, step: Step) -> None:
    constant = isinstance(op.input.owner, TopWeight)
    part = slice_at(info, step)
    source = gmem_slice(gmem_view(op.input, _address(op.input), emitter.chip, constant=constant), part)
    target = lmem_view(op.output, info.out_addr, part.shape, emitter.chip, constant=constant, aligned=info.eu_align)
    emitter.move(source, target, op=op_name(op), step=step.text())


def _store(op: TpuStore, emitter: Emitter, info: LayerGroupInfo, step: Step) -> None:
    part = slice_at(info, step)
    group = op.parent_op()
    assert isinstance(group, TpuGroup)
    last = group.body.block.last_op
    assert isinstance(last, TpuYield)
    result = group.results[list(last.operands).index(op.output)]
    name = value_name(op.input)
    source = lmem_view(op.input, info.out_addr, part.shape, emitter.chip, constant=False, aligned=True)
    target = gmem_slice(gmem_view(result, _address(result), emitter.chip, constant=False), part)
    emitter.move(source, target, op=op_name(op), step=step.text(), tensor=name)


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
