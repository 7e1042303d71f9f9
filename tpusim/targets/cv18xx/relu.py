"""Relu; CV18xx has none with an upper limit."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import float_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import relu_limit_of
from tpusim.ops.interfaces import FloatLowering, IntegerLowering
from tpusim.ops.relu import TopRelu, TpuClip
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopRelu, IntegerLowering)
class ReluWithoutLimit(Model[TopRelu], IntegerLowering):
    """In integers a relu has no upper limit (numerics.md 12.1)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        why = self.op.why_not_integer(ctx)
        if why is None and relu_limit_of(self.op) >= 0:
            return "a relu with a limit runs in float (numerics.md 12.1)"
        return why or self.op.lower_integer(ctx)


@TARGET.attach(TopRelu, FloatLowering)
class LimitedReluAsClip(Model[TopRelu], FloatLowering):
    """A relu with an upper limit becomes a Clip."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Clip from 0 to the limit, or tpu.Relu."""
        op = self.op
        if relu_limit_of(op) < 0:
            return op.lower_float(ctx)
        attributes = {"min": float_attr(0.0), "max": float_attr(relu_limit_of(op))}
        operand = ctx.operand(op.input, ctx.float_mode(op), op)
        return ctx.build(TpuClip, [operand], attributes, ctx.float_type(op), shape_of(op.output), op_name(op))
