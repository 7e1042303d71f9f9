"""Differences as weighted sums, and quotients as products with a reciprocal."""

from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import floats_attr, ints_attr
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.add import DIFFERENCE, TpuAdd
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import built_in_integers, relu_attributes, relu_of
from tpusim.ops.interfaces import ChipRewrites, FloatLowering, IntegerLowering
from tpusim.ops.sub import DivToProduct, TopDiv, TopSub, TpuSub
from tpusim.targets.cv18xx.multipliers import common_shift, ratio, why_no_small_multipliers
from tpusim.targets.cv18xx.target import TARGET


def _of_one_shape(op: TopSub) -> bool:
    return shape_of(op.inputs[0]) == shape_of(op.inputs[1])


@TARGET.attach(TopSub, IntegerLowering)
class SubByCommonShift(Model[TopSub], IntegerLowering):
    """One shift for both operands, an 8-bit multiplier for each (numerics.md 5.3, 9.7)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Add with a negative multiplier for tensors of one shape, else tpu.Sub; no operand may be constant."""
        op = self.op
        if ctx.quant(op.output) is None:
            return "the output is not calibrated"
        why = why_no_small_multipliers(ctx, op.inputs)
        if why is not None:
            return why
        multipliers, shift = common_shift([ratio(v, op.output) for v in op.inputs])
        cls, signs = (TpuAdd, (1, -1)) if _of_one_shape(op) else (TpuSub, (1, 1))
        attributes = relu_attributes(relu_of(op)) | {"rshifts": ints_attr([shift])}
        attributes["multipliers"] = ints_attr(m * sign for m, sign in zip(multipliers, signs, strict=True))
        operands = [ctx.operand(v, "int8", op) for v in op.inputs]
        return built_in_integers(op, ctx, cls, operands, attributes)


@TARGET.attach(TopSub, FloatLowering)
class SubAsSum(Model[TopSub], FloatLowering):
    """As in integers, a difference of tensors of one shape is a weighted sum."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Add with coefficients 1 and -1, or tpu.Sub."""
        if not _of_one_shape(self.op):
            return self.op.in_float(ctx, TpuSub, {})
        return self.op.in_float(ctx, TpuAdd, {"coeff": floats_attr(DIFFERENCE)})


@TARGET.attach(TopDiv, ChipRewrites)
class NoQuotients(Model[TopDiv], ChipRewrites):
    """CV18xx has no quotient of tensors."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A quotient becomes the first operand times the reciprocal of the second."""
        del weights, chip
        return (DivToProduct(),)
