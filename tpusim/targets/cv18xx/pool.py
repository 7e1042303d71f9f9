"""Pools: a relu is a separate op, and an average has a small multiplier."""

from tpusim_kernels.prim.multiplier import small_multiplier
from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import op_name
from tpusim.ir.modes import round_mode
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import ChipRewrites, IntegerLowering
from tpusim.ops.pool.top import TopAvgPool, TopMaxPool, TpuPool3D
from tpusim.ops.relu import ReluApart
from tpusim.targets.cv18xx.multipliers import ratio
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopMaxPool, ChipRewrites)
class PoolsWithoutRelu(Model[TopMaxPool], ChipRewrites):
    """The relu of a pool, largest or average, is a separate op."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The patterns that move the relu after the pool."""
        del weights, chip
        return ReluApart(TopMaxPool.name), ReluApart(TopAvgPool.name)


@TARGET.attach(TopAvgPool, IntegerLowering)
class AveragesOfThresholds(Model[TopAvgPool], IntegerLowering):
    """The multiplier follows from thresholds, and the average is rounded half up (numerics.md 5.3)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Pool2D; a volume has no integer form (numerics.md 12.1; DN-12)."""
        op, why = self.op, self.op.why_not_integer(ctx)
        if why is None and op.tpu is TpuPool3D:
            return "a 3-D average has no integer form (numerics.md 12.1)"
        if why is not None:
            return why
        m, r = small_multiplier(ratio(op.input, op.output) / op.elements)
        return op.build_average(ctx, m, r, op.output, op_name(op), {"first_round_mode": round_mode("HalfUp")})
