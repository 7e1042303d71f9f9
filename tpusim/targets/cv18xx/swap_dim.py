"""Cyclic shifts stay Slices and a Concat: the family has no op for them."""

from typing_extensions import override
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.interfaces import ChipRewrites
from tpusim.ops.swap_dim import TopSwapDimInner
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopSwapDimInner, ChipRewrites)
class NoShifts(Model[TopSwapDimInner], ChipRewrites):
    """No Concat becomes a SwapDimInner."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Without a pattern, every Concat stays as it is."""
        del weights, chip
        return ()
