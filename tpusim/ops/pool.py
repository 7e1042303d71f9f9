"""2-D pooling: `top.MaxPool`, `top.AvgPool` and `tpu.Pool2D` (numerics.md 5.4, 9.6)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels import pool as kernels
from tpusim_kernels.prim.multiplier import avgpool_table, best_fit
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, flag, float_attr, int_attr, ints, ints_attr, op_name, text
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.ops.base import (
    Array,
    Axis,
    EmitContext,
    FloatRule,
    ImportContext,
    LoweringContext,
    OnnxNode,
    QuantInfo,
    RangeRule,
    Shape,
    TensorSlice,
    TopOp,
    TpuOp,
    Window,
)
from tpusim.ops.families import (
    clip,
    conv_extent,
    emit_limit,
    is_set,
    limited,
    onnx_window,
    relu_attributes,
    relu_limit_of,
    relu_of,
    value_dtype,
    window_need,
    window_pads,
    zero_point,
)
from tpusim.ops.rescale import lower_same_scale, requantised

MAX_SHIFT_KERNEL = 225
"""Kernel elements of an integer pool on a chip without requant multiplier (numerics.md 5.4, 12.1)."""


def pool_shape(x: Shape, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> Shape:
    """(n, c, oh, ow). Raises ValueError if a window does not fit, or lies in the padding alone."""
    if len(x) != 4:
        raise ValueError(f"an input (n, c, h, w) is required, got {x}")
    found: list[int] = []
    for i in range(2):
        out = conv_extent(x[2 + i], kernel[i], strides[i], pads[i], pads[2 + i])
        if pads[i] >= kernel[i] or (out - 1) * strides[i] - pads[i] >= x[2 + i]:
            raise ValueError(f"pads below the kernel {list(kernel)} are required, got {list(pads)}")
        found.append(out)
    return x[0], x[1], *found


def _import(cls: type[TopOp], ctx: ImportContext, node: OnnxNode, *, average: bool) -> SSAValue:
    """A pool, or a global pool as one window over the whole image."""
    x = ctx.value(node.inputs[0])
    shape = shape_of(x)
    if len(shape) != 4:
        raise node.refuse(f"an input (n, c, h, w) is required, got {shape}")
    if node.op_type.startswith("Global"):
        attributes: dict[str, Attribute] = {
            "kernel_shape": ints_attr(shape[2:]), "strides": ints_attr((1, 1)), "pads": ints_attr((0, 0, 0, 0))
        }  # fmt: skip
    else:
        attributes = onnx_window(node, shape[2:])
        if any(d != 1 for d in ints(attributes.pop("dilations"))):
            raise node.refuse("dilations of 1 are required")
    if average:
        counted = bool(node.take("count_include_pad", 0))
        if counted and node.take("ceil_mode", 0):
            raise node.refuse("count_include_pad with ceil_mode is not supported; set one of them to 0")
        attributes["count_include_pad"] = flag(counted)
    return ctx.build(cls, [x], {**attributes, **relu_attributes()}, node.outputs[0])


class PoolTop(TopOp):
    """A reduction of every window of an image, input (n, c, h, w)."""

    input = operand_def(TensorType)
    output = result_def(TensorType)
    kernel_shape = attr_def(ArrayAttr)
    strides = attr_def(ArrayAttr)
    pads = attr_def(ArrayAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @property
    def geometry(self) -> dict[str, Any]:
        """kernel, strides, pads as the kernels take them."""
        return _geometry(self.kernel_shape, self.strides, self.pads)

    @property
    def elements(self) -> int:
        """Elements of one window."""
        return prod(ints(self.kernel_shape))

    def infer(self) -> tuple[Shape, ...]:
        """(n, c, oh, ow)."""
        return (pool_shape(shape_of(self.input), **self.geometry),)

    def flops(self) -> int:
        """One per output and kernel element (DN-27)."""
        return prod(shape_of(self.output)) * self.elements

    def tpu_attributes(self, mode: str, limit: float = -1.0) -> dict[str, Attribute]:
        """The attributes of the tpu op."""
        found: dict[str, Attribute] = {"pool_mode": text(mode), **relu_attributes(relu_of(self), limit)}
        keep = ("kernel_shape", "strides", "pads", "count_include_pad")
        return found | {key: self.attributes[key] for key in keep if key in self.attributes}


def _geometry(kernel: Attribute, strides: Attribute, pads: Attribute) -> dict[str, Any]:
    return {"kernel": ints(kernel), "strides": ints(strides), "pads": ints(pads)}


@irdl_op_definition
class TopMaxPool(PoolTop):
    """`top.MaxPool`: padding never wins (DN-17)."""

    name = "top.MaxPool"
    ONNX: ClassVar[tuple[str, ...]] = ("MaxPool", "GlobalMaxPool")
    RANGE: ClassVar[RangeRule] = RangeRule(sign=True, backward=True, forward=True)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX MaxPool and GlobalMaxPool; the importer refuses a used second output (Indices)."""
        if node.take("storage_order", 0):
            raise node.refuse("storage_order 0 is required")
        return _import(cls, ctx, node, average=False)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32 maximum, relu."""
        return (limited(kernels.maxpool2d(operands[0], **self.geometry, do_relu=relu_of(self)), self),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Pool2D on the stored bytes: input and output share one scale."""
        limited_relu = self.tpu_attributes("Max", relu_limit_of(self))
        why = _too_large(self, ctx.chip)
        return lower_same_scale(self, ctx, TpuPool2D, self.tpu_attributes("Max"), why, limited_relu)


