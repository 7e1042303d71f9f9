"""The piecewise linear activations HardSigmoid and HardSwish, and the forms they have where no op computes them."""

from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition

from tpusim.ir.attrs import float_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.ops.activation.top import Activation
from tpusim.ops.base import Builder, FloatRule, LoweringContext, OpT
from tpusim.ops.building import names_op
from tpusim.ops.const_binary import TpuAddConst, TpuMaxConst, TpuMinConst, TpuMulConst
from tpusim.ops.conv.channelwise import build_channelwise
from tpusim.ops.families import relu_attributes
from tpusim.ops.mul import TpuMul
from tpusim.ops.relu import TpuClip


class HardActivation(Activation):
    """A function of a line between two bounds.

    In float it is tpu.Active, or what `chip.forms.hard_activations` says: forms and names are those of U-45.
    """

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """The op, or the chip's other form of it."""
        form = ctx.chip.forms.hard_activations
        # BM1684 has `constants`, CV18xx `depthwise`, the others `op`.
        if form == "op":
            return super().lower_float(ctx)
        x = ctx.operand(self.input, ctx.float_mode(self), self)
        return self.by_constants(ctx, x) if form == "constants" else self.by_convolution(ctx, x)

    def by_constants(self, ctx: LoweringContext, x: SSAValue) -> SSAValue:
        """Ops of a tensor and a number."""
        raise NotImplementedError

    def by_convolution(self, ctx: LoweringContext, x: SSAValue) -> SSAValue:
        """The op as a depthwise convolution followed by tpu.Clip."""
        raise NotImplementedError

    def part(self, ctx: LoweringContext, cls: OpT, x: SSAValue, number: float, suffix: str) -> SSAValue:
        """One op of a tensor and a number; `suffix` behind the name."""
        attributes = {"const_val": float_attr(number), **relu_attributes()}
        return ctx.build(cls, [x], attributes, ctx.float_type(self), shape_of(self.output), op_name(self) + suffix)

    def bounded_line(self, ctx: LoweringContext, x: SSAValue, slope: float, offset: float, suffix: str) -> SSAValue:
        """min(max(slope*x + offset, 0), 1), the line by a convolution; `suffix` behind the name."""
        shape, name = shape_of(self.output), op_name(self) + "_scale"
        channels = shape[0] if len(shape) == 1 else shape[1]
        coefficients = [
            ctx.float_weight(self, name + "_filter", np.full((channels, 1, 1, 1), slope, np.float32)),
            ctx.weight(name + "_bias", np.full(channels, offset, np.float32)),
        ]
        element = ctx.float_type(self)
        line = build_channelwise(ctx, x, coefficients, relu_attributes(), element, shape, name)
        bounds = {"min": float_attr(0.0), "max": float_attr(1.0)}
        return ctx.build(TpuClip, [line], bounds, element, shape, op_name(self) + suffix)

    def product(self, ctx: LoweringContext, x: SSAValue, y: SSAValue) -> SSAValue:
        """X * y with the name of the op."""
        return ctx.build(TpuMul, [x, y], relu_attributes(), ctx.float_type(self), shape_of(self.output), op_name(self))


@irdl_op_definition
class TopHardSigmoid(HardActivation):
    """`top.HardSigmoid`: max(0, min(1, alpha*x + beta))."""

    name = "top.HardSigmoid"
    MODE: ClassVar[str] = "HSIGMOID"
    FLOAT: ClassVar[FloatRule] = FloatRule(f16="f32")

    alpha = attr_def(FloatAttr)
    beta = attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, alpha: float = 0.2, beta: float = 0.5, name: str) -> SSAValue:
        """alpha, beta: slope and offset, 1/6 and 0.5 in PyTorch."""
        return builder.build(cls, [x], {"alpha": float_attr(alpha), "beta": float_attr(beta)}, name)

    @property
    def coeffs(self) -> tuple[float, ...]:
        """(beta, alpha), in the order of U-96."""
        return self.beta.value.data, self.alpha.value.data

    def by_constants(self, ctx: LoweringContext, x: SSAValue) -> SSAValue:
        """Times alpha, plus beta, at least 0, at most 1."""
        x = self.part(ctx, TpuMulConst, x, self.alpha.value.data, "_mul")
        x = self.part(ctx, TpuAddConst, x, self.beta.value.data, "_add")
        return self.part(ctx, TpuMinConst, self.part(ctx, TpuMaxConst, x, 0.0, "_max"), 1.0, "")

    def by_convolution(self, ctx: LoweringContext, x: SSAValue) -> SSAValue:
        """The bounded line as a convolution and a clip."""
        return self.bounded_line(ctx, x, self.alpha.value.data, self.beta.value.data, "")


@irdl_op_definition
class TopHardSwish(HardActivation):
    """`top.HardSwish`: x*max(0, min(1, (x + 3)/6))."""

    name = "top.HardSwish"
    MODE: ClassVar[str] = "HSWISH"

    def by_constants(self, ctx: LoweringContext, x: SSAValue) -> SSAValue:
        """Plus 3, at least 0, at most 6, over 6, times x."""
        line = self.part(ctx, TpuAddConst, x, 3.0, "_add")
        line = self.part(ctx, TpuMinConst, self.part(ctx, TpuMaxConst, line, 0.0, "_max"), 6.0, "_min")
        return self.product(ctx, x, self.part(ctx, TpuMulConst, line, 1.0 / 6.0, "_mul"))

    def by_convolution(self, ctx: LoweringContext, x: SSAValue) -> SSAValue:
        """X times the bounded line x/6 + 1/2."""
        return self.product(ctx, x, self.bounded_line(ctx, x, 1.0 / 6.0, 0.5, "_clip"))
