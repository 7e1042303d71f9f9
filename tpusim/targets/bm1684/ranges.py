"""Calibrated ranges (numerics.md 3.3)."""

from typing import ClassVar

from typing_extensions import override

from tpusim.interfaces import Model
from tpusim.ops.interfaces import RangePropagation, RangeRule, Ranges, RangeStep
from tpusim.ops.view import TopReshape, TopSqueeze, TopUnsqueeze, ViewTop
from tpusim.targets.bm1684.target import TARGET


@TARGET.provide(RangePropagation)
class RangesOfProducts(RangePropagation):
    """Products that feed one Add keep their ranges."""

    SKIPPED: ClassVar[frozenset[RangeStep]] = frozenset({"products_of_sum"})


@TARGET.attach(TopSqueeze, Ranges)
@TARGET.attach(TopUnsqueeze, Ranges)
class ViewsAsReshapes(Model[ViewTop], Ranges):
    """TPU-MLIR makes a Reshape of the view before ranges are propagated (U-117)."""

    @override
    def range_rule(self) -> RangeRule:
        return TopReshape.RANGE
