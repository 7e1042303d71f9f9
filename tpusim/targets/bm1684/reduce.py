"""Reductions in float; ReduceL2 becomes three ops."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import op_name, text
from tpusim.ir.types import shape_of
from tpusim.ops.activation.tpu import TpuActive
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import FloatLowering
from tpusim.ops.reduce import ATTRIBUTES, TopReduce, TpuReduce
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopReduce, FloatLowering)
class NormOfSquares(Model[TopReduce], FloatLowering):
    """BM1684 has no ReduceL2: squares, sum and root are three ops (U-45)."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Reduce; ReduceL2 is a sum between two tpu.Active, the square and the root."""
        op = self.op
        if op.mode.data != "ReduceL2":
            return op.lower_float(ctx)
        x = ctx.operand(op.input, ctx.float_mode(op), op)
        element, shape, name = ctx.float_type(op), shape_of(op.output), op_name(op)
        attributes = {key: op.attributes[key] for key in ATTRIBUTES} | {"mode": text("ReduceSum")}
        squares = ctx.build(TpuActive, [x], {"mode": text("SQUARE")}, element, shape_of(op.input), f"{name}_Square")
        total = ctx.build(TpuReduce, [squares], attributes, element, shape, f"{name}_ReduceSum")
        return ctx.build(TpuActive, [total], {"mode": text("SQRT")}, element, shape, name)
