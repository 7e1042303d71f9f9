"""Parts of a tensor: `top.Slice`, `tpu.Slice`, `top.Gather`, `tpu.Gather` (numerics.md 9.0, 12.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import msgspec
import numpy as np
from tpusim_kernels.indexing import gather
from tpusim_kernels.movement import moved
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import copy_name, int_attr, ints, ints_attr, op_name, set_op_name
from tpusim.ir.types import element_of, is_tensor, shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import gmem_strides, lmem_bytes, lmem_strides
from tpusim.isa.region import View, is_packed
from tpusim.ops.framework.base import (
    NARROWEST,
    Array,
    Axis,
    Builder,
    EmitContext,
    FloatRule,
    LoweringContext,
    RangeRule,
    Shape,
    ShapedOp,
    TensorSlice,
    TopOp,
    TpuOp,
    Window,
    logical_shape,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import MAX_AXIS, Unary, command_dtype, constant_of, only_user, part_of, shorter_axes
from tpusim.ops.framework.macro import indices_of
from tpusim.ops.interfaces import GathersRows, Margins, SharedWindows
from tpusim.ops.patterns.slices import MergeSliceConcatPattern, MergeSlicePattern, NoUseSlicePattern
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.reverse import MOST_AXES, TopReverse
from tpusim.ops.view import TopSqueeze, TopUnsqueeze

Cut = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""(first indices, steps > 0, ends), each one number per axis; ends are exclusive."""


TO_THE_END = (1 << 63) - 1
"""The end by which TPU-MLIR's modules state that a slice ends where its axis ends."""


def _end_of(end: int, rest: range, taken: int) -> int:
    """An end as an index. rest: all elements to the axis's end, of which `taken` are in the result.

    -1 is the last element or, as the result says, the end.
    """
    size = rest.stop
    return size if end == TO_THE_END or (end == -1 and taken == len(rest)) else end + size * (end < 0)


