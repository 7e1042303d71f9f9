"""Answers that families of ops share, so that an op file states only what is special about its op."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import ClassVar

import msgspec
import numpy as np
from tpusim_kernels import arith
from tpusim_kernels.prim.scale import quantised
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import operand_def, opt_attr_def, result_def, var_operand_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, float_attr, op_name, value_name
from tpusim.ir.once import once
from tpusim.ir.types import element_of, is_packed, shape_of, storage_dtype, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa.layout import align, ceil_div, element_bytes, gmem_strides, lmem_strides
from tpusim.isa.region import DType, View, dtype_of
from tpusim.ops.framework.base import (
    Array,
    Axis,
    Builder,
    EmitContext,
    FloatMode,
    GroupType,
    Holds,
    LoweringContext,
    OpT,
    Shape,
    ShapedOp,
    TensorSlice,
    TopOp,
    TpuOp,
    Window,
    holds,
    is_none,
    reads_indices,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.interfaces import LibraryKernel, Margins, OperandSlices, SharedWindows, Volumes
from tpusim.ops.structure import TopWeight


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """NumPy broadcasting. Raises ValueError naming the shapes."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ValueError(f"operand shapes {', '.join(map(str, shapes))} do not broadcast") from None


def checked_axis(axis: int, shape: Shape) -> int:
    """The axis counted from the first. Raises ValueError for an axis outside `shape`."""
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"an axis in [{-len(shape)}, {len(shape)}) is required, got {axis}")
    return axis % len(shape)


def conv_extent(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Output elements of a sliding window along one axis. Raises ValueError if the window does not fit."""
    reach = (kernel - 1) * dilation + 1
    span = size + before + after - reach
    if span < 0:
        raise ValueError(f"a window of {reach} does not fit {size} + pads {before} + {after}")
    return span // stride + 1


def window_need(window: Window, kernel: int, stride: int, before: int, dilation: int = 1) -> Window:
    """The input window that an output window reads; it may reach into the padding."""
    start, size = window
    return start * stride - before, (size - 1) * stride + (kernel - 1) * dilation + 1


def clip(window: Window, length: int) -> Window:
    """The part of a window inside [0, length)."""
    start = max(window[0], 0)
    return start, min(window[0] + window[1], length) - start


def window_pads(need: Window, got: Window) -> tuple[int, int]:
    """(before, after): how far the window `need` reaches beyond the window `got`."""
    return got[0] - need[0], need[0] + need[1] - got[0] - got[1]


def padded_window(window: Window, size: int, reach: int, stride: int, before: int) -> tuple[Window, tuple[int, int]]:
    """(input window, (pads before, after)) of the command that computes an output window of a convolution.

    A command reads at least one element. An output window that sees only padding therefore reads more than it needs:
    the max(reach, stride) of layer_group.md 7.2 where that contains an element, else the whole axis. Neither adds an
    output.
    """
    start, count = window
    sliced = start * stride - before, (count - 1) * stride + max(reach, stride)
    for need in (window_need(window, reach, stride, before), sliced):
        got = clip(need, size)
        if got[1] > 0:
            return got, window_pads(need, got)
    return (0, size), (before, 0)


class ExactIndices(TopOp):
    """An op that runs in f32 if an operand has indices, which a 16-bit float cannot represent exactly."""

    @override
    def needs_f32(self, chip: ChipSpec, wanted: FloatMode) -> bool:
        del chip, wanted
        return reads_indices(self)


class Requanted(ShapedOp):
    """An op whose integers have one multiplier and right shift for the tensor."""

    multiplier = opt_attr_def(IntegerAttr)
    rshift = opt_attr_def(IntegerAttr)

    @property
    def scaling(self) -> tuple[int, int] | None:
        """(multiplier, right shift); None without a requant, as in float."""
        if self.multiplier is None or self.rshift is None:
            return None
        return self.multiplier.value.data, self.rshift.value.data


class Unary(ShapedOp):
    """An op with one operand, whose result has the operand's shape."""

    input = operand_def(TensorType)
    output = result_def(TensorType)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (shape_of(self.input),)


class UnaryTop(Unary, TopOp):
    """A top op with one operand, whose result has the operand's shape."""

    @override
    def flops(self) -> int:
        """One per element (DN-27)."""
        return int(np.prod(shape_of(self.output)))


class ElementwiseTpu(TpuOp, LibraryKernel):
    """An op that computes every element of its first operand by itself, with or without constants."""

    ALONE: ClassVar[str] = "an element-wise op"

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Element-wise ops are local up to rank 5 (DL-02)."""
        del chip
        return None if len(shape_of(self.operands[0])) <= 5 else "rank above 5"


class ByTables(ElementwiseTpu):
    """An op that looks up every element of its first operand in tables, which are its other operands."""

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The window of the input is that of the output; tables are needed whole."""
        del axis
        return window if operand == 0 else None


class UnaryTpu(Unary, ElementwiseTpu):
    """A tpu op with one operand, whose result has the operand's shape; it can be cut along any axis."""


class NaryTop(TopOp):
    """An op on two or more tensors that broadcast, with an optional relu."""

    inputs = var_operand_def(TensorType)
    output = result_def(TensorType)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (broadcast_shape([shape_of(v) for v in self.inputs]),)

    @override
    def flops(self) -> int:
        """One operation per element and further operand, one for a relu (DN-27)."""
        return int(np.prod(shape_of(self.output))) * (len(self.inputs) - 1 + relu_of(self))


class ArithmeticTop(NaryTop):
    """Arithmetic on tensors, as front ends build it."""

    TPU: ClassVar[OpT]
    """The tpu op that it is lowered to."""
    ALIGNED_FROM: ClassVar[int | None] = 1
    """Least rank of the weights that get leading axes; None: no weight does.

    Scalars stay as they are, because most become the constant of an op of a tensor and a number.
    """

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, inputs: Sequence[SSAValue], *, do_relu: bool | None = False, relu_limit: float = -1.0,
        name: str,
    ) -> SSAValue:  # fmt: skip
        """Build the op; a weight of lower rank gets leading axes of length 1, so that the op can run locally.

        inputs: two or more. do_relu: None leaves out the attributes of the relu, so that the op is no duplicate of an
        op that has them.
        """
        if len(inputs) < 2:
            raise ValueError(f"two or more operands are required, got {len(inputs)}")
        values = inputs if cls.ALIGNED_FROM is None else aligned(builder, inputs, cls.ALIGNED_FROM)
        return builder.build(cls, values, {} if do_relu is None else relu_attributes(do_relu, relu_limit), name)

    @override
    def result_holds(self) -> Holds:
        return arithmetic_holds(self.inputs)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        return self.in_float(ctx, self.TPU, {})

    def in_float(self, ctx: LoweringContext, cls: OpT, attributes: Mapping[str, Attribute]) -> SSAValue:
        """`cls` in the float type of the op, with its relu and further attributes."""
        return built_in_float(self, ctx, cls, {**relu_attributes(relu_of(self), relu_limit_of(self)), **attributes})


