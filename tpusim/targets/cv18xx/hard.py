"""HardSigmoid and HardSwish in float, as a depthwise convolution and a Clip with the names of U-45."""

import numpy as np
from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import float_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.ops.activation.top import Activation
from tpusim.ops.conv.channelwise import build_channelwise
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import relu_attributes
from tpusim.ops.hard import TopHardSigmoid, TopHardSwish
from tpusim.ops.interfaces import FloatLowering
from tpusim.ops.mul import TpuMul
from tpusim.ops.relu import TpuClip
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopHardSigmoid, FloatLowering)
class HardSigmoidByConv(Model[TopHardSigmoid], FloatLowering):
    """A convolution and a Clip."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """min(max(alpha*x + beta, 0), 1)."""
        op = self.op
        x = ctx.operand(op.input, ctx.float_mode(op), op)
        return _bounded_line(ctx, op, x, op.alpha.value.data, op.beta.value.data, "")


@TARGET.attach(TopHardSwish, FloatLowering)
class HardSwishByConv(Model[TopHardSwish], FloatLowering):
    """A convolution, a Clip and a product."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """x*min(max(x/6 + 1/2, 0), 1)."""
        op = self.op
        x = ctx.operand(op.input, ctx.float_mode(op), op)
        line, shape = _bounded_line(ctx, op, x, 1.0 / 6.0, 0.5, "_clip"), shape_of(op.output)
        return ctx.build(TpuMul, [x, line], relu_attributes(), ctx.float_type(op), shape, op_name(op))


def _bounded_line(
    ctx: LoweringContext, op: Activation, x: SSAValue, slope: float, offset: float, suffix: str
) -> SSAValue:
    """min(max(slope*x + offset, 0), 1), the line by a convolution. suffix: the end of the name."""
    shape, name = shape_of(op.output), op_name(op) + "_scale"
    channels = shape[0] if len(shape) == 1 else shape[1]
    coefficients = [
        ctx.float_weight(op, name + "_filter", np.full((channels, 1, 1, 1), slope, np.float32)),
        ctx.weight(name + "_bias", np.full(channels, offset, np.float32)),
    ]
    element = ctx.float_type(op)
    line = build_channelwise(ctx, x, coefficients, relu_attributes(), element, shape, name)
    bounds = {"min": float_attr(0.0), "max": float_attr(1.0)}
    return ctx.build(TpuClip, [line], bounds, element, shape, op_name(op) + suffix)
