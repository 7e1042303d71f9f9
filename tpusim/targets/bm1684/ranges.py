"""Calibrated ranges (numerics.md 3.3)."""

from typing import ClassVar

from tpusim.ops.interfaces import RangePropagation, RangeStep
from tpusim.targets.bm1684.target import TARGET


@TARGET.provide(RangePropagation)
class RangesOfProducts(RangePropagation):
    """Products that feed one Add keep their ranges."""

    SKIPPED: ClassVar[frozenset[RangeStep]] = frozenset({"products_of_sum"})
