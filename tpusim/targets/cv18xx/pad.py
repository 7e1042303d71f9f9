"""Pads that the compiler puts before convolutions."""

from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.interfaces import ChipRewrites, LoweredRewrites
from tpusim.ops.pad import TopPad, TpuPad
from tpusim.ops.wide_pads import PadsOfSides
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopPad, ChipRewrites)
class PadsOfWideSides(Model[TopPad], ChipRewrites):
    """More padding than a command has (codegen.md DC-09)."""

    @classmethod
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """One Pad has all padding of such a side."""
        del weights, chip
        return (PadsOfSides(TopPad),)


@TARGET.attach(TpuPad, LoweredRewrites)
class NoPadsInSteps(Model[TpuPad], LoweredRewrites):
    """Wide sides are padded before the lowering."""

    @classmethod
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """No pattern at all."""
        del weights, chip
        return ()
