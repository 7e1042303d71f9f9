"""LeakyRelu and PRelu: negative values times one slope, or a slope per channel (numerics.md 5.3, 5.6, 9.0, 9.7)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import arith as kernels
from tpusim_kernels.arith_shift import sloped_int
from tpusim_kernels.prim.multiplier import best_fit, shared_small_multiplier
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import RewritePattern

from tpusim.ir.attrs import float_attr, int_attr, op_name
from tpusim.ir.pdl import DataPattern, Drawing, reads_weights
from tpusim.ir.reading import reshape_channels
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.ops.framework.base import (
    Array,
    Axis,
    Builder,
    EmitContext,
    LoweringContext,
    RangeRule,
    Shape,
    TopOp,
    Window,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import (
    ElementwiseTpu,
    UnaryTop,
    UnaryTpu,
    built_in_integers,
    constant_of,
    value_dtype,
)
from tpusim.ops.framework.rewriting import first_number
from tpusim.ops.framework.views import on_four_axes
from tpusim.ops.interfaces import DefaultAlpha, SharedWindows
from tpusim.ops.rescale import TOO_LARGE, lower_same_scale, requantised

SLOPED = RangeRule(backward_keep_min=True, forward=True)
NO_ZERO_POINTS = "there is no integer form with zero points (numerics.md 9.0)"


# ----------------------------------------------------------------------------------------------------------- LeakyRelu


@irdl_op_definition
class TopLeakyRelu(UnaryTop, DefaultAlpha):
    """`top.LeakyRelu`: x > 0 ? x : alpha*x."""

    name = "top.LeakyRelu"
    SPEC: ClassVar[tuple[str, ...]] = ("9.7", "5.6")
    RANGE: ClassVar[RangeRule] = SLOPED
    UPSTREAM_ALPHA: ClassVar[float] = 0.0

    alpha = attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, alpha: float = 0.01, name: str) -> SSAValue:
        """alpha: the slope for negative values."""
        return builder.build(cls, [x], {"alpha": float_attr(alpha)}, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.leaky_relu_float(operands[0], self.alpha.value.data),)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.LeakyRelu with alpha as 8-bit multiplier and shift; in float if alpha has none, or with zero points."""
        attributes: dict[str, Attribute] = {"alpha": self.alpha}
        why = NO_ZERO_POINTS if ctx.asymmetric else None
        fit = {"multiplier": int_attr(0), "rshift": int_attr(0)}
        try:
            fit = {k: int_attr(v) for k, v in zip(fit, best_fit(self.alpha.value.data, 8), strict=True)}
        except ValueError:
            why = f"the slope {self.alpha.value.data:.6g} has no 8-bit multiplier"
        return lower_same_scale(self, ctx, TpuLeakyRelu, attributes | fit, why, attributes)


@irdl_op_definition
class TpuLeakyRelu(UnaryTpu, SharedWindows):
    """`tpu.LeakyRelu`: bytes q >= 0 ? q : RSR(q*multiplier, rshift, HALF_UP), saturated; f32 x > 0 ? x : alpha*x.

    If multiplier_neg is set, bytes q >= 0 are scaled by multiplier and rshift, others by multiplier_neg and rshift_neg.
    """

    name = "tpu.LeakyRelu"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("multiplier", "rshift"),)

    alpha = attr_def(FloatAttr)
    multiplier = opt_attr_def(IntegerAttr)
    rshift = opt_attr_def(IntegerAttr)
    multiplier_neg = opt_attr_def(IntegerAttr)
    rshift_neg = opt_attr_def(IntegerAttr)

    @override
    def take_form(self) -> str:
        """TPU-MLIR states no slope where a multiplier and a shift do."""
        if "alpha" not in self.attributes and self.multiplier is not None and self.rshift is not None:
            self.alpha = float_attr(self.multiplier.value.data * 2.0**-self.rshift.value.data)
        return super().take_form()

    @property
    def negative(self) -> tuple[int, int] | None:
        """(multiplier, right shift) of negative values, if the others are scaled too; else None."""
        if self.multiplier_neg is None or self.rshift_neg is None:
            return None
        return self.multiplier_neg.value.data, self.rshift_neg.value.data

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Exact integers, or f32 as top.LeakyRelu."""
        (x,) = operands
        if self.multiplier is None or self.rshift is None:
            return (kernels.leaky_relu_float(x, self.alpha.value.data),)
        m, r = self.multiplier.value.data, self.rshift.value.data
        if self.negative is not None:
            return (sloped_int(x, m, r, *self.negative, out_dtype=value_dtype(self.output)),)
        return (kernels.leaky_relu_int(x, m, r, out_dtype=value_dtype(self.output)),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One AR select: x (or x scaled) if it is not negative, else x times the slope."""
        slope, shift, positive = self.alpha.value.data, 0, None
        if self.multiplier is not None and self.rshift is not None:
            slope, shift = float(self.multiplier.value.data), self.rshift.value.data
            if self.negative is not None:
                positive = isa.Requant(int(slope), shift)
                slope, shift = float(self.negative[0]), self.negative[1]
        ctx.emit(isa.Select, input=ctx.input(0), output=ctx.output(), slope=slope, rshift=shift, positive=positive)


