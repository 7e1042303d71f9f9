"""`top.MaxPool` and `top.AvgPool`: shape, float function, and lowering by numerics.md 5.4 and 9.6."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Unpack

from tpusim_kernels import pool as kernels
from tpusim_kernels.prim.multiplier import best_fit
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.compat import Quirk
from tpusim.ir.attrs import flag, float_attr, int_attr, ints, ints_attr, op_name
from tpusim.ir.modes import pool_mode
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import (
    NARROWEST,
    Array,
    Builder,
    FloatRule,
    LoweringContext,
    OpT,
    QuantParams,
    RangeRule,
    Shape,
    TopOp,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import (
    built_in_integers,
    is_set,
    limited,
    relu_attributes,
    relu_limit_of,
    relu_of,
)
from tpusim.ops.framework.sliding import PoolWindow, window_attributes
from tpusim.ops.pool.tpu import TpuPool2D, keeps_axes, kept_shape, pool_geometry, pool_shape
from tpusim.ops.pool.volume import TpuPool3D
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.view import TopReshape, as_column


def _make(
    cls: type[TopOp], builder: Builder, x: SSAValue, more: dict[str, Attribute], name: str,
    **window: Unpack[PoolWindow],
) -> SSAValue:  # fmt: skip
    """Append a pool; without `window` it is over the whole image. 1-D becomes 2-D over (w, 1)."""
    shape = shape_of(x)
    if len(shape) not in (3, 4, 5):
        raise ValueError(f"an input (n, c, ...) with one to three window axes is required, got {shape}")
    image = (*shape, 1) if len(shape) == 3 else shape
    if "kernel_shape" in window:
        attributes = dict[str, Attribute](window_attributes(shape[2:], **window))
        if any(d != 1 for d in ints(attributes.pop("dilations"))):
            raise ValueError("dilations of 1 are required")
        attributes |= more | relu_attributes()
    else:
        attributes = window_over(image[2:], average="count_include_pad" in more)
    if len(shape) != 3:
        return builder.build(cls, [x], attributes, name)
    x = TopReshape.make(builder, x, shape=image, name=f"{name}_input")
    y = builder.build(cls, [x], attributes, f"{name}_2d")
    return TopReshape.make(builder, y, shape=shape_of(y)[:3], name=name)


def window_over(image: Shape, *, average: bool) -> dict[str, Attribute]:
    """The attributes of one window over a whole image or volume."""
    axes = len(image)
    counted: dict[str, Attribute] = {"count_include_pad": flag(False)} if average else {}
    return {
        "kernel_shape": ints_attr(image), "strides": ints_attr((1,) * axes), "pads": ints_attr((0, 0) * axes),
        **counted, **relu_attributes(),
    }  # fmt: skip


class PoolTop(TopOp):
    """A reduction of every window of an image (n, c, h, w) or a volume (n, c, d, h, w).

    keepdims false: there is one window per channel, and the result is (n, c).
    """

    input = operand_def(TensorType)
    output = result_def(TensorType)
    kernel_shape = attr_def(ArrayAttr)
    strides = attr_def(ArrayAttr)
    pads = attr_def(ArrayAttr)
    keepdims = opt_attr_def(BoolAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @property
    def geometry(self) -> dict[str, Any]:
        """kernel, strides and pads, as the kernels take them."""
        return pool_geometry(self.kernel_shape, self.strides, self.pads)

    @property
    def elements(self) -> int:
        """Elements of a window, padding included."""
        return prod(ints(self.kernel_shape))

    @property
    def tpu(self) -> OpT:
        """The class of the tpu op."""
        return TpuPool3D if len(ints(self.kernel_shape)) == 3 else TpuPool2D

    @override
    def take_form(self) -> str:
        """TPU-MLIR states no kernel for a window over the whole image."""
        image = shape_of(self.input)[2:]
        if not self.kernel_shape.data and image:
            whole = window_over(image, average=False)
            self.attributes |= {name: whole[name] for name in ("kernel_shape", "strides", "pads")}
        return as_column(self) or super().take_form()

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(n, c, oh, ow) or (n, c, od, oh, ow), or (n, c)."""
        return (kept_shape(self, pool_shape(shape_of(self.input), **self.geometry)),)

    @override
    def flops(self) -> int:
        """One per output and element of the window (DN-27)."""
        return prod(shape_of(self.output)) * self.elements

    def tpu_attributes(self, mode: str, limit: float = -1.0) -> dict[str, Attribute]:
        """The attributes of the tpu op."""
        found: dict[str, Attribute] = {"pool_mode": pool_mode(mode), **relu_attributes(relu_of(self), limit)}
        keep = ("kernel_shape", "strides", "pads", "count_include_pad", *(() if keeps_axes(self) else ("keepdims",)))
        return found | {key: self.attributes[key] for key in keep if key in self.attributes}


@irdl_op_definition
class TopMaxPool(PoolTop):
    """`top.MaxPool`: the maximum over every window; padding never wins (DN-17)."""

    name = "top.MaxPool"
    SPEC: ClassVar[tuple[str, ...]] = ("9.6",)
    FLOAT: ClassVar[FloatRule] = NARROWEST
    RANGE: ClassVar[RangeRule] = RangeRule(sign=True, backward=True, forward=True)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, name: str, **window: Unpack[PoolWindow]) -> SSAValue:
        """Over windows of `kernel_shape`, or by default over the whole image; x (n, c, [[d,] h,] w)."""
        return _make(cls, builder, x, {}, name, **window)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Maximum and relu in f32."""
        y = kernels.maxpool2d(operands[0], **self.geometry, do_relu=relu_of(self))
        return (limited(y, self).reshape(kept_shape(self, y.shape)),)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Pool2D or tpu.Pool3D on the stored bytes; input and output share one scale."""
        return self.lower_unless(ctx, None)

    def lower_unless(self, ctx: LoweringContext, why: str | None) -> SSAValue:
        """The same; if `why` is a reason against integers, in float."""
        limited_relu = self.tpu_attributes("Max", relu_limit_of(self))
        if any(ints(self.pads)):
            ctx.decision(self, "DN-17")
        return lower_same_scale(self, ctx, self.tpu, self.tpu_attributes("Max"), why, limited_relu)