def arithmetic_holds(operands: Iterable[SSAValue]) -> Holds:
    """What the result of arithmetic holds: integers if all computed operands do, else real numbers."""
    computed = [v for v in operands if not isinstance(v.owner, TopWeight)]
    return "integer" if computed and all(holds(v) == "integer" for v in computed) else "real"


def aligned(builder: Builder, values: Sequence[SSAValue], smallest: int = 0) -> list[SSAValue]:
    """The values; a weight of `smallest` axes or more gets leading axes of length 1, up to the largest rank."""
    rank = max((len(shape_of(v)) for v in values), default=0)
    filled: list[SSAValue] = []
    for value in values:
        array = builder.array(value)
        if array is not None and smallest <= array.ndim < rank:
            full = array.reshape((1,) * (rank - array.ndim) + array.shape)
            value = builder.weight(value_name(value), full, of=value)
        filled.append(value)
    return filled


class NaryTpu(TpuOp, LibraryKernel, OperandSlices, SharedWindows, Volumes):
    """An op on two or more tensors that broadcast. It can be cut along any axis and reads windows of larger slices."""

    ALONE: ClassVar[str] = "an element-wise op"
    MARGINS: ClassVar[Margins] = "read"

    inputs = var_operand_def(TensorType)
    output = result_def(TensorType)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        if len(self.inputs) < 2:
            raise ValueError(f"two or more operands are required, got {len(self.inputs)}")
        return (broadcast_shape([shape_of(v) for v in self.inputs]),)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local with operands of equal rank, up to 5, whose axes 3 and 4 broadcast together (layer_group.md 2)."""
        del chip
        return broadcast_why_global([shape_of(v) for v in self.inputs])

    @override
    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """SMALL_C groups take operands of one shape; in 3D groups n and d, which are one axis, broadcast together."""
        shapes = {shape_of(v) for v in self.inputs}
        if kind is GroupType.SMALL_C and len(shapes) > 1:
            return f"{self.name} broadcasts {sorted(shapes)}; SMALL_C joins axes of one shape only"
        if kind is GroupType.GROUP_3D and (why := mixed_depth(shapes)) is not None:
            return f"{self.name} {why}"
        return super().why_not_in(kind, chip)

    @override
    def broadcasts_depth(self) -> bool:
        return len({s[2] for s in map(shape_of, self.inputs) if len(s) == 5}) > 1

    @override
    def splits_weight(self, operand: int) -> bool:
        """Constants are cut like the result (layer_group.md 7.5)."""
        del operand
        return True

    def emit_chain(self, ctx: EmitContext, kind: str, views: Sequence[View], out: View, limit: float) -> None:
        """Combine `views` from left to right into `out`; the last command has the relu and its limit."""
        for i, view in enumerate(views[1:], 1):
            last = i == len(views) - 1
            ctx.emit(
                isa.Arith, kind=kind, a=views[0] if i == 1 else out, b=view, output=out,
                relu=last and relu_of(self), relu_limit=limit if last else -1.0,
            )  # fmt: skip


def float_operands(op: TopOp, ctx: LoweringContext, first: int = 0) -> list[SSAValue]:
    """The lowered operands of `op` from `first` on, in its float type."""
    return [ctx.none() if is_none(v) else ctx.operand(v, ctx.float_mode(op), op) for v in op.operands[first:]]


def built_in_float(op: TopOp, ctx: LoweringContext, cls: OpT, attributes: Mapping[str, Attribute]) -> SSAValue:
    """Build `cls` on the operands of `op`, in the float type of `op`, with its name and result shape."""
    shape = shape_of(op.results[0])
    return ctx.build(cls, float_operands(op, ctx), attributes, ctx.float_type(op), shape, op_name(op))


def built_in_integers(
    op: TopOp, ctx: LoweringContext, cls: OpT, operands: Sequence[SSAValue], attributes: Mapping[str, Attribute]
) -> SSAValue:
    """Build `cls` on these operands, in the quantised type of `op`'s result, with its name and shape."""
    result = op.results[0]
    return ctx.build(cls, operands, attributes, ctx.quantised_type(result), shape_of(result), op_name(op))