def cut_shape(shape: Shape, cut: Cut) -> Shape:
    """The extents of a part. Raises ValueError if the part is empty or reaches outside."""
    offsets, steps, ends = cut
    if not len(offsets) == len(steps) == len(ends) == len(shape):
        raise ValueError(f"an offset, step and end for each axis of {shape} are required, got {cut}")
    for size, offset, step, end in zip(shape, offsets, steps, ends, strict=True):
        if step < 1 or not 0 <= offset < end <= size:
            raise ValueError(f"a part inside {shape} with steps of 1 or more is required, got [{offset}:{end}:{step}]")
    return tuple(-(-(end - offset) // step) for offset, step, end in zip(offsets, steps, ends, strict=True))


class Slice(Unary):
    """Every `steps`-th element from `offset` to `ends` (exclusive) along every axis."""

    offset = attr_def(ArrayAttr)
    steps = attr_def(ArrayAttr)
    ends = attr_def(ArrayAttr)

    @property
    def cut(self) -> Cut:
        """(offset, steps, ends) by axis."""
        return ints(self.offset), ints(self.steps), ints(self.ends)

    @override
    def take_form(self) -> str:
        """State every axis; count negative indices from the start of their axis, and replace the largest integer."""
        sizes = shape_of(self.input)
        if axes := ints(self.attributes.get("axes", ints_attr(()))):
            del self.attributes["axes"]
            for name, every in (("offset", (0,) * len(sizes)), ("steps", (1,) * len(sizes)), ("ends", sizes)):
                stated = dict(zip((a % len(sizes) for a in axes), ints(self.attributes[name]), strict=True))
                self.attributes[name] = ints_attr(stated.get(axis, value) for axis, value in enumerate(every))
        self.attributes["offset"] = ints_attr(i + n * (i < 0) for i, n in zip(ints(self.offset), sizes, strict=True))
        reached = shape_of(self.output) if is_tensor(self.output) else (-1,) * len(sizes)
        axes = zip(*self.cut, sizes, reached, strict=True)
        self.attributes["ends"] = ints_attr(_end_of(end, range(o, n, s), r) for o, s, end, n, r in axes)
        return super().take_form()

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (cut_shape(shape_of(self.input), self.cut),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        places = tuple(slice(o, e, s) for o, s, e in zip(*self.cut, strict=True))
        return (moved(lambda _, x: x[places], operands[0]),)


@irdl_op_definition
class TopSlice(Slice, TopOp):
    """`top.Slice`: every `steps`-th element from `offset` to `ends` (exclusive) along every axis."""

    name = "top.Slice"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    FLOAT: ClassVar[FloatRule] = NARROWEST
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)
    MOVES: ClassVar[bool] = True

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, offset: Sequence[int], ends: Sequence[int],
        steps: Sequence[int] | None = None, axes: Sequence[int] | None = None, name: str,
    ) -> SSAValue:  # fmt: skip
        """x[offset:ends:steps] along `axes` (default: all), as Python slices.

        An axis of a tensor that is only mirrored becomes a Reverse, another negative step a Gather.
        """
        axes = range(len(offset)) if axes is None else axes
        windows = _windows(shape_of(x), offset, ends, [1] * len(offset) if steps is None else steps, axes)
        cut = [(axis, w) for axis, w in enumerate(windows) if w != (0, shape_of(x)[axis], 1)]
        if len(cut) == 1 and cut[0][1] == (shape_of(x)[cut[0][0]] - 1, -1, -1) and len(windows) <= MOST_AXES:
            return TopReverse.make(builder, x, axis=cut[0][0], name=name)
        backwards = [axis for axis, w in enumerate(windows) if w[2] < 0]
        last = not any(w != (0, size, 1) for w, size in zip(windows, shape_of(x), strict=True) if w[2] > 0)
        for axis in backwards:
            final = last and axis == backwards[-1]
            indices = np.arange(*windows[axis])
            x = TopGather.make(builder, x, indices, axis=axis, name=name if final else f"{name}_axis{axis}")
            windows[axis] = (0, shape_of(x)[axis], 1)
        return x if backwards and last else _cut(builder, x, windows, name)

    @classmethod
    @names_op
    def split(
        cls, builder: Builder, x: SSAValue, *, axis: int, sizes: Sequence[int], names: Sequence[str]
    ) -> list[SSAValue]:
        """Split an axis into adjacent slices of `sizes`; a negative axis counts from the end."""
        shape = shape_of(x)
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"an axis of {shape} is required, got {axis}")
        axis %= len(shape)
        if sum(sizes) != shape[axis] or len(sizes) != len(names) or min(sizes) < 1:
            why = f"{len(names)} sizes above 0 that add up to {shape[axis]} are required, got {list(sizes)}"
            raise ValueError(why)
        values: list[SSAValue] = []
        for i, name in enumerate(names):
            start = sum(sizes[:i])
            windows = [(start, start + sizes[i], 1) if a == axis else (0, s, 1) for a, s in enumerate(shape)]
            values.append(_cut(builder, x, windows, name))
        return values

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Slices that take the whole tensor, Slices of Slices, and Slices that are joined again."""
        del weights
        return NoUseSlicePattern(), MergeSlicePattern(), MergeSliceConcatPattern(cls)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return lower_same_scale(self, ctx, TpuSlice, dict(self.attributes))


def _cut(builder: Builder, x: SSAValue, windows: Sequence[tuple[int, int, int]], name: str) -> SSAValue:
    """A top.Slice of (start, end, step) along every axis."""
    starts, ends, steps = zip(*windows, strict=True)
    attributes = {"offset": ints_attr(starts), "steps": ints_attr(steps), "ends": ints_attr(ends)}
    return builder.build(TopSlice, [x], attributes, name)


def _windows(
    shape: Shape, offset: Sequence[int], ends: Sequence[int], steps: Sequence[int], axes: Sequence[int]
) -> list[tuple[int, int, int]]:
    """(start, end, step) along every axis. Raises ValueError for an axis outside `shape` and for an empty part."""
    windows = [(0, size, 1) for size in shape]
    for start, end, axis, step in zip(offset, ends, axes, steps, strict=True):
        if not -len(shape) <= axis < len(shape) or step == 0:
            raise ValueError(f"an axis of {shape} and a step other than 0 are required, got axis {axis}, step {step}")
        window = slice(start, end, step).indices(shape[axis])
        if len(range(*window)) == 0:
            raise ValueError(f"a part with elements is required, got [{start}:{end}:{step}] of {shape[axis]}")
        windows[axis % len(shape)] = window
    return windows


@irdl_op_definition
class TpuSlice(Slice, TpuOp, SharedWindows):
    """`tpu.Slice`: a byte move, the same stored type."""

    name = "tpu.Slice"
    STATED: ClassVar[Mapping[str, Attribute]] = {"axes": ints_attr(())}
    MARGINS: ClassVar[Margins] = "read"

    @property
    def first_channel(self) -> int:
        """The first channel that is kept."""
        return self._axis(1)[0]

    def _axis(self, index: int) -> tuple[int, int]:
        """(offset, step) along a logical axis; (0, 1) where the tensor has no such axis."""
        offsets, steps, _ = self.cut
        return (offsets[index], steps[index]) if index < len(offsets) else (0, 1)

    @property
    def cuts_batch(self) -> bool:
        """Whether the result has a part of the batch only."""
        return shape_of(self.input)[0] != shape_of(self.output)[0]

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local up to rank 4, with at most 65535 channels and step 1 along them (layer_group.md 2)."""
        del chip
        x = shape_of(self.input)
        if len(x) > 4:
            return "rank above 4"
        if self._axis(1)[1] != 1 or logical_shape(x)[1] > MAX_AXIS:
            return "a step along the channels, or more than 65535 of them"
        return None

    @override
    def can_slice(self, axis: Axis) -> bool:
        """All axes but the channels, which a slice always has as a whole, and a batch of which a part is kept."""
        return axis != "c" and not (axis == "n" and self.cuts_batch)

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """Window (o, s) of h or w needs (o*step, s*step + offset); of c, or a cut batch, all (layer_group.md 7.2)."""
        del operand
        if axis == "d" or (axis == "n" and not self.cuts_batch):
            return window
        if axis in ("n", "c"):
            return 0, logical_shape(shape_of(self.input))[axis == "c"]
        offset, step = self._axis(2 if axis == "h" else 3)
        return window[0] * step, window[1] * step + offset

    @override
    def accepts_margins(self) -> bool:
        """Only a Slice of the channels does (layer_group.md 7.3)."""
        return logical_shape(shape_of(self.input))[1] != logical_shape(shape_of(self.output))[1]

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """One image with the channels from 0 to the last that is kept, if the first is not in lane 0 (9.3)."""
        del inputs
        if self.first_channel % chip.lanes == 0:
            return 0
        _, c, h, w = output.shape
        return lmem_bytes((1, self.first_channel + c, h, w), command_dtype(element_of(self.output)), chip)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Local: a lane copy of a strided window. Global: a strided GDMA copy; for packed batches a macro command."""
        target = ctx.output()
        if ctx.local:
            rows, columns = (self._window(i, w) for i, w in ((2, ctx.output_slice().h), (3, ctx.output_slice().w)))
            source = ctx.input(0, h=rows, w=columns)
            n, c, _, _ = target.shape
            first, apart = self._axis(0) if self.cuts_batch else (0, 1)
            source = part_of(source, 0, first, source.shape, ctx.chip)
            source = part_of(source, 1, self._axis(1)[0], (n, c, *source.shape[2:]), ctx.chip)
            batch, row, h, w = lmem_strides(source, ctx.chip)
            strides = (batch * apart, row, h * self._axis(2)[1], w * self._axis(3)[1])
            ctx.emit(
                isa.LaneCopy, input=msgspec.structs.replace(source, shape=target.shape, strides=strides), output=target
            )
            return
        self._emit_global(ctx, ctx.input(0), target)

    def _window(self, index: int, out: Window) -> Window:
        """The rows or columns of the operand from the first that is read to the last."""
        offset, step = self._axis(index)
        return offset + out[0] * step, (out[1] - 1) * step + 1

    def _emit_global(self, ctx: EmitContext, source: View, target: View) -> None:
        offsets, steps, _ = self.cut
        if source.interleave > 1 and offsets and (steps[0] > 1 or offsets[0] % source.interleave):
            ctx.emit(isa.Fn, function=functions.Slice(offsets, steps), inputs=(source,), output=target)
            return
        for axis, offset in enumerate(offsets):
            source = part_of(source, axis, offset, source.shape, ctx.chip)
        strides = tuple(stride * step for stride, step in zip(gmem_strides(source), steps, strict=True))
        source = msgspec.structs.replace(source, shape=target.shape, layout="strided", strides=strides)
        ctx.move(*shorter_axes(source, target))


# --------------------------------------------------------------------------------------------------------------- Gather


def gathered_shape(data: Shape, indices: Shape, axis: int) -> Shape:
    """The data's extents, with those of the indices in place of `axis`. Raises ValueError for a wrong axis."""
    if not 0 <= axis < len(data):
        raise ValueError(f"an axis in [0, {len(data)}) is required, got {axis}")
    return (*data[:axis], *indices, *data[axis + 1 :])


