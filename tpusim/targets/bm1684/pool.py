"""Pools: an average is multiplied by an entry of a table of 1/kernel, then shifted (numerics.md 5.4)."""

from tpusim_kernels.prim.multiplier import avgpool_table
from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import op_name
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering, Lowering, RangeRule, Ranges
from tpusim.ops.pool.top import PoolTop, TopAvgPool, TopMaxPool
from tpusim.ops.rescale import requantised
from tpusim.targets.bm1684.target import TARGET

MOST_POOLED = 225
"""Most elements of a kernel that pools integers (numerics.md 12.1)."""


def _too_large(op: PoolTop, chip: ChipSpec) -> str | None:
    if op.elements <= MOST_POOLED:
        return None
    return f"a kernel of {op.elements} elements, {chip.name} pools at most {MOST_POOLED} in integers"


@TARGET.attach(TopMaxPool, Lowering)
class SmallMaxPools(Model[TopMaxPool], Lowering):
    """Large kernels are pooled in float."""

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """As the op, but in float if the kernel is too large for integers."""
        return self.op.lower_unless(ctx, _too_large(self.op, ctx.chip))


@TARGET.attach(TopAvgPool, Ranges)
class AveragesKeepRanges(Model[TopAvgPool], Ranges):
    """The result of the table has the scale of the input."""

    @override
    def range_rule(self) -> RangeRule:
        """The output takes the input's range (step 9)."""
        return RangeRule(sign=True, forward=True)


@TARGET.attach(TopAvgPool, IntegerLowering)
class AveragesByTable(Model[TopAvgPool], IntegerLowering):
    """An average, also over a volume, is multiplied by an entry of the table of 1/kernel."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """The average at the scale of the input; if the output has another scale, a requant follows."""
        op, x, y = self.op, ctx.quant(self.op.input), ctx.quant(self.op.output)
        why, name = op.why_not_integer(ctx) or _too_large(op, ctx.chip), op_name(op)
        if why is not None or x is None:
            return why or "the input is not calibrated"
        m, r = avgpool_table(op.elements)
        if x == y:
            return op.build_average(ctx, m, r, op.output, name)
        pooled = op.build_average(ctx, m, r, op.input, name + "_pooled")
        return requantised(ctx, op, pooled, x, op.output, name) or "the input's scale is far above the output's"