def value_dtype(value: object) -> str:
    """The NumPy dtype name of a value's storage: "int8", "uint8", "float32" ..."""
    return storage_dtype(element_of(value)).name  # type: ignore[arg-type]


def command_dtype(element: Attribute) -> DType:
    """The command dtype that stores an element type; commands have no unsigned integers of 32 bits."""
    dtype = storage_dtype(element)
    if dtype == np.uint32:
        return "i32"
    if is_packed(element):
        return "i4" if dtype.kind == "i" else "u4"
    return dtype_of(dtype)


def zero_point(value: object) -> int:
    """The zero point of a quantised value, 0 for any other."""
    uniform = uniform_of(value)  # type: ignore[arg-type]
    return uniform.zero_point.value.data if uniform else 0


def relu_attributes(relu: bool = False, limit: float = -1.0) -> dict[str, Attribute]:
    """do_relu and relu_limit; a limit below 0 is none."""
    return {"do_relu": flag(relu), "relu_limit": float_attr(limit)}


def relu_of(op: Operation) -> bool:
    """Whether the op has a fused relu."""
    attribute = getattr(op, "do_relu", None)
    return isinstance(attribute, IntegerAttr) and bool(attribute.value.data)


def is_set(attribute: BoolAttr | None) -> bool:
    """Whether an optional flag is present and true."""
    return attribute is not None and bool(attribute.value.data)


def relu_limit_of(op: Operation) -> float:
    """The fused relu's limit, -1.0 for none."""
    attribute = getattr(op, "relu_limit", None)
    return attribute.value.data if isinstance(attribute, FloatAttr) else -1.0


def broadcast_why_global(shapes: Sequence[Shape]) -> str | None:
    """Why a broadcasting op cannot be local; None for equal ranks up to 5 whose axes 3 and 4 broadcast together (2)."""
    if len({len(s) for s in shapes}) > 1:
        return f"operands of different rank ({', '.join(str(len(s)) for s in shapes)})"
    if len(shapes[0]) > 5:
        return "operands of rank above 5"
    if len(shapes[0]) == 5 and any(
        s[3:] not in ((1, 1), np.broadcast_shapes(*(t[3:] for t in shapes))) for s in shapes
    ):
        return f"axes 3 and 4 of {' and '.join(map(str, shapes))} do not broadcast together"
    return None


def mixed_depth(shapes: Iterable[Shape]) -> str | None:
    """Why operands cannot be in a 3D group, where n and d are one axis and broadcast together; None if they can."""
    different = sorted(set(shapes))
    pairs = {(s[0], s[2]) for s in different if len(s) == 5}
    if pairs <= {(1, 1), max(pairs, default=(1, 1), key=prod)}:
        return None
    return f"broadcasts {different} along one of n and d, which are one axis in a 3D group"


