"""Scales: factors and terms per channel."""

from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import ChipRewrites, IntegerLowering
from tpusim.ops.norm.top import TopScale
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopScale, ChipRewrites)
class ScaleStays(Model[TopScale], ChipRewrites):
    """A Scale stays a Scale (U-32)."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        del weights, chip
        return ()


@TARGET.attach(TopScale, IntegerLowering)
class ScaleIn16Bits(Model[TopScale], IntegerLowering):
    """The accumulators saturate at 16 bits (numerics.md 9.4)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        return self.op.in_integers(ctx, narrow=True)