class Gather(ShapedOp):
    """Elements at `indices` along `axis`."""

    input = operand_def(TensorType)
    indices = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (gathered_shape(shape_of(self.input), shape_of(self.indices), self.axis.value.data),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (gather(operands[0], operands[1], axis=self.axis.value.data),)


@irdl_op_definition
class TopGather(Gather, TopOp):
    """`top.Gather`: elements at `indices`, which are an int32 weight or computed whole numbers."""

    name = "top.Gather"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, indices: np.ndarray | SSAValue, *, axis: int = 0, name: str
    ) -> SSAValue:
        """indices: constant or computed; negative ones count from the end."""
        shape = shape_of(x)
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"an axis of {shape} is required, got {axis}")
        axis %= len(shape)
        if isinstance(indices, np.ndarray):
            size = shape[axis]
            if indices.size == 0 or indices.min() < -size or indices.max() >= size:
                raise ValueError(f"indices in [{-size}, {size}) are required, got {indices.reshape(-1).tolist()[:8]}")
            stored = np.where(indices < 0, indices + size, indices).astype(np.int32)
            indices = builder.weight(name + "_indices", stored)
        return builder.build(cls, [x, indices], {"axis": int_attr(axis)}, name)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A Gather at evenly spaced indices becomes a Slice."""
        return TopGatherToSliceByUnsqueeze(weights), TopGatherToSlice(weights)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        operands = [ctx.operand(self.input, ctx.float_mode(self), self), indices_of(ctx, self, 1)]
        attributes = {"axis": self.axis}
        return ctx.build(TpuGather, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


@irdl_op_definition
class TpuGather(Gather, TpuOp, GathersRows):
    """`tpu.Gather`: copies of the elements at int32 indices."""

    name = "tpu.Gather"

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        del chip
        return "gathering runs in global memory"

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Let the GDMA gather rows where it can, else emit Fn `gather` with the indices as second input."""
        if self._by_rows(ctx):
            return
        function = functions.Gather(self.axis.value.data)
        ctx.emit(isa.Fn, function=function, inputs=(ctx.input(0), ctx.input(1)), output=ctx.output())

    def _by_rows(self, ctx: EmitContext) -> bool:
        """Emit a gather of rows in global memory; return whether that is possible."""
        source, indices, target = ctx.input(0), ctx.input(1), ctx.output()
        axis, shape = self.axis.value.data, source.shape
        outer, inner, count = prod(shape[:axis]), prod(shape[axis + 1 :]), indices.elements
        plain = all(v.layout == "dense" and v.interleave == 1 and not is_packed(v.dtype) for v in (source, target))
        fit = max(outer, shape[axis], inner, count) <= MAX_AXIS
        if not (ctx.chip.gather_gbs and plain and fit and indices.dtype == "i32"):
            return False
        views = ((source, (outer, shape[axis], inner)), (indices, (count,)), (target, (outer, count, inner)))
        source, indices, target = (msgspec.structs.replace(view, shape=shape) for view, shape in views)
        ctx.emit(isa.MoveRows, input=source, indices=indices, output=target)
        return True


