"""Pads that the compiler inserts before convolutions."""

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
    """Padding of the network's image becomes a Pad; a Pad larger than a command allows is divided into several."""

    @classmethod
    @override
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """First the padding of the network's image, then Pads that are too large for one command."""
        del weights
        return PaddedImageConv(TpuPad), PadsInSteps(TpuPad, chip)
