"""Softmax, with the exponential by a table."""

from typing_extensions import override
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.interfaces import ChipRewrites
from tpusim.ops.patterns.masking import LimitMask
from tpusim.ops.softmax import TopSoftmax
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopSoftmax, ChipRewrites)
class BoundedMasks(Model[TopSoftmax], ChipRewrites):
    """Masks are below the first number of the exponential table."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Masks are raised to the range of the table."""
        del chip
        return (LimitMask(weights, TopSoftmax),)
