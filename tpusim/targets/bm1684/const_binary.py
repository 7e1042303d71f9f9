"""Ops of a tensor and a number: the shift is chosen first, the number has 16 bits (numerics.md 5.4, 9.3)."""

from tpusim_kernels.prim.scale import narrow_product, round_half_away, saturate_np
from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.const_binary.base import Constants, ConstTop, IntegerConstants
from tpusim.ops.const_binary.top import (
    ClipToExtremes,
    ExtremeConstTop,
    TopAddConst,
    TopMaxConst,
    TopMulConst,
    TopSubConst,
)
from tpusim.ops.framework.base import LoweringContext, QuantParams
from tpusim.ops.interfaces import ChipRewrites
from tpusim.targets.bm1684.shifts import multiplier, shift_first
from tpusim.targets.bm1684.target import TARGET

EXTRA_DECREMENTS = 5
"""How many times r is lowered, at most, while the number of a MaxConst or MinConst saturates (numerics.md 9.3)."""


@TARGET.attach(TopMulConst, IntegerConstants)
class FactorInShift(Model[TopMulConst], IntegerConstants):
    """A product is a tpu.MulConst, which has a relu."""

    @override
    def integer_form(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> Constants | str:
        """M and r of s_in/s_out*c."""
        del ctx
        return Constants(*shift_first(x.scale, y.scale, self.op.number))

    @override
    def build_int8(self, ctx: LoweringContext, operand: SSAValue, constants: Constants) -> SSAValue | str:
        return ConstTop.build_int8(self.op, ctx, operand, constants)


@TARGET.attach(TopAddConst, IntegerConstants)
@TARGET.attach(TopSubConst, IntegerConstants)
class TermInShift(Model[ConstTop], IntegerConstants):
    """A term is stored at the scale of the output, shifted left by r."""

    @override
    def integer_form(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> Constants | str:
        """M and r of s_in/s_out, C = sat16(c*2^r/s_out)."""
        del ctx
        m, r = shift_first(x.scale, y.scale)
        return Constants(m, r, _shifted_int16(self.op.number, r, y.scale))


@TARGET.attach(ExtremeConstTop, IntegerConstants)
class ExtremeInShift(Model[ExtremeConstTop], IntegerConstants):
    """The number is stored at the scale of the output; an operand with another scale is requantised."""

    @override
    def integer_form(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> Constants | str:
        """M and r of the factor 1; r is lowered while C saturates."""
        del ctx, x
        number, (_, r) = self.op.number, shift_first(y.scale, y.scale)
        for _ in range(EXTRA_DECREMENTS):
            wide = round_half_away(narrow_product(number, 2.0**r / y.scale))
            if wide == saturate_np(wide, "int16"):
                break
            r -= 1
        if r <= 0:
            return f"the constant {number:.6g} leaves 16 bits"
        return Constants(multiplier(r, y.scale, y.scale), r, _shifted_int16(number, r, y.scale))


def _shifted_int16(number: float, r: int, scale: float) -> float:
    """sat16(round-half-away(number * f32(2^r/s))), the product in f32."""
    return float(saturate_np(round_half_away(narrow_product(number, 2.0**r / scale)), "int16"))


@TARGET.attach(TopMaxConst, ChipRewrites)
class NoClip(Model[TopMaxConst], ChipRewrites):
    """BM1684 has no tpu.Clip."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A Clip becomes a MaxConst and a MinConst."""
        del weights, chip
        return (ClipToExtremes(),)
