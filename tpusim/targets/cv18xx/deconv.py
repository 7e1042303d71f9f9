"""Transposed convolutions with a QDM multiplier and shift per output channel (numerics.md 5.5)."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import op_name, value_name
from tpusim.ops.deconv.top import TopDeconv
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.targets.cv18xx.qdm import qdm_operands
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopDeconv, IntegerLowering)
class DeconvByQdm(Model[TopDeconv], IntegerLowering):
    """Filter and bias are quantised for the multiplier. No volumes."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Deconv with the requant of each channel, or why not."""
        op, constants = self.op, self.op.constants(ctx)
        why = op.why_not_integer(ctx) or op.why_no_volume(ctx)
        if why is not None:
            return why
        assert constants is not None  # required by why_not_integer
        coefficients, requant = qdm_operands(ctx, value_name(op.filter), *constants, op.input, op.output)
        operands = [ctx.operand(op.input, "int8", op), *coefficients]
        return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), op_name(op), requant)
