"""What the propagation of calibrated ranges asks of top ops (numerics.md 3.1 and 3.3)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tpusim.interfaces import Rules

Range = tuple[float, float]
"""Lower and upper end of a calibrated range."""


@dataclass(frozen=True)
class RangeRule:
    """What an op does to calibrated ranges (numerics.md 3.1 and 3.3; the numbers are the steps of 3.3).

    fixed: the output range is this, whatever was measured (Softmax).
    forward_first: step 1, forward: step 9, output takes the input's range. backward: step 5, input takes the output's.
    sign: step 2, the sign rule. unify: step 4, all inputs and the output share one range; for Concat only if the
    signs agree (unify_skips_mixed_signs). mirrored: the output range is (-th, th) (Abs).
    backward_keep_min: step 5, input takes the output's max and keeps its min. product: step 3, the sign rule of a
    product. sum_sign: step 2, Add.
    compare: step 7, both operands take their joint range. select: step 8, the branches of Where.
    difference: 3.1, step 3 and the mark of 3.4 for Sub. add_constant, sub_constant: step 2 (and the mark for SubConst).
    """

    fixed: tuple[float, float] | None = None
    mirrored: bool = False
    forward_first: bool = False
    forward: bool = False
    backward: bool = False
    backward_keep_min: bool = False
    sign: bool = False
    sum_sign: bool = False
    product: bool = False
    unify: bool = False
    unify_skips_mixed_signs: bool = False
    difference: bool = False
    add_constant: bool = False
    sub_constant: bool = False
    compare: bool = False
    select: bool = False


class Ranges:
    """How the op takes part in the propagation of calibrated ranges (numerics.md 3.3)."""

    RANGE: ClassVar[RangeRule] = RangeRule()
    """The rule, as far as it does not depend on attributes."""

    def range_rule(self) -> RangeRule:
        """The rule of this op."""
        return self.RANGE

    def forwarded_range(self, source: Range) -> Range:
        """The range of the result where step 9 hands the operand's on: the same unless the op scales."""
        return source


RangeStep = Literal["product_sign", "difference_sign", "products_of_sum"]
"""Steps of the propagation that not every family takes (3.3 step 3 twice, step 6)."""


class RangePropagation(Rules):
    """What a family does with calibrated ranges."""

    SKIPPED: ClassVar[frozenset[RangeStep]] = frozenset()
    """Steps that are left out."""

    def kept(self, measured: Range) -> Range:
        """The range that stands for one that was measured or propagated."""
        return measured
