"""Comparison of two tensors (AR select): its command, legality and cycles."""

from typing import Literal

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.commands.broadcast import arith_strides, elementwise_steps
from tpusim.isa.finding import Finding
from tpusim.isa.region import FLOATS, View

Relation = Literal["Equal", "NotEqual", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"]


class Compare(Command, frozen=True, tag="compare"):
    """1 where a `kind` b holds, else 0 (AR select of two constants); numpy broadcasting of axes of length 1.

    a and b are both integers or both floats; b may be a constant. And, Or and Xor take every value but 0 as true.
    """

    inputs_ = ("a", "b")
    local_rules = (arith_strides,)
    one_lane = True
    elementwise = True
    shapes = "broadcast"

    kind: Relation
    a: View
    output: View
    b: View | float = 0.0

    def type_misfit(self) -> Finding | None:
        """Both operands are integers, or both are floats."""
        other, wanted = self.b, self.a.dtype
        if isinstance(other, View):
            if (other.dtype in FLOATS) != (wanted in FLOATS):
                return Finding(f"operands of {wanted}", other.dtype, "convert with Quantize or Dequantize")
        elif wanted not in FLOATS and other != int(other):
            return Finding("an integral constant", str(other), "quantise the constant")
        return None

    def cycles(self, chip: ChipSpec) -> int:
        """Steps of the widest operand."""
        return elementwise_steps(self, self.output, 1, chip)