@irdl_op_definition
class TopAvgPool(PoolTop):
    """`top.AvgPool`: sum over the window divided by its elements, padding counted if count_include_pad."""

    name = "top.AvgPool"
    SPEC: ClassVar[tuple[str, ...]] = ("9.6", "5.4", "5.6")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", f8="f8")
    RANGE: ClassVar[RangeRule] = RangeRule(sign=True)

    count_include_pad = opt_attr_def(BoolAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, count_include_pad: bool = False, name: str,
        **window: Unpack[PoolWindow],
    ) -> SSAValue:  # fmt: skip
        """Over windows of `kernel_shape`, or by default over the whole image; x (n, c, [[d,] h,] w)."""
        if count_include_pad and window.get("ceil_mode"):
            raise ValueError("count_include_pad with ceil_mode is not supported; set one of them to 0")
        return _make(cls, builder, x, {"count_include_pad": flag(count_include_pad)}, name, **window)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Average and relu in f32."""
        counted = is_set(self.count_include_pad)
        y = kernels.avgpool2d_float(operands[0], **self.geometry, count_include_pad=counted, do_relu=relu_of(self))
        return (limited(y, self).reshape(kept_shape(self, y.shape)),)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        operands, attributes = (
            [ctx.operand(self.input, ctx.float_mode(self), self)],
            self.tpu_attributes("Avg", relu_limit_of(self)),
        )
        return ctx.build(self.tpu, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """With an 8-bit multiplier and shift for s_in/(s_out*kernel); with zero points and in 3-D with a real scale."""
        x, y, why = ctx.quant(self.input), ctx.quant(self.output), self.why_not_integer(ctx)
        if x is None or y is None:
            return "input or output is not calibrated"
        if ctx.asymmetric:
            return self._lower_real(ctx, x, y)
        if why is not None:
            return why
        if self.tpu is TpuPool3D:
            return self._lower_real(ctx, x, y)
        try:
            m, r = best_fit(x.scale / (y.scale * self.elements), 8)
        except ValueError as error:
            return str(error)
        return self.build_average(ctx, m, r, self.output, op_name(self))

    def why_not_integer(self, ctx: LoweringContext) -> str | None:
        """What the op lacks for an average without zero points; None if nothing is missing."""
        if ctx.quant(self.input) is None or ctx.quant(self.output) is None:
            return "input or output is not calibrated"
        uneven = any(self.geometry["pads"]) and not is_set(self.count_include_pad)
        off = uneven and not ctx.reproduces(Quirk.AVGPOOL_FULL_KERNEL)
        return f"{Quirk.AVGPOOL_FULL_KERNEL} is switched off" if off else None

    def _lower_real(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> SSAValue | str:
        """With a real scale and offset (numerics.md 9.6).

        With zero points, windows that do not fit evenly are averaged in float. Padding that ONNX does not count has the
        zero point and is counted (U-04); the closed simulator does not rescale the average.
        """
        more: dict[str, Attribute] = {}
        if ctx.asymmetric:
            g, size = self.geometry, shape_of(self.input)[2:]
            outputs = pool_shape(shape_of(self.input), **g)[2:]
            for i, kernel in enumerate(g["kernel"]):
                if (outputs[i] - 1) * g["strides"][i] + kernel < size[i] + g["pads"][i] + g["pads"][len(size) + i]:
                    return "an uneven window with zero points is averaged in float (numerics.md 9.6)"
            if any(g["pads"]) and not is_set(self.count_include_pad):
                if not ctx.reproduces(Quirk.AVGPOOL_FULL_KERNEL):
                    ctx.decision(self, "DN-30")
                    return "padding that is not counted cannot have the zero point (numerics.md 9.6)"
                ctx.decision(self, Quirk.AVGPOOL_FULL_KERNEL.decision)
                more["count_include_pad"] = flag(x.zero_point != 0)
        attributes = self.tpu_attributes("Avg") | {
            **more,
            "scale": float_attr(x.scale / (self.elements * y.scale)),
            "offset": float_attr(y.zero_point - x.scale / y.scale * x.zero_point),
        }
        operands = [ctx.operand(self.input, "int8", self)]
        return built_in_integers(self, ctx, self.tpu, operands, attributes)

    def build_average(
        self,
        ctx: LoweringContext,
        m: int,
        r: int,
        typed: SSAValue,
        name: str,
        more: Mapping[str, Attribute] | None = None,
    ) -> SSAValue:
        """The tpu op with a multiplier and shift, with the stored type of the top value `typed`."""
        if any(ints(self.pads)) and not is_set(self.count_include_pad):
            ctx.decision(self, Quirk.AVGPOOL_FULL_KERNEL.decision)
        attributes = self.tpu_attributes("Avg") | {"multiplier": int_attr(m), "rshift": int_attr(r), **(more or {})}
        operands = [ctx.operand(self.input, "int8", self)]
        return ctx.build(self.tpu, operands, attributes, ctx.quantised_type(typed), shape_of(self.output), name)
