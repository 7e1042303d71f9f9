"""Calibrated ranges are symmetric (numerics.md 2.2, 3.1)."""

from typing import ClassVar

from typing_extensions import override

from tpusim.interfaces import Model
from tpusim.ops.interfaces import Range, RangePropagation, RangeRule, Ranges, RangeStep
from tpusim.ops.view import TopReshape, TopSqueeze, TopUnsqueeze, ViewTop
from tpusim.targets.cv18xx.target import TARGET


@TARGET.provide(RangePropagation)
class SymmetricRanges(RangePropagation):
    """Every range is (-th, th), so the steps that look at signs are skipped."""

    SKIPPED: ClassVar[frozenset[RangeStep]] = frozenset({"product_sign", "difference_sign", "products_of_sum"})

    @override
    def kept(self, measured: Range) -> Range:
        """The range (-th, th), where th is the larger absolute bound."""
        threshold = max(abs(measured[0]), abs(measured[1]))
        return -threshold, threshold


@TARGET.attach(TopSqueeze, Ranges)
@TARGET.attach(TopUnsqueeze, Ranges)
class ViewsAsReshapes(Model[ViewTop], Ranges):
    """TPU-MLIR makes a Reshape of the view before ranges are propagated (U-117)."""

    @override
    def range_rule(self) -> RangeRule:
        return TopReshape.RANGE
