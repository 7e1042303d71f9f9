"""Convolutions with one right shift per tensor and a bias of 16 bits (numerics.md 5.4)."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import ints
from tpusim.ops.conv.top import TopConv
from tpusim.ops.framework.base import LoweringContext, is_none
from tpusim.ops.framework.own_scales import note_own_scales
from tpusim.ops.interfaces import IntegerLowering
from tpusim.targets.bm1684.coefficients import shift_attributes, shift_coefficients
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopConv, IntegerLowering)
class ConvByShift(Model[TopConv], IntegerLowering):
    """No volumes, and no strides above those of a command (numerics.md 12.1)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Conv2D with an int8 filter, an int16 bias and the shift; declined if that would be negative."""
        op = self.op
        why = op.why_not_integer(ctx) or op.why_no_volume(ctx)
        if why is not None:
            return why
        if max(ints(op.strides)) > ctx.chip.max_stride:
            return f"stride above {ctx.chip.max_stride}"
        x, y, w = ctx.quant(op.input), ctx.quant(op.output), ctx.array(op.filter)
        assert x is not None and y is not None and w is not None  # required by why_not_integer
        stored = shift_coefficients(w, None if is_none(op.bias) else ctx.array(op.bias), x.scale, y.scale)
        if stored is None:
            return "the right shift of the requant would be negative"
        filter, bias, r = stored
        note_own_scales(op, ctx, op.filter)
        operands = op.integer_operands(ctx, filter, bias, "int16")
        return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), shift_attributes(r))
