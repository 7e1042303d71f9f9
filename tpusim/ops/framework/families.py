"""Answers that families of ops share, so that an op file states only what is special about its op."""

from collections.abc import Iterable, Sequence
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
from tpusim.ir.attrs import LayerGroupAttr, flag, float_attr, op_name, value_name
from tpusim.ir.once import once
from tpusim.ir.types import element_of, is_packed, shape_of, storage_dtype, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa.layout import align, ceil_div, element_bytes, gmem_strides, lmem_strides
from tpusim.isa.region import DType, View, dtype_of
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    GroupType,
    Holds,
    Shape,
    TensorSlice,
    TopOp,
    TpuOp,
    Window,
    holds,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.interfaces import Margins, OperandSlices, SharedWindows, Volumes
from tpusim.ops.structure import TopWeight


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """NumPy broadcasting. Raises ValueError naming the shapes."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ValueError(f"operand shapes {', '.join(map(str, shapes))} do not broadcast") from None


def conv_extent(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Output elements of a sliding window along one axis. Raises ValueError if the window does not fit."""
    reach = (kernel - 1) * dilation + 1
    span = size + before + after - reach
    if span < 0:
        raise ValueError(f"a window of {reach} does not fit {size} + pads {before} + {after}")
    return span // stride + 1


def window_need(window: Window, kernel: int, stride: int, before: int, dilation: int = 1) -> Window:
    """The input window that exactly serves an output window; it may reach into the padding."""
    start, size = window
    return start * stride - before, (size - 1) * stride + (kernel - 1) * dilation + 1


def clip(window: Window, length: int) -> Window:
    """The part of a window inside [0, length)."""
    start = max(window[0], 0)
    return start, min(window[0] + window[1], length) - start


def window_pads(need: Window, got: Window) -> tuple[int, int]:
    """(before, after): how far the needed window reaches beyond the one at hand."""
    return got[0] - need[0], need[0] + need[1] - got[0] - got[1]


def padded_window(window: Window, size: int, reach: int, stride: int, before: int) -> tuple[Window, tuple[int, int]]:
    """(input window, (pads before, after)) of the command that makes an output window of a convolution.

    A command reads an element at least. An output window over padding alone therefore takes what a slice of it has, the
    max(reach, stride) of layer_group.md 7.2, or else the whole axis: neither makes an output more.
    """
    start, count = window
    sliced = start * stride - before, (count - 1) * stride + max(reach, stride)
    for need in (window_need(window, reach, stride, before), sliced):
        got = clip(need, size)
        if got[1] > 0:
            return got, window_pads(need, got)
    return (0, size), (before, 0)


class UnaryTop(TopOp):
    """One tensor in, one of the same shape out."""

    input = operand_def(TensorType)
    output = result_def(TensorType)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's shape."""
        return (shape_of(self.input),)

    def flops(self) -> int:
        """One per element (DN-27)."""
        return int(np.prod(shape_of(self.output)))


class ElementwiseTpu(TpuOp):
    """An op that computes every element of its first operand by itself, with or without constants."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Element-wise ops are local up to rank 5 (DL-02)."""
        del chip
        return None if len(shape_of(self.operands[0])) <= 5 else "rank above 5"


class UnaryTpu(ElementwiseTpu):
    """One tensor in, one of the same shape out; cut along any axis."""

    input = operand_def(TensorType)
    output = result_def(TensorType)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's shape."""
        return (shape_of(self.input),)