@dataclass
class TopGatherToSlice(RewritePattern):
    """Gather at one index, or at evenly rising indices -> Slice; at a scalar index -> Slice and Squeeze."""

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The last op takes the name."""
        if not isinstance(op, TopGather):
            return
        cut, scalar = _evenly(op, self.weights)
        if cut is None:
            return
        if not scalar:
            copy_name(cut, op)
            rewriter.replace(op, cut)
            return
        squeeze = TopSqueeze.create(
            operands=[cut.output], result_types=[op.output.type], attributes={"axes": ints_attr([op.axis.value.data])}
        )
        set_op_name(cut, op_name(op) + "_slice")
        copy_name(squeeze, op)
        rewriter.replace(op, [cut, squeeze])


@dataclass
class TopGatherToSliceByUnsqueeze(RewritePattern):
    """Gather at a scalar index, used once -> Unsqueeze of its axis: one Slice."""

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Gather; the Slice takes the Unsqueeze's name."""
        user = only_user(op.output) if isinstance(op, TopGather) else None
        if not isinstance(op, TopGather) or not isinstance(user, TopUnsqueeze):
            return
        cut, scalar = _evenly(op, self.weights)
        if cut is None or not scalar or ints(user.axes) != (op.axis.value.data,):
            return
        copy_name(cut, user)
        rewriter.insert(cut, InsertPoint.before(op))
        rewriter.replace(user, [], [cut.output])
        rewriter.erase(op)


def _evenly(op: TopGather, weights: WeightStore) -> tuple[TopSlice | None, bool]:
    """(equivalent Slice, or None unless the indices are constant and evenly rising; whether the index is a scalar)."""
    indices = constant_of(op.indices, weights)
    if indices is None or indices.ndim > 1:
        return None, False
    flat = indices.reshape(-1).astype(int)
    step = int(flat[1] - flat[0]) if len(flat) > 1 else 1
    if step < 1 or (np.diff(flat) != step).any():
        return None, False
    axis, shape = op.axis.value.data, shape_of(op.input)
    windows = [(0, s, 1) for s in shape]
    windows[axis] = (int(flat[0]), int(flat[-1]) + 1, step)
    starts, ends, steps = zip(*windows, strict=True)
    sizes = (*shape[:axis], len(flat), *shape[axis + 1 :])
    attributes = {"offset": ints_attr(starts), "steps": ints_attr(steps), "ends": ints_attr(ends)}
    cut = TopSlice.create(operands=[op.input], result_types=[tensor(sizes)], attributes=attributes)
    return cut, indices.ndim == 0
