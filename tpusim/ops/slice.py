"""Parts of a tensor: `top.Slice`, `tpu.Slice` (and ONNX Split), `top.Gather`, `tpu.Gather` (numerics.md 9.0, 12.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import msgspec
import numpy as np
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import LayerGroupAttr, copy_name, int_attr, ints, ints_attr, op_name, set_op_name
from tpusim.ir.types import shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import gmem_strides, lmem_strides
from tpusim.isa.region import View
from tpusim.ops.base import (
    Array,
    Axis,
    EmitContext,
    ImportContext,
    LoweringContext,
    OnnxNode,
    RangeRule,
    Shape,
    TopOp,
    TpuOp,
    Window,
    holds,
    logical_shape,
)
from tpusim.ops.families import MAX_AXIS, constant_of, part_of, shorter_axes
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.view import TopSqueeze

Cut = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""First index, step (> 0) and end (exclusive) along every axis."""


def cut_shape(shape: Shape, cut: Cut) -> Shape:
    """The extents of a part. Raises ValueError if it is empty or reaches outside."""
    offsets, steps, ends = cut
    if not len(offsets) == len(steps) == len(ends) == len(shape):
        raise ValueError(f"an offset, step and end for each axis of {shape} are required, got {cut}")
    for size, offset, step, end in zip(shape, offsets, steps, ends, strict=True):
        if step < 1 or not 0 <= offset < end <= size:
            raise ValueError(f"a part inside {shape} with steps of 1 or more is required, got [{offset}:{end}:{step}]")
    return tuple(-(-(end - offset) // step) for offset, step, end in zip(offsets, steps, ends, strict=True))


def part(x: Array, cut: Cut) -> Array:
    """The part of an array."""
    return x[tuple(slice(o, e, s) for o, s, e in zip(*cut, strict=True))]


class Cutting(TopOp):
    """The attributes of a part."""

    offset = attr_def(ArrayAttr)
    steps = attr_def(ArrayAttr)
    ends = attr_def(ArrayAttr)

    @property
    def cut(self) -> Cut:
        """(offset, steps, ends)."""
        return ints(self.offset), ints(self.steps), ints(self.ends)


@irdl_op_definition
class TopSlice(Cutting):
    """`top.Slice`: every `steps`-th element from `offset` to `ends` (exclusive) along every axis."""

    name = "top.Slice"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    ONNX: ClassVar[tuple[str, ...]] = ("Slice", "Split")
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)
    MOVES: ClassVar[bool] = True

    input = operand_def(TensorType)
    output = result_def(TensorType)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue | Sequence[SSAValue]:
        """ONNX Slice and Split; an axis with a negative step is read by a Gather."""
        if node.op_type == "Split":
            return _split(ctx, node)
        x = ctx.value(node.inputs[0])
        windows = _windows(ctx, node, shape_of(x))
        backwards = [axis for axis, w in enumerate(windows) if w[2] < 0]
        last = not any(w != (0, size, 1) for w, size in zip(windows, shape_of(x), strict=True) if w[2] > 0)
        for axis in backwards:
            final = last and axis == backwards[-1]
            name = node.outputs[0] if final else f"{node.outputs[0]}_axis{axis}"
            x = build_gather(ctx, x, np.arange(*windows[axis]), axis, name)
            windows[axis] = (0, shape_of(x)[axis], 1)
        if backwards and last:
            return x
        return build_slice(ctx, x, windows, node.outputs[0])

    def infer(self) -> tuple[Shape, ...]:
        """The extents of the part."""
        return (cut_shape(shape_of(self.input), self.cut),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The part of the array."""
        return (part(operands[0], self.cut),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Slice with the operand's stored type."""
        return lower_same_scale(self, ctx, TpuSlice, dict(self.attributes))


def build_slice(ctx: ImportContext, x: SSAValue, windows: Sequence[tuple[int, int, int]], name: str) -> SSAValue:
    """A top.Slice of (start, end, step) along every axis."""
    starts, ends, steps = zip(*windows, strict=True)
    attributes = {"offset": ints_attr(starts), "steps": ints_attr(steps), "ends": ints_attr(ends)}
    return ctx.build(TopSlice, [x], attributes, name)


def _windows(ctx: ImportContext, node: OnnxNode, shape: Shape) -> list[tuple[int, int, int]]:
    """(start, end, step) along every axis: attributes before opset 10, constant inputs after."""
    given: list[list[int] | None] = []
    for index, key in enumerate(("starts", "ends", "axes", "steps"), 1):
        attribute = node.take(key) if ctx.opset < 10 and key != "steps" else None
        values: list[int] | None = None if attribute is None else list(attribute)
        if ctx.opset >= 10 and len(node.inputs) > index and node.inputs[index]:
            constant = ctx.constant(node.inputs[index])
            if constant is None:
                raise node.refuse(f"constant {key} are required, '{node.inputs[index]}' is computed")
            values = [int(v) for v in constant.reshape(-1)]
        given.append(values)
    starts, ends, axes, steps = given
    if starts is None or ends is None:
        raise node.refuse("starts and ends are required")
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    windows = [(0, size, 1) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -len(shape) <= axis < len(shape) or step == 0:
            raise node.refuse(f"an axis of {shape} and a step other than 0 are required, got axis {axis}, step {step}")
        found = slice(start, end, step).indices(shape[axis])
        if len(range(*found)) == 0:
            raise node.refuse(f"a part with elements is required, got [{start}:{end}:{step}] of {shape[axis]}")
        windows[axis % len(shape)] = found
    return windows


def _split(ctx: ImportContext, node: OnnxNode) -> list[SSAValue]:
    """One Slice per output: sizes are an attribute before opset 13, a constant input after; else near-equal parts."""
    x = ctx.value(node.inputs[0])
    shape, axis = shape_of(x), int(node.take("axis", 0))
    if not -len(shape) <= axis < len(shape):
        raise node.refuse(f"an axis of {shape} is required, got {axis}")
    axis %= len(shape)
    count = int(node.take("num_outputs", len(node.outputs)))
    sizes: list[int] | None = None if (given := node.take("split")) is None else [int(s) for s in given]
    if len(node.inputs) > 1 and node.inputs[1]:
        constant = ctx.constant(node.inputs[1])
        if constant is None:
            raise node.refuse(f"constant sizes are required, '{node.inputs[1]}' is computed")
        sizes = [int(s) for s in constant.reshape(-1)]
    if sizes is None:
        each = -(-shape[axis] // count)
        sizes = [min(each, shape[axis] - i * each) for i in range(count)]
    if sum(sizes) != shape[axis] or len(sizes) != len(node.outputs) or min(sizes) < 1:
        raise node.refuse(f"{len(node.outputs)} sizes above 0 that add up to {shape[axis]} are required, got {sizes}")
    values: list[SSAValue] = []
    for i, name in enumerate(node.outputs):
        start = sum(sizes[:i])
        windows = [(start, start + sizes[i], 1) if a == axis else (0, s, 1) for a, s in enumerate(shape)]
        values.append(build_slice(ctx, x, windows, name or f"{node.outputs[0]}_part{i}"))
    return values


@irdl_op_definition
class TpuSlice(TpuOp):
    """`tpu.Slice`: a byte move, the same stored type."""

    name = "tpu.Slice"

    input = operand_def(TensorType)
    output = result_def(TensorType)
    offset = attr_def(ArrayAttr)
    steps = attr_def(ArrayAttr)
    ends = attr_def(ArrayAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    @property
    def cut(self) -> Cut:
        """(offset, steps, ends)."""
        return ints(self.offset), ints(self.steps), ints(self.ends)

    def infer(self) -> tuple[Shape, ...]:
        """The extents of the part."""
        return (cut_shape(shape_of(self.input), self.cut),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The part of the array."""
        return (part(operands[0], self.cut),)

    def _axis(self, index: int) -> tuple[int, int]:
        """(offset, step) along a logical axis; (0, 1) where the tensor has no such axis."""
        offsets, steps, _ = self.cut
        return (offsets[index], steps[index]) if index < len(offsets) else (0, 1)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Local up to rank 4 with step 1 along the channels, of which there are at most 65535 (layer_group.md 2)."""
        del chip
        x, y = shape_of(self.input), shape_of(self.output)
        if len(x) > 4:
            return "rank above 4"
        if x[:1] != y[:1]:
            return "the batch is cut"
        if self._axis(1)[1] != 1 or logical_shape(x)[1] > MAX_AXIS:
            return "a step along the channels, or more than 65535 of them"
        return None

    def can_slice(self, axis: Axis) -> bool:
        """All axes but the channels, which are at hand as a whole."""
        return axis != "c"

    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """h, w: from o*step, s*step + offset long (layer_group.md 7.2); channels are at hand as a whole."""
        del operand
        if axis in ("n", "d"):
            return window
        if axis == "c":
            return 0, logical_shape(shape_of(self.input))[1]
        offset, step = self._axis(2 if axis == "h" else 3)
        return window[0] * step, window[1] * step + offset

    def accepts_margins(self) -> bool:
        """Only if it cuts channels (layer_group.md 7.3)."""
        return logical_shape(shape_of(self.input))[1] != logical_shape(shape_of(self.output))[1]

    def emit(self, ctx: EmitContext) -> None:
        """Local: a lane copy of a strided window; global: a strided GDMA copy, a macro command for packed batches."""
        target = ctx.output()
        if ctx.local:
            rows, columns = (self._window(i, w) for i, w in ((2, ctx.output_slice().h), (3, ctx.output_slice().w)))
            source = ctx.input(0, h=rows, w=columns)
            n, c, _, _ = target.shape
            source = part_of(source, 1, self._axis(1)[0], (n, c, *source.shape[2:]), ctx.chip)
            batch, row, h, w = lmem_strides(source, ctx.chip)
            strides = (batch, row, h * self._axis(2)[1], w * self._axis(3)[1])
            ctx.emit(
                isa.LaneCopy, input=msgspec.structs.replace(source, shape=target.shape, strides=strides), output=target
            )
            return
        self._emit_global(ctx, ctx.input(0), target)

    def _window(self, index: int, out: Window) -> Window:
        """Exactly the rows (columns) of the operand from the first to the last that is read."""
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
    """The extents: those of the indices in place of the axis. Raises ValueError for an axis outside."""
    if not 0 <= axis < len(data):
        raise ValueError(f"an axis in [0, {len(data)}) is required, got {axis}")
    return (*data[:axis], *indices, *data[axis + 1 :])


def build_gather(ctx: ImportContext, x: SSAValue, indices: np.ndarray, axis: int, name: str) -> SSAValue:
    """A top.Gather with constant indices of 0 or more."""
    weight = ctx.weight(name + "_indices", indices.astype(np.int32))
    return ctx.build(TopGather, [x, weight], {"axis": int_attr(axis)}, name)


@irdl_op_definition
class TopGather(TopOp):
    """`top.Gather`: elements at `indices` along `axis`: an int32 weight, 0 or more, or what top.Arg computed."""

    name = "top.Gather"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")
    ONNX: ClassVar[tuple[str, ...]] = ("Gather",)

    input = operand_def(TensorType)
    indices = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX Gather with constant indices, of which negative ones count from the end, or with those of ArgMax."""
        x, indices = ctx.value(node.inputs[0]), ctx.constant(node.inputs[1])
        shape, axis = shape_of(x), int(node.take("axis", 0))
        if not -len(shape) <= axis < len(shape):
            raise node.refuse(f"an axis of {shape} is required, got {axis}")
        if indices is None:
            computed = ctx.value(node.inputs[1])
            if holds(computed) != "index":
                raise node.refuse(f"constant indices, or those of ArgMax, are required, '{node.inputs[1]}' is neither")
            return ctx.build(cls, [x, computed], {"axis": int_attr(axis % len(shape))}, node.outputs[0])
        size = shape[axis % len(shape)]
        if indices.size == 0 or indices.min() < -size or indices.max() >= size:
            raise node.refuse(f"indices in [{-size}, {size}) are required, got {indices.reshape(-1).tolist()[:8]}")
        return build_gather(ctx, x, np.where(indices < 0, indices + size, indices), axis % len(shape), node.outputs[0])

    def infer(self) -> tuple[Shape, ...]:
        """The indices' extents in place of the axis."""
        return (gathered_shape(shape_of(self.input), shape_of(self.indices), self.axis.value.data),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The gathered array."""
        indices = operands[1].astype("int32")  # computed ones are f32 in a top module
        return (jnp.take(operands[0], indices, axis=self.axis.value.data, mode="clip"),)

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Evenly spaced indices."""
        return (TopGatherToSlice(weights),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Gather in float (numerics.md 12.1)."""
        if ctx.mode(self) == "int8":
            ctx.fallback(self, "Gather has no integer form (numerics.md 12.1)")
        constant = ctx.array(self.indices)
        indices = ctx.stored_indices(self.indices) if constant is None else None
        if constant is not None:
            indices = ctx.weight(op_name(self) + "_indices", constant)
        if indices is None:
            raise UnsupportedError(f"top.Gather '{op_name(self)}': int32 indices are required, got computed numbers")
        operands = [ctx.operand(self.input, ctx.float_mode(self), self), indices]
        attributes = {"axis": self.axis}
        return ctx.build(TpuGather, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


@irdl_op_definition
class TpuGather(TpuOp):
    """`tpu.Gather`: elements at int32 indices, copied."""

    name = "tpu.Gather"

    input = operand_def(TensorType)
    indices = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The indices' extents in place of the axis."""
        return (gathered_shape(shape_of(self.input), shape_of(self.indices), self.axis.value.data),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The gathered array."""
        return (jnp.take(operands[0], operands[1], axis=self.axis.value.data, mode="clip"),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local."""
        del chip
        return "gathering runs in global memory"

    def emit(self, ctx: EmitContext) -> None:
        """FN gather."""
        function = functions.Gather(self.axis.value.data)
        ctx.emit(isa.Fn, function=function, inputs=(ctx.input(0), ctx.input(1)), output=ctx.output())


@dataclass
class TopGatherToSlice(RewritePattern):
    """Gather at one index, or at evenly rising ones -> Slice; of a scalar index -> Slice and Squeeze."""

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The last op takes the name."""
        if not isinstance(op, TopGather):
            return
        indices = constant_of(op.indices, self.weights)
        if indices is None or indices.ndim > 1:
            return
        flat = indices.reshape(-1).astype(int)
        step = int(flat[1] - flat[0]) if len(flat) > 1 else 1
        if step < 1 or (np.diff(flat) != step).any():
            return
        axis, shape = op.axis.value.data, shape_of(op.input)
        windows = [(0, s, 1) for s in shape]
        windows[axis] = (int(flat[0]), int(flat[-1]) + 1, step)
        starts, ends, steps = zip(*windows, strict=True)
        sizes = (*shape[:axis], len(flat), *shape[axis + 1 :])
        cut = TopSlice.create(
            operands=[op.input], result_types=[tensor(sizes)],
            attributes={"offset": ints_attr(starts), "steps": ints_attr(steps), "ends": ints_attr(ends)},
        )  # fmt: skip
        if indices.ndim == 1:
            copy_name(cut, op)
            rewriter.replace(op, cut)
            return
        squeeze = TopSqueeze.create(
            operands=[cut.output], result_types=[op.output.type], attributes={"axes": ints_attr([axis])}
        )
        set_op_name(cut, op_name(op) + "_slice")
        copy_name(squeeze, op)
        rewriter.replace(op, [cut, squeeze])
