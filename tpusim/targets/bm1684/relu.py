"""Relu of quantised integers."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import int_attr
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.ops.relu import TopRelu
from tpusim.targets.bm1684.shifts import shift_first
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopRelu, IntegerLowering)
class ReluByShift(Model[TopRelu], IntegerLowering):
    """Relu scales its input to the scale of the output."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Relu with a multiplier and shift."""
        why, x, y = self.op.why_not_integer(ctx), ctx.quant(self.op.input), ctx.quant(self.op.output)
        if why is not None:
            return why
        assert x is not None and y is not None  # required by why_not_integer
        m, r = shift_first(x.scale, y.scale)
        return self.op.on_bytes(ctx, {"multiplier": int_attr(m), "rshift": int_attr(r)})
