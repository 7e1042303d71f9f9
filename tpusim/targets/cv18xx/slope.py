"""LeakyRelu and PRelu: a multiplier and a right shift for each sign (numerics.md 5.3, 9.7)."""

import numpy as np
from tpusim_kernels.prim.multiplier import small_multiplier
from tpusim_kernels.prim.scale import saturate_np
from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import int_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.ops.activation.slope import TopLeakyRelu, TopPRelu, TpuLeakyRelu, TpuPRelu
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import built_in_integers
from tpusim.ops.interfaces import IntegerLowering, Lowering, RangeRule, Ranges
from tpusim.targets.cv18xx.multipliers import positive_side, ratio
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopLeakyRelu, Ranges)
class LeakyReluRanges(Model[TopLeakyRelu], Ranges):
    """Ranges are symmetric, so the input takes both ends of the result's range."""

    @override
    def range_rule(self) -> RangeRule:
        """Steps 5 and 9."""
        return RangeRule(backward=True, forward=True)


@TARGET.attach(TopPRelu, Ranges)
class PReluRanges(Model[TopPRelu], Ranges):
    """Input and output keep their measured ranges."""

    @override
    def range_rule(self) -> RangeRule:
        """The op takes part in no step."""
        return RangeRule()


@TARGET.attach(TopLeakyRelu, Lowering)
class LeakyReluByFamily(Model[TopLeakyRelu], Lowering):
    """Input and output have different scales, so the op is not lowered at one scale."""

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """In integers or in float."""
        return ctx.by_family(self.op, {"integer": self._in_integers, "float": self._in_float})

    def _in_integers(self, ctx: LoweringContext) -> SSAValue | str:
        """An 8-bit multiplier and shift for each sign; a negative slope negates the second multiplier."""
        op = self.op
        if ctx.quant(op.input) is None or ctx.quant(op.output) is None:
            return "input or output is not calibrated"
        slope = op.alpha.value.data
        m, r = positive_side(op.input, op.output)
        m_neg, r_neg = small_multiplier(float(np.float32(abs(ratio(op.input, op.output) * slope))))
        m_neg = -m_neg if slope < 0 else m_neg
        attributes = {"alpha": op.alpha, "multiplier": int_attr(m), "rshift": int_attr(r)}
        attributes |= {"multiplier_neg": int_attr(m_neg), "rshift_neg": int_attr(r_neg)}
        operands = [ctx.operand(op.input, "int8", op)]
        return built_in_integers(op, ctx, TpuLeakyRelu, operands, attributes)

    def _in_float(self, ctx: LoweringContext) -> SSAValue:
        op = self.op
        operands, attributes = [ctx.operand(op.input, ctx.float_mode(op), op)], {"alpha": op.alpha}
        return ctx.build(TpuLeakyRelu, operands, attributes, ctx.float_type(op), shape_of(op.output), op_name(op))


@TARGET.attach(TopPRelu, IntegerLowering)
class PReluOfBothSides(Model[TopPRelu], IntegerLowering):
    """Positive values are scaled by th_x/th_y; slopes are to_int8(slope*th_x/th_y*2^r, half up)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        op = self.op
        if ctx.quant(op.input) is None or ctx.quant(op.output) is None:
            return "input or output is not calibrated"
        scaled = op.slopes(ctx).astype(np.float64) * ratio(op.input, op.output)
        _, shift = small_multiplier(float(np.abs(scaled).max()))
        slopes = saturate_np(np.floor(np.ldexp(scaled, shift) + 0.5), "int8")
        m, r = positive_side(op.input, op.output)
        attributes = {"rshift": int_attr(shift), "multiplier_pos": int_attr(m), "rshift_pos": int_attr(r)}
        operands = [ctx.operand(op.input, "int8", op), ctx.weight(op_name(op) + "_slope", slopes)]
        return built_in_integers(op, ctx, TpuPRelu, operands, attributes)
