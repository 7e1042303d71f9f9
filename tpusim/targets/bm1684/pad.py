"""Pads that the compiler puts before convolutions."""

from typing_extensions import override
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.interfaces import LoweredRewrites
from tpusim.ops.pad import TpuPad
from tpusim.ops.patterns.wide_pads import PadsInSteps
from tpusim.targets.bm1684.padded_image import PaddedImageConv
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TpuPad, LoweredRewrites)
class PadsOfConvs(Model[TpuPad], LoweredRewrites):
    """A Pad of the network's image goes into its convolution; a Pad larger than a command allows is cut in steps."""

    @classmethod
    @override
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """First the Pad of the network's image, then Pads too large for one command."""
        del weights
        return PaddedImageConv(TpuPad), PadsInSteps(TpuPad, chip)