# --------------------------------------------------------------------------------------------------------------- PRelu


def _channels(shape: Shape) -> int:
    """The length of axis 1. Raises ValueError without such an axis."""
    if len(shape) < 2:
        raise ValueError(f"an input of two axes or more is required, got {shape}")
    return shape[1]


def channel_slopes(slope: np.ndarray, x: Shape, *, broadcasts: bool) -> np.ndarray | None:
    """The slope as (C,), a single number repeated; None if it differs along another axis than the channels.

    broadcasts: the slope broadcasts to x as in NumPy (opset 7), else it is (1,) or (C,).
    """
    channels = _channels(x)
    if slope.size == 1:
        return np.full(channels, slope.reshape(-1)[0], np.float32)
    aligned = (1,) * (len(x) - slope.ndim) + slope.shape if broadcasts else (1, *slope.shape, *(1,) * (len(x) - 2))
    return slope.reshape(-1).astype(np.float32) if aligned == (1, channels, *(1,) * (len(x) - 2)) else None


@irdl_op_definition
class TopPRelu(TopOp):
    """`top.PRelu`: x > 0 ? x : slope[c]*x, slope a constant (C,), channels on axis 1."""

    name = "top.PRelu"
    SPEC: ClassVar[tuple[str, ...]] = ("9.7", "5.3")
    RANGE: ClassVar[RangeRule] = SLOPED

    input = operand_def(TensorType)
    slope = operand_def(TensorType)
    output = result_def(TensorType)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, slope: np.ndarray, *, trailing: bool = True, name: str) -> SSAValue:
        """slope: one number, (C,), or a shape that broadcasts to the input and differs along the channels only.

        trailing: the slope broadcasts as in NumPy, by its last axes; else its axis (C,) is that of the channels.
        """
        found = channel_slopes(slope, shape_of(x), broadcasts=trailing)
        if found is None:
            raise ValueError(f"one slope per channel of {shape_of(x)} or for all is required, got {slope.shape}")
        return builder.build(cls, [x, builder.weight(name + "_slope", found)], {}, name)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A PRelu of equal slopes is a LeakyRelu."""
        return (PReluToLeakRelu(weights),)

    @override
    def take_form(self) -> str:
        """TPU-MLIR states the other axes of the slopes too."""
        channels = _channels(shape_of(self.input))
        reshape_channels(self.slope, channels, (channels,))
        return super().take_form()

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The input's shape. Raises ValueError for another slope than (C,)."""
        x = shape_of(self.input)
        if shape_of(self.slope) != (_channels(x),):
            raise ValueError(f"a slope of shape {(_channels(x),)} is required, got {shape_of(self.slope)}")
        return (x,)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.prelu_float(*operands),)

    @override
    def flops(self) -> int:
        """One per element (DN-27)."""
        return prod(shape_of(self.output))

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        name, slope = op_name(self), self.slopes(ctx)
        operands = [ctx.operand(self.input, ctx.float_mode(self), self), ctx.float_weight(self, name + "_slope", slope)]
        return ctx.build(TpuPRelu, operands, {}, ctx.float_type(self), shape_of(self.output), name)

    def slopes(self, ctx: LoweringContext) -> np.ndarray:
        """The slopes in the shape (1, C, 1, 1)."""
        slope = ctx.array(self.slope)
        assert slope is not None  # `make` takes constants only
        return slope.reshape(1, -1, 1, 1)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.PReluOp with one shift for all slopes (numerics.md 5.3)."""
        source, name = ctx.quant(self.input), op_name(self)
        if source is None or ctx.quant(self.output) is None:
            return "input or output is not calibrated"
        if ctx.asymmetric:
            return NO_ZERO_POINTS
        operand = requantised(ctx, self, ctx.operand(self.input, "int8", self), source, self.output)
        if operand is None:
            return TOO_LARGE
        slopes, shift = shared_small_multiplier(self.slopes(ctx))
        operands = [operand, ctx.weight(name + "_slope", slopes)]
        attributes = {"rshift": int_attr(shift)}
        return built_in_integers(self, ctx, TpuPRelu, operands, attributes)


@irdl_op_definition
class TpuPRelu(ElementwiseTpu, SharedWindows):
    """`tpu.PReluOp`: bytes q >= 0 ? q : RSR(q*slope[c], rshift, HALF_UP), saturated; f32 x > 0 ? x : slope[c]*x.

    slope is (1, C, 1, 1), int8 or float. If multiplier_pos is set, bytes q >= 0 are scaled by it and rshift_pos.
    """

    name = "tpu.PReluOp"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("rshift",),)
    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = (1,)

    input = operand_def(TensorType)
    slope = operand_def(TensorType)
    output = result_def(TensorType)
    rshift = opt_attr_def(IntegerAttr)
    multiplier_pos = opt_attr_def(IntegerAttr)
    rshift_pos = opt_attr_def(IntegerAttr)

    @property
    def positive(self) -> tuple[int, int] | None:
        """(multiplier, right shift) of values that are not negative; None if they stay unchanged."""
        if self.multiplier_pos is None or self.rshift_pos is None:
            return None
        return self.multiplier_pos.value.data, self.rshift_pos.value.data

    @override
    def take_form(self) -> str:
        """TPU-MLIR gives the slopes as many axes as the input has."""
        channels = _channels(shape_of(self.input))
        reshape_channels(self.slope, channels, (1, channels, 1, 1))
        return super().take_form()

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The input's shape. Raises ValueError for another slope than (1, C, 1, 1)."""
        x = shape_of(self.input)
        if shape_of(self.slope) != (1, _channels(x), 1, 1):
            raise ValueError(f"a slope of shape {(1, _channels(x), 1, 1)} is required, got {shape_of(self.slope)}")
        return (x,)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Exact integers, or f32 as top.PRelu."""
        x, slope = operands[0], operands[1].reshape(-1)
        if uniform_of(self.output) is None or self.rshift is None:
            return (kernels.prelu_float(x, slope),)
        shift, dtype = self.rshift.value.data, value_dtype(self.output)
        if self.positive is not None:
            return (sloped_int(x, *self.positive, slope, shift, out_dtype=dtype),)
        return (kernels.prelu_int(x, slope, shift, out_dtype=dtype),)

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The window of the input is that of the output; slopes have channels only."""
        return window if operand == 0 or axis == "c" else (0, 1)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One AR select with a slope per channel."""
        shift = 0 if self.rshift is None else self.rshift.value.data
        x, out = on_four_axes(ctx.input(0)), on_four_axes(ctx.output())
        positive = None if self.positive is None else isa.Requant(*self.positive)
        ctx.emit(isa.Select, input=x, output=out, slope=ctx.input(1), rshift=shift, positive=positive)


class PReluToLeakRelu(DataPattern):
    """PRelu of equal slopes -> LeakyRelu."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """The LeakyRelu takes the name."""
        x, slope = p.operand(), p.operand()
        op = p.op("top.PRelu", x, slope)
        p.require(cls.is_one_number, slope)
        becomes = p.rewrite(op)
        becomes.replace_with("top.LeakyRelu", x, alpha=becomes.attribute(first_number, slope))

    @classmethod
    @reads_weights
    def is_one_number(cls, weights: WeightStore, slope: SSAValue) -> bool:
        """Whether all slopes are equal; of no channel there are none."""
        found = constant_of(slope, weights)
        return found is not None and found.size > 0 and bool((found == found.flat[0]).all())
