"""HardSigmoid and HardSwish in float, as ops of a tensor and a number with the names of U-45."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import float_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.ops.activation.top import Activation
from tpusim.ops.const_binary import TpuAddConst, TpuMaxConst, TpuMinConst, TpuMulConst
from tpusim.ops.framework.base import LoweringContext, OpT
from tpusim.ops.framework.families import relu_attributes
from tpusim.ops.hard import TopHardSigmoid, TopHardSwish
from tpusim.ops.interfaces import FloatLowering
from tpusim.ops.mul import TpuMul
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopHardSigmoid, FloatLowering)
class HardSigmoidByConstants(Model[TopHardSigmoid], FloatLowering):
    """min(max(alpha*x + beta, 0), 1), one op for each step."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """MulConst, AddConst, MaxConst and MinConst."""
        op = self.op
        x = _part(ctx, op, TpuMulConst, ctx.operand(op.input, ctx.float_mode(op), op), op.alpha.value.data, "_mul")
        x = _part(ctx, op, TpuAddConst, x, op.beta.value.data, "_add")
        return _part(ctx, op, TpuMinConst, _part(ctx, op, TpuMaxConst, x, 0.0, "_max"), 1.0, "")


@TARGET.attach(TopHardSwish, FloatLowering)
class HardSwishByConstants(Model[TopHardSwish], FloatLowering):
    """x*(min(max(x + 3, 0), 6)/6), one op for each step."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """AddConst, MaxConst, MinConst, MulConst and Mul."""
        op = self.op
        x = ctx.operand(op.input, ctx.float_mode(op), op)
        line = _part(ctx, op, TpuAddConst, x, 3.0, "_add")
        line = _part(ctx, op, TpuMinConst, _part(ctx, op, TpuMaxConst, line, 0.0, "_max"), 6.0, "_min")
        factor, shape = _part(ctx, op, TpuMulConst, line, 1.0 / 6.0, "_mul"), shape_of(op.output)
        return ctx.build(TpuMul, [x, factor], relu_attributes(), ctx.float_type(op), shape, op_name(op))


def _part(ctx: LoweringContext, op: Activation, cls: OpT, x: SSAValue, number: float, suffix: str) -> SSAValue:
    """One op of a tensor and a number. suffix: the end of its name."""
    attributes = {"const_val": float_attr(number), **relu_attributes()}
    return ctx.build(cls, [x], attributes, ctx.float_type(op), shape_of(op.output), op_name(op) + suffix)