@once
def constant_operand(constant: np.ndarray, *, signed: bool = False) -> tuple[np.ndarray, float]:
    """(integers, scale s) of a constant operand: round-half-away(c/s), s = max|c|/127 or /255 in f32 (numerics.md 9.3).

    signed: int8 even without a negative value.
    """
    signed = signed or bool((constant < 0).any())
    scale = float((np.float32(np.abs(constant).max()) or np.float32(1)) / np.float32(127 if signed else 255))
    return quantised(constant, scale, "int8" if signed else "uint8"), scale


def limited(y: Array, op: Operation) -> Array:
    """A float result with the upper limit of the fused relu applied, if the op has a limit."""
    limit = relu_limit_of(op)
    return arith.clip_float(y, -np.inf, limit) if relu_of(op) and limit >= 0 else y


def emit_limit(ctx: EmitContext, op: Operation) -> None:
    """Emit the upper limit of a fused relu as a second command, for commands that only compute max(0, .)."""
    limit = relu_limit_of(op)
    if relu_of(op) and limit >= 0:
        ctx.emit(isa.Arith, kind="min", a=ctx.output(), b=limit, output=ctx.output())


MAX_AXIS = 65535
"""The longest axis of a command's operand (hardware.md 4)."""
MAX_PAD = 15
"""Elements that a command can pad on a side (hardware.md 4)."""


def shorter_axes(source: View, target: View) -> tuple[View, View]:
    """Two GMEM views of one shape, with every axis above 65535 split into two where a divisor allows it.

    The interleaved batch axis of a 4N tensor is not split: it counts words.
    """
    pairs = (source, target)
    sizes: list[int] = []
    strides: tuple[list[int], list[int]] = ([], [])
    moved: list[int] = [v.batch_axis for v in pairs]
    for axis, size in enumerate(source.shape):
        steps = [gmem_strides(v)[axis] for v in pairs]
        packed = any(v.interleave > 1 and v.batch_axis == axis for v in pairs)
        inner = 1 if packed or size <= MAX_AXIS else next(d for d in range(MAX_AXIS, 0, -1) if size % d == 0)
        for i, view in enumerate(pairs):
            moved[i] = len(sizes) if view.batch_axis == axis else moved[i]
            strides[i].extend([steps[i] * inner, steps[i]] if inner > 1 else [steps[i]])
        sizes.extend([size // inner, inner] if inner > 1 else [size])
    if len(sizes) == len(source.shape):
        return pairs
    cut = (
        msgspec.structs.replace(v, shape=tuple(sizes), layout="strided", strides=tuple(s), batch_axis=b)
        for v, s, b in zip(pairs, strides, moved, strict=True)
    )
    return next(cut), next(cut)


def part_of(view: View, axis: int, offset: int, shape: Shape, chip: ChipSpec) -> View:
    """The part of a tensor view that begins at `offset` along `axis` and has `shape`; strides are the whole's.

    In local memory (n, c, h, w) a channel offset moves the start lane: channel c of the part is channel offset + c of
    the whole (hardware.md 2.1). The batch axis of a 4N tensor can only be cut at whole words.
    """
    unit = element_bytes(view)
    if view.laned:
        n, row, h, w = lmem_strides(view, chip)
        lane, step = view.lane, (n, row, h, w)[axis] * offset
        if axis == 1:
            rows, lane = divmod(view.lane + offset, chip.lanes)
            step = row * rows
        strides: tuple[int, ...] = (n, row, h, w)
    else:
        strides, lane = gmem_strides(view), 0
        step = strides[axis] * offset
    if axis == view.batch_axis and view.interleave > 1:
        words, rest = divmod(offset, view.interleave)
        if rest:
            raise ValueError(f"batch offset {offset} is not a multiple of {view.interleave} packed items")
        step = strides[axis] * words
    return msgspec.structs.replace(
        view, address=view.address + step * unit, shape=tuple(shape), layout="strided", strides=strides, lane=lane
    )


def norm_work_bytes(output: TensorSlice, chip: ChipSpec) -> int:
    """Bytes of a normalisation's work area: two f32 copies and two scalars per channel (layer_group.md DL-05)."""
    n, c, h, w = output.shape
    vector, rows = chip.eu_elements(4), ceil_div(c, chip.lanes)
    return 2 * n * rows * align(h * w, vector) * 4 + 2 * rows * vector * 4


def constant_of(value: SSAValue, weights: WeightStore) -> np.ndarray | None:
    """The data of a top.Weight; None for a computed value, `none`, or a weight that is not in `weights`."""
    return weights.get(op_name(value.owner)) if isinstance(value.owner, TopWeight) else None


def only_user(value: SSAValue) -> Operation | None:
    """The op of the only use of a value; None for any other number of uses. Returning a tensor is a use."""
    return value.get_user_of_unique_use()