def _too_large(op: PoolTop, chip: ChipSpec) -> str | None:
    """Why a chip without requant multiplier pools this kernel in float."""
    if chip.requant_words > 0 or op.elements <= MAX_SHIFT_KERNEL:
        return None
    return f"a kernel of {op.elements} elements, {chip.name} pools at most {MAX_SHIFT_KERNEL} in integers"


@irdl_op_definition
class TopAvgPool(PoolTop):
    """`top.AvgPool`: sum over the window divided by its elements, padding counted if count_include_pad."""

    name = "top.AvgPool"
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32")
    ONNX: ClassVar[tuple[str, ...]] = ("AveragePool", "GlobalAveragePool")
    RANGE: ClassVar[RangeRule] = RangeRule(sign=True, forward_without_multiplier=True)

    count_include_pad = opt_attr_def(BoolAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX AveragePool and GlobalAveragePool."""
        return _import(cls, ctx, node, average=True)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32 average, relu."""
        counted = is_set(self.count_include_pad)
        y = kernels.avgpool2d_float(operands[0], **self.geometry, count_include_pad=counted, do_relu=relu_of(self))
        return (limited(y, self),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Pool2D with an 8-bit multiplier and shift for s_in/(s_out*kh*kw), else in float."""
        if ctx.mode(self) == "int8":
            lowered = self._lower_int8(ctx)
            if isinstance(lowered, SSAValue):
                return lowered
            ctx.fallback(self, lowered)
        operands, attributes = (
            [ctx.operand(self.input, ctx.float_mode(self), self)],
            self.tpu_attributes("Avg", relu_limit_of(self)),
        )
        return ctx.build(TpuPool2D, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _lower_int8(self, ctx: LoweringContext) -> SSAValue | str:
        """The integer form, or why there is none."""
        x, y = ctx.quant(self.input), ctx.quant(self.output)
        if x is None or y is None:
            return "input or output is not calibrated"
        if ctx.asymmetric:
            return self._lower_zero_points(ctx, x, y)
        if ctx.chip.requant_words == 0:
            return self._lower_shift(ctx)
        try:
            m, r = best_fit(x.scale / (y.scale * self.elements), 8)
        except ValueError as error:
            return str(error)
        return self._build(ctx, m, r, self.output, op_name(self))

    def _lower_zero_points(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> SSAValue | str:
        """With zero points: one real scale and offset (numerics.md 9.6); an uneven window is averaged in float."""
        g, shape = self.geometry, shape_of(self.input)
        (kh, kw), (sh, sw), (top, left, bottom, right) = g["kernel"], g["strides"], g["pads"]
        oh, ow = shape_of(self.output)[2:]
        if (ow - 1) * sw + kw < shape[3] + left + right or (oh - 1) * sh + kh < shape[2] + top + bottom:
            return "an uneven window with zero points is averaged in float (numerics.md 9.6)"
        if any(g["pads"]) and not is_set(self.count_include_pad):
            return "padding that is not counted would count the zero point"
        attributes = self.tpu_attributes("Avg") | {
            "scale": float_attr(x.scale / (self.elements * y.scale)),
            "offset": float_attr(y.zero_point - x.scale / y.scale * x.zero_point),
        }
        operands, element = [ctx.operand(self.input, "int8", self)], ctx.quantised_type(self.output)
        return ctx.build(TpuPool2D, operands, attributes, element, shape_of(self.output), op_name(self))

    def _lower_shift(self, ctx: LoweringContext) -> SSAValue | str:
        """BM1684: the table of 1/k, at the input's scale (numerics.md 5.4).

        Threshold propagation gives the output the input's range there (3.3 step 9); where it has another one, a
        requant follows.
        """
        x, y, name = ctx.quant(self.input), ctx.quant(self.output), op_name(self)
        why = _too_large(self, ctx.chip)
        if why is not None or x is None:
            return why or "the input is not calibrated"
        m, r = avgpool_table(self.elements)
        if x == y:
            return self._build(ctx, m, r, self.output, name)
        pooled = self._build(ctx, m, r, self.input, name + "_pooled")
        return requantised(ctx, pooled, x, self.output, name) or "the input's scale is far above the output's"

    def _build(self, ctx: LoweringContext, m: int, r: int, typed: SSAValue, name: str) -> SSAValue:
        """The tpu op with the stored type of the top value `typed`."""
        attributes = self.tpu_attributes("Avg") | {"multiplier": int_attr(m), "rshift": int_attr(r)}
        operands = [ctx.operand(self.input, "int8", self)]
        return ctx.build(TpuPool2D, operands, attributes, ctx.quantised_type(typed), shape_of(self.output), name)


@irdl_op_definition
class TpuPool2D(TpuOp):
    """`tpu.Pool2D`: pool_mode "Max" (any stored type) or "Avg" (f32, or symmetric integers with one requant)."""

    name = "tpu.Pool2D"

    input = operand_def(TensorType)
    output = result_def(TensorType)
    pool_mode = attr_def(StringAttr)
    kernel_shape = attr_def(ArrayAttr)
    strides = attr_def(ArrayAttr)
    pads = attr_def(ArrayAttr)
    count_include_pad = opt_attr_def(BoolAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)
    multiplier = opt_attr_def(IntegerAttr)
    rshift = opt_attr_def(IntegerAttr)
    scale = opt_attr_def(FloatAttr)
    offset = opt_attr_def(FloatAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    @property
    def geometry(self) -> dict[str, Any]:
        """kernel, strides, pads (top, left, bottom, right)."""
        return _geometry(self.kernel_shape, self.strides, self.pads)

    @property
    def scaling(self) -> tuple[int, int] | None:
        """(multiplier, right shift), None without requant."""
        if self.multiplier is None or self.rshift is None:
            return None
        return self.multiplier.value.data, self.rshift.value.data

    def infer(self) -> tuple[Shape, ...]:
        """(n, c, oh, ow)."""
        if self.pool_mode.data not in ("Max", "Avg"):
            raise ValueError(f'pool_mode "Max" or "Avg" is required, got "{self.pool_mode.data}"')
        return (pool_shape(shape_of(self.input), **self.geometry),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Max of the stored values; Avg: sum*kh*kw/count rounded half away, then the requant (numerics.md 9.6)."""
        x, relu = operands[0], relu_of(self)
        if self.pool_mode.data == "Max":
            return (limited(kernels.maxpool2d(x, **self.geometry, do_relu=relu), self),)
        counted = is_set(self.count_include_pad)
        if self.scale is not None and self.offset is not None:
            y = kernels.avgpool2d_asym(
                x, self.scale.value.data, self.offset.value.data, zero_point(self.input), zero_point(self.output),
                **self.geometry, count_include_pad=counted, do_relu=relu, out_dtype=value_dtype(self.output),
            )  # fmt: skip
            return (y,)
        if self.scaling is None:
            y = kernels.avgpool2d_float(x, **self.geometry, count_include_pad=counted, do_relu=relu)
            return (limited(y, self),)
        dtype = value_dtype(self.output)
        y = kernels.avgpool2d_int(
            x, *self.scaling, **self.geometry, count_include_pad=counted, do_relu=relu, out_dtype=dtype
        )
        return (y,)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Strides within the chip's limit (layer_group.md 2), pads within the command's."""
        if max(self.geometry["strides"]) > chip.max_stride:
            return f"stride {max(self.geometry['strides'])} above {chip.max_stride}"
        return "pads above 15" if max(self.geometry["pads"]) > 15 else None

    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """h, w: t = (s-1)*stride + k, i = o*stride - pad (layer_group.md 7.2)."""
        del operand
        if axis not in ("h", "w"):
            return window
        i, g = ("h", "w").index(axis), self.geometry
        return window_need(window, g["kernel"][i], g["strides"][i], g["pads"][i])

    def emit(self, ctx: EmitContext) -> None:
        """PorD pooling of this slice; its pads are what the slice's window has outside the image."""
        out, x, g = ctx.output_slice(), TensorSlice.whole(shape_of(self.input)), self.geometry
        needs = [
            window_need(window, g["kernel"][i], g["strides"][i], g["pads"][i])
            for i, window in enumerate((out.h, out.w))
        ]
        rows, columns = clip(needs[0], x.h[1]), clip(needs[1], x.w[1])
        (top, bottom), (left, right) = window_pads(needs[0], rows), window_pads(needs[1], columns)
        ctx.emit(
            isa.Pool, mode=self.pool_mode.data.lower(), input=ctx.input(0, h=rows, w=columns), output=ctx.output(),
            kernel=g["kernel"], strides=g["strides"], pads=(top, left, bottom, right),
            count_include_pad=is_set(self.count_include_pad), relu=relu_of(self),
            requant=None if self.scaling is None else isa.Requant(*self.scaling),
            scale=self.scale.value.data if self.scale else 0.0, offset=self.offset.value.data if self.offset else 0.0,
            pad_value=zero_point(self.input), zero_point=zero_point(self.output),
        )  # fmt: skip
        emit_limit(ctx, self)
