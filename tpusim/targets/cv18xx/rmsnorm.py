"""RMS normalisation, taken apart."""

from typing_extensions import override
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.interfaces import ChipRewrites
from tpusim.ops.rmsnorm import RMSNormApart, TopRMSNorm
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopRMSNorm, ChipRewrites)
class NoRMSNorm(Model[TopRMSNorm], ChipRewrites):
    """There is no tpu.RMSNorm."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Squares, their mean, root, reciprocal and products."""
        del weights, chip
        return (RMSNormApart(),)
