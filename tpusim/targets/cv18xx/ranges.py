"""Calibrated ranges are symmetric (numerics.md 2.2, 3.1)."""

from typing import ClassVar

from typing_extensions import override

from tpusim.ops.interfaces import Range, RangePropagation, RangeStep
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
