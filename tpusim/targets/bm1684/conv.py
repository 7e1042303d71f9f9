"""Convolutions and transposed ones: one right shift per tensor and a bias of 16 bits (numerics.md 5.4)."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import ints
from tpusim.ops.conv.base import ConvTop
from tpusim.ops.deconv.top import TopDeconv
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.imported_scales import note_imported_scales
from tpusim.ops.interfaces import IntegerLowering
from tpusim.targets.bm1684.coefficients import shift_attributes, shift_coefficients
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(ConvTop, IntegerLowering)
class ConvByShift(Model[ConvTop], IntegerLowering):
    """No volumes, and no strides above those of a command (numerics.md 12.1)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """The tpu op with an int8 filter, an int16 bias and the shift; declined if that would be negative."""
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
        note_imported_scales(op, ctx, op.filter)
        operands = op.integer_operands(ctx, filter, bias, "int16")
        return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), shift_attributes(r))


@TARGET.attach(TopDeconv, IntegerLowering)
class DeconvByShift(ConvByShift):
    """Decision DN-12: the rules of convolutions."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        lowered = super().lower_integer(ctx)
        if not isinstance(lowered, str):
            ctx.decision(self.op, "DN-12")
        return lowered
