"""Questions of the propagation of calibrated ranges to top ops (numerics.md 3.1 and 3.3)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tpusim.interfaces import Rules

Range = tuple[float, float]
"""The lower and the upper end of a calibrated range."""


@dataclass(frozen=True)
class RangeRule:
    """How an op changes calibrated ranges (numerics.md 3.1 and 3.3; the steps are those of 3.3).

    fixed: the output has this range, whatever was measured (Softmax). mirrored: the output range is (-th, th) (Abs).
    forward_first (step 1), forward (step 9): the output takes the range of the input.
    back_through: what gives the output a range from its reader's side gives it to the input, too.
    backward (step 5): the input takes the range of the output. backward_keep_min: only its maximum.
    sign (step 2): the sign rule. sum_sign: that of Add. product (step 3): that of a product.
    unify (step 4): all inputs and the output share one range; unify_skips_mixed_signs: only if their signs agree.
    compare (step 7): both operands take their joint range. select (step 8): the branches of Where.
    difference: 3.1, step 3 and the mark of 3.4 for Sub. add_constant, sub_constant: step 2, and the mark for SubConst.
    """

    fixed: tuple[float, float] | None = None
    mirrored: bool = False
    forward_first: bool = False
    back_through: bool = False
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
    """An op's rules in the propagation of calibrated ranges (numerics.md 3.3)."""

    RANGE: ClassVar[RangeRule] = RangeRule()
    """The rule of an op that does not depend on its attributes."""

    def range_rule(self) -> RangeRule:
        """The rule of this op."""
        return self.RANGE

    def forwarded_range(self, source: Range) -> Range:
        """The range that step 9 gives the result: that of the operand, scaled if the op scales."""
        return source


RangeStep = Literal["product_sign", "difference_sign", "products_of_sum"]
"""Steps of the propagation that some families skip (3.3: step 3 for products and differences, step 6)."""


class RangePropagation(Rules):
    """How a family propagates calibrated ranges."""

    SKIPPED: ClassVar[frozenset[RangeStep]] = frozenset()
    """The steps that the family skips."""

    def kept(self, measured: Range) -> Range:
        """The range that replaces a measured or propagated one."""
        return measured