class NaryTop(TopOp):
    """Two or more tensors in, their broadcast out, with an optional relu."""

    inputs = var_operand_def(TensorType)
    output = result_def(TensorType)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The extents to which the operands broadcast."""
        return (broadcast_shape([shape_of(v) for v in self.inputs]),)

    def flops(self) -> int:
        """One operation per element and further operand, one for a relu (DN-27)."""
        return int(np.prod(shape_of(self.output))) * (len(self.inputs) - 1 + relu_of(self))


class ArithmeticTop(NaryTop):
    """What a front end builds of tensors alone."""

    ALIGNED_FROM: ClassVar[int | None] = 1
    """Rank from which weights get leading axes, None: never. Scalars mostly become an op of a tensor and a number."""

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, inputs: Sequence[SSAValue], *, do_relu: bool | None = False, relu_limit: float = -1.0,
        name: str,
    ) -> SSAValue:  # fmt: skip
        """Two or more tensors; a weight of lower rank gets leading axes of length 1, so that the op can run locally.

        do_relu None: there is none, and the op does not say so (it is then no duplicate of one that does).
        """
        if len(inputs) < 2:
            raise ValueError(f"two or more operands are required, got {len(inputs)}")
        values = inputs if cls.ALIGNED_FROM is None else aligned(builder, inputs, cls.ALIGNED_FROM)
        return builder.build(cls, values, {} if do_relu is None else relu_attributes(do_relu, relu_limit), name)

    def held(self) -> Holds:
        """Integers stay integers; what else it holds is float."""
        computed = [v for v in self.inputs if not isinstance(v.owner, TopWeight)]
        return "integer" if computed and all(holds(v) == "integer" for v in computed) else self.HOLDS


def aligned(builder: Builder, values: Sequence[SSAValue], smallest: int = 0) -> list[SSAValue]:
    """The values; a weight of `smallest` axes or more gets leading axes of length 1 up to the largest rank."""
    rank = max((len(shape_of(v)) for v in values), default=0)
    found: list[SSAValue] = []
    for value in values:
        array = builder.array(value)
        if array is not None and smallest <= array.ndim < rank:
            full = array.reshape((1,) * (rank - array.ndim) + array.shape)
            value = builder.weight(value_name(value), full, of=value)
        found.append(value)
    return found


class NaryTpu(TpuOp, OperandSlices, SharedWindows, Volumes):
    """Two or more tensors in, their broadcast out; local, cut along any axis, reads any window of a larger slice."""

    MARGINS: ClassVar[Margins] = "read"

    inputs = var_operand_def(TensorType)
    output = result_def(TensorType)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The extents to which the operands broadcast."""
        if len(self.inputs) < 2:
            raise ValueError(f"two or more operands are required, got {len(self.inputs)}")
        return (broadcast_shape([shape_of(v) for v in self.inputs]),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Operands of equal rank, up to 5; axes 3 and 4 broadcast alike (layer_group.md 2)."""
        del chip
        return broadcast_why_global([shape_of(v) for v in self.inputs])

    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """SMALL_C: operands of one shape. 3D: n and d, which lie along one axis there, broadcast both or none."""
        shapes = {shape_of(v) for v in self.inputs}
        if kind is GroupType.SMALL_C and len(shapes) > 1:
            return f"{self.name} broadcasts {sorted(shapes)}; SMALL_C joins axes of one shape only"
        if kind is GroupType.GROUP_3D and (why := mixed_depth(shapes)) is not None:
            return f"{self.name} {why}"
        return super().why_not_in(kind, chip)

    def broadcasts_depth(self) -> bool:
        """Whether operands with five axes differ in depth (layer_group.md 2)."""
        return len({s[2] for s in map(shape_of, self.inputs) if len(s) == 5}) > 1

    def splits_weight(self, operand: int) -> bool:
        """A constant is cut as the result is (layer_group.md 7.5)."""
        del operand
        return True

    def emit_chain(self, ctx: EmitContext, kind: str, views: Sequence[View], out: View, limit: float) -> None:
        """`views` combined from left to right into `out`; relu and its limit with the last command."""
        for i, view in enumerate(views[1:], 1):
            last = i == len(views) - 1
            ctx.emit(
                isa.Arith, kind=kind, a=views[0] if i == 1 else out, b=view, output=out,
                relu=last and relu_of(self), relu_limit=limit if last else -1.0,
            )  # fmt: skip


def value_dtype(value: object) -> str:
    """The NumPy dtype name of a value's storage: "int8", "uint8", "float32" ..."""
    return storage_dtype(element_of(value)).name  # type: ignore[arg-type]


def command_dtype(element: Attribute) -> DType:
    """The command dtype that stores an element type."""
    dtype = storage_dtype(element)
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
    attribute = op.attributes.get("do_relu")
    return isinstance(attribute, IntegerAttr) and bool(attribute.value.data)


def is_set(attribute: BoolAttr | None) -> bool:
    """Whether an optional flag is there and true."""
    return attribute is not None and bool(attribute.value.data)


def relu_limit_of(op: Operation) -> float:
    """The fused relu's limit, -1.0 for none."""
    attribute = op.attributes.get("relu_limit")
    return attribute.value.data if isinstance(attribute, FloatAttr) else -1.0


def broadcast_why_global(shapes: Sequence[Shape]) -> str | None:
    """Why a broadcasting op cannot be local: equal rank up to 5, axes 3 and 4 broadcast alike (layer_group.md 2)."""
    if len({len(s) for s in shapes}) > 1:
        return f"operands of different rank ({', '.join(str(len(s)) for s in shapes)})"
    if len(shapes[0]) > 5:
        return "operands of rank above 5"
    if len(shapes[0]) == 5 and any(
        s[3:] not in ((1, 1), np.broadcast_shapes(*(t[3:] for t in shapes))) for s in shapes
    ):
        return f"axes 3 and 4 of {' and '.join(map(str, shapes))} do not broadcast alike"
    return None


def mixed_depth(shapes: Iterable[Shape]) -> str | None:
    """Why operands cannot be in a 3D group: n and d, which lie along one axis there, broadcast both or none."""
    found = sorted(set(shapes))
    pairs = {(s[0], s[2]) for s in found if len(s) == 5}
    if pairs <= {(1, 1), max(pairs, default=(1, 1), key=prod)}:
        return None
    return f"broadcasts {found} along one of n and d, which are one axis in a 3D group"


@once
def constant_operand(constant: np.ndarray, *, signed: bool = False) -> tuple[np.ndarray, float]:
    """(round-half-away(c/s), s) of a constant operand, s the f32 quotient of max|c| and 127 or 255 (numerics.md 9.3).

    signed: int8 in any case.
    """
    signed = signed or bool((constant < 0).any())
    scale = float((np.float32(np.abs(constant).max()) or np.float32(1)) / np.float32(127 if signed else 255))
    return quantised(constant, scale, "int8" if signed else "uint8"), scale


def limited(y: Array, op: Operation) -> Array:
    """The float result with the fused relu's upper limit applied, if the op has one."""
    limit = relu_limit_of(op)
    return arith.clip_float(y, -np.inf, limit) if relu_of(op) and limit >= 0 else y


def emit_limit(ctx: EmitContext, op: Operation) -> None:
    """The upper limit of a fused relu as a second command, for commands that only know max(0, .)."""
    limit = relu_limit_of(op)
    if relu_of(op) and limit >= 0:
        ctx.emit(isa.Arith, kind="min", a=ctx.output(), b=limit, output=ctx.output())


MAX_AXIS = 65535
"""The longest axis of a command's operand (hardware.md 4)."""
MAX_PAD = 15
"""Elements that a command can pad on a side (hardware.md 4)."""


def shorter_axes(source: View, target: View) -> tuple[View, View]:
    """Two unlaned GMEM views of one shape with every axis above 65535 cut in two, where a divisor allows it.

    The interleaved batch axis of a 4N tensor is left alone: it counts words.
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
    """Work area of a normalisation: two f32 copies and two per-channel scalars (layer_group.md DL-05)."""
    n, c, h, w = output.shape
    vector, rows = chip.eu_elements(4), ceil_div(c, chip.lanes)
    return 2 * n * rows * align(h * w, vector) * 4 + 2 * rows * vector * 4


def constant_of(value: SSAValue, weights: WeightStore) -> np.ndarray | None:
    """The data behind a top.Weight, None for a computed value, `none`, or a weight whose data is not at hand."""
    return weights.get(op_name(value.owner)) if isinstance(value.owner, TopWeight) else None


def only_user(value: SSAValue) -> Operation | None:
    """The op that alone uses a value, once; None if there are more uses (a returned tensor counts as used)."""
    return value.get_user_of_unique_use()
