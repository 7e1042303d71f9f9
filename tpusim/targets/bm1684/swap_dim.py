"""Cyclic shifts: up to four axes, in global memory, without the batch, whose items share words."""

from typing_extensions import override
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.interfaces import ChipRewrites, LocalGen
from tpusim.ops.swap_dim import RANK, ConcatToSwapDimInner, TopSwapDimInner, TpuSwapDimInner
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopSwapDimInner, ChipRewrites)
class Shifts(Model[TopSwapDimInner], ChipRewrites):
    """Shifts of the batch and of more than four axes stay Slices and a Concat."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A roll along an axis after the batch."""
        del weights, chip
        return (ConcatToSwapDimInner(first_axis=1, rank=RANK),)


@TARGET.attach(TpuSwapDimInner, LocalGen)
class Swaps(Model[TpuSwapDimInner], LocalGen):
    """The chip has no local form."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local (layer_group.md 2)."""
        return f"{chip.name} has no local form of this op"
