"""Transposed convolutions by the rules of convolutions (DN-12)."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import ints, op_name
from tpusim.ops.deconv.top import TopDeconv
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.targets.bm1684.coefficients import shift_attributes, shift_coefficients
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopDeconv, IntegerLowering)
class DeconvByShift(Model[TopDeconv], IntegerLowering):
    """One right shift per tensor, a bias of 16 bits (numerics.md 5.4)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Deconv; declined for volumes, large strides and where the shift would be negative."""
        op, constants = self.op, self.op.constants(ctx)
        why = op.why_not_integer(ctx) or op.why_no_volume(ctx)
        if why is not None:
            return why
        if max(ints(op.strides)) > ctx.chip.max_stride:
            return f"stride above {ctx.chip.max_stride}"
        x, y = ctx.quant(op.input), ctx.quant(op.output)
        assert constants is not None and x is not None and y is not None  # required by why_not_integer
        stored = shift_coefficients(*constants, x.scale, y.scale)
        if stored is None:
            return "the right shift of the requant would be negative"
        filter, bias, r = stored
        ctx.decision(op, "DN-12")
        operands = op.integer_operands(ctx, filter, bias, "int16")
        return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), op_name(op), shift_attributes(r))
