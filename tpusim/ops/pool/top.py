"""`top.MaxPool` and `top.AvgPool`: import, shape, float function, and lowering by numerics.md 5.4 and 9.6."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels import pool as kernels
from tpusim_kernels.prim.multiplier import avgpool_table, best_fit, small_multiplier
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, float_attr, int_attr, ints, ints_attr, op_name
from tpusim.ir.modes import pool_mode, round_mode
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.base import (
    Array,
    FloatRule,
    ImportContext,
    LoweringContext,
    OnnxNode,
    OpT,
    QuantInfo,
    RangeRule,
    Shape,
    TopOp,
)
from tpusim.ops.families import (
    is_set,
    limited,
    onnx_window,
    relu_attributes,
    relu_limit_of,
    relu_of,
)
from tpusim.ops.pool.tpu import TpuPool2D, kept_shape, pool_geometry, pool_shape
from tpusim.ops.pool.volume import TpuPool3D
from tpusim.ops.relu import ReluApart
from tpusim.ops.rescale import lower_same_scale, requantised
from tpusim.ops.small_multiplier import ratio
from tpusim.ops.view import TopReshape

MAX_SHIFT_KERNEL = 225
"""Kernel elements of an integer pool on a chip without requant multiplier (numerics.md 5.4, 12.1)."""


def _import(cls: type[TopOp], ctx: ImportContext, node: OnnxNode, *, average: bool) -> SSAValue:
    """A pool, or a global pool as one window over the whole image; 1-D as 2-D over (w, 1)."""
    x, name = ctx.value(node.inputs[0]), node.outputs[0]
    shape = shape_of(x)
    if len(shape) not in (3, 4, 5):
        raise node.refuse(f"an input (n, c, ...) with one to three window axes is required, got {shape}")
    image = (*shape, 1) if len(shape) == 3 else shape
    if node.op_type.startswith("Global"):
        attributes = window_over(image[2:], average=average)
    else:
        attributes = _onnx_attributes(node, shape[2:], average=average)
    if len(shape) != 3:
        return ctx.build(cls, [x], attributes, name)
    x = ctx.build(TopReshape, [x], {"shape": ints_attr(image)}, f"{name}_input")
    y = ctx.build(cls, [x], attributes, f"{name}_2d")
    return ctx.build(TopReshape, [y], {"shape": ints_attr(shape_of(y)[:3])}, name)


def window_over(image: Shape, *, average: bool) -> dict[str, Attribute]:
    """The attributes of one window over a whole image or volume."""
    axes = len(image)
    counted: dict[str, Attribute] = {"count_include_pad": flag(False)} if average else {}
    return {
        "kernel_shape": ints_attr(image), "strides": ints_attr((1,) * axes), "pads": ints_attr((0, 0) * axes),
        **counted, **relu_attributes(),
    }  # fmt: skip


def _onnx_attributes(node: OnnxNode, image: Shape, *, average: bool) -> dict[str, Attribute]:
    """The attributes of a pool with windows."""
    attributes = onnx_window(node, image)
    if any(d != 1 for d in ints(attributes.pop("dilations"))):
        raise node.refuse("dilations of 1 are required")
    if average:
        counted = bool(node.take("count_include_pad", 0))
        if counted and node.take("ceil_mode", 0):
            raise node.refuse("count_include_pad with ceil_mode is not supported; set one of them to 0")
        attributes["count_include_pad"] = flag(counted)
    return attributes | relu_attributes()


class PoolTop(TopOp):
    """A reduction of every window of an image (n, c, h, w) or a volume (n, c, d, h, w).

    keepdims false: the one window of each channel gives (n, c).
    """

    input = operand_def(TensorType)
    output = result_def(TensorType)
    kernel_shape = attr_def(ArrayAttr)
    strides = attr_def(ArrayAttr)
    pads = attr_def(ArrayAttr)
    keepdims = opt_attr_def(BoolAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @classmethod
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """CV18xx: the relu is an op of its own."""
        del weights
        return (ReluApart(cls.name),) if chip.requant == "qdm" else ()

    @property
    def geometry(self) -> dict[str, Any]:
        """kernel, strides, pads as the kernels take them."""
        return pool_geometry(self.kernel_shape, self.strides, self.pads)

    @property
    def elements(self) -> int:
        """Elements of one window."""
        return prod(ints(self.kernel_shape))

    @property
    def tpu(self) -> OpT:
        """The class of the tpu op."""
        return TpuPool3D if len(ints(self.kernel_shape)) == 3 else TpuPool2D

    def infer(self) -> tuple[Shape, ...]:
        """(n, c, oh, ow) or (n, c, od, oh, ow), or (n, c)."""
        return (kept_shape(self, pool_shape(shape_of(self.input), **self.geometry)),)

    def flops(self) -> int:
        """One per output and kernel element (DN-27)."""
        return prod(shape_of(self.output)) * self.elements

    def tpu_attributes(self, mode: str, limit: float = -1.0) -> dict[str, Attribute]:
        """The attributes of the tpu op."""
        found: dict[str, Attribute] = {"pool_mode": pool_mode(mode), **relu_attributes(relu_of(self), limit)}
        keep = ("kernel_shape", "strides", "pads", "count_include_pad", "keepdims")
        return found | {key: self.attributes[key] for key in keep if key in self.attributes}


@irdl_op_definition
class TopMaxPool(PoolTop):
    """`top.MaxPool`: padding never wins (DN-17)."""

    name = "top.MaxPool"
    SPEC: ClassVar[tuple[str, ...]] = ("9.6",)
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
        y = kernels.maxpool2d(operands[0], **self.geometry, do_relu=relu_of(self))
        return (limited(y, self).reshape(kept_shape(self, y.shape)),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Pool2D or tpu.Pool3D on the stored bytes: input and output share one scale."""
        limited_relu = self.tpu_attributes("Max", relu_limit_of(self))
        why = _too_large(self, ctx.chip)
        if any(ints(self.pads)):
            ctx.decision(self, "DN-17")
        return lower_same_scale(self, ctx, self.tpu, self.tpu_attributes("Max"), why, limited_relu)


def _too_large(op: PoolTop, chip: ChipSpec) -> str | None:
    """Why a chip without requant multiplier pools this kernel in float."""
    if chip.requant != "shift" or op.elements <= MAX_SHIFT_KERNEL:
        return None
    return f"a kernel of {op.elements} elements, {chip.name} pools at most {MAX_SHIFT_KERNEL} in integers"


FULL_KERNEL = "avgpool_full_kernel"
"""The quirk of integer averages that leave padding out (numerics.md 9.6, 17.2)."""


@irdl_op_definition
class TopAvgPool(PoolTop):
    """`top.AvgPool`: sum over the window divided by its elements, padding counted if count_include_pad."""

    name = "top.AvgPool"
    SPEC: ClassVar[tuple[str, ...]] = ("9.6", "5.4", "5.6")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32")
    ONNX: ClassVar[tuple[str, ...]] = ("AveragePool", "GlobalAveragePool")
    RANGE: ClassVar[RangeRule] = RangeRule(sign=True)

    count_include_pad = opt_attr_def(BoolAttr)

    def range_rule(self, chip: ChipSpec) -> RangeRule:
        """BM1684 hands the range on (numerics.md 3.3 step 9)."""
        return RangeRule(sign=True, forward=chip.requant == "shift")

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX AveragePool and GlobalAveragePool."""
        return _import(cls, ctx, node, average=True)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32 average, relu."""
        counted = is_set(self.count_include_pad)
        y = kernels.avgpool2d_float(operands[0], **self.geometry, count_include_pad=counted, do_relu=relu_of(self))
        return (limited(y, self).reshape(kept_shape(self, y.shape)),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """Integers with an 8-bit multiplier and shift for s_in/(s_out*kernel), or a real scale (3-D), else in float."""
        if ctx.mode(self) == "int8":
            lowered = self._lower_int8(ctx)
            if isinstance(lowered, SSAValue):
                return lowered
            ctx.fallback(self, lowered)
        operands, attributes = (
            [ctx.operand(self.input, ctx.float_mode(self), self)],
            self.tpu_attributes("Avg", relu_limit_of(self)),
        )
        return ctx.build(self.tpu, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _lower_int8(self, ctx: LoweringContext) -> SSAValue | str:
        """The integer form, or why there is none."""
        x, y = ctx.quant(self.input), ctx.quant(self.output)
        if x is None or y is None:
            return "input or output is not calibrated"
        if ctx.asymmetric:
            return self._lower_real(ctx, x, y)
        if any(self.geometry["pads"]) and not is_set(self.count_include_pad) and not ctx.reproduces(FULL_KERNEL):
            return f"{FULL_KERNEL} is switched off"
        if ctx.chip.requant == "shift":
            return self._lower_shift(ctx)
        if self.tpu is TpuPool3D:
            if ctx.chip.requant == "qdm":
                return "a 3-D average has no integer form (numerics.md 12.1)"
            return self._lower_real(ctx, x, y)
        if ctx.chip.requant == "qdm":
            fit = small_multiplier(ratio(self.input, self.output) / self.elements)
            return self._build(ctx, *fit, self.output, op_name(self), {"first_round_mode": round_mode("HalfUp")})
        try:
            m, r = best_fit(x.scale / (y.scale * self.elements), 8)
        except ValueError as error:
            return str(error)
        return self._build(ctx, m, r, self.output, op_name(self))

    def _lower_real(self, ctx: LoweringContext, x: QuantInfo, y: QuantInfo) -> SSAValue | str:
        """One real scale and offset: with zero points, and 3-D always (numerics.md 9.6).

        With zero points an uneven window is averaged in float.
        """
        if ctx.asymmetric:
            g, size = self.geometry, shape_of(self.input)[2:]
            found = pool_shape(shape_of(self.input), **g)[2:]
            for i, kernel in enumerate(g["kernel"]):
                if (found[i] - 1) * g["strides"][i] + kernel < size[i] + g["pads"][i] + g["pads"][len(size) + i]:
                    return "an uneven window with zero points is averaged in float (numerics.md 9.6)"
            if any(g["pads"]) and not is_set(self.count_include_pad):
                ctx.decision(self, "DN-30")
                return "padding that is left out of the average cannot hold the zero point (numerics.md 9.6)"
        attributes = self.tpu_attributes("Avg") | {
            "scale": float_attr(x.scale / (self.elements * y.scale)),
            "offset": float_attr(y.zero_point - x.scale / y.scale * x.zero_point),
        }
        operands, element = [ctx.operand(self.input, "int8", self)], ctx.quantised_type(self.output)
        return ctx.build(self.tpu, operands, attributes, element, shape_of(self.output), op_name(self))

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
        return requantised(ctx, self, pooled, x, self.output, name) or "the input's scale is far above the output's"

    def _build(
        self,
        ctx: LoweringContext,
        m: int,
        r: int,
        typed: SSAValue,
        name: str,
        more: Mapping[str, Attribute] | None = None,
    ) -> SSAValue:
        """The tpu op with the stored type of the top value `typed`."""
        if any(ints(self.pads)) and not is_set(self.count_include_pad):
            ctx.decision(self, "DN-02 avgpool_full_kernel")
        attributes = self.tpu_attributes("Avg") | {"multiplier": int_attr(m), "rshift": int_attr(r), **(more or {})}
        operands = [ctx.operand(self.input, "int8", self)]
        return ctx.build(self.tpu, operands, attributes, ctx.quantised_type(typed), shape_of(self.output), name)
