"""The two arithmetics of 16-bit floats: that of the chip, and that of TPU-MLIR's interpreter (numerics.md 14)."""

from typing import Literal, cast

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from tpusim.chips import ChipSpec
from tpusim.ir.upstream import ARITHMETIC

Arithmetic = Literal["chip", "interpreter"]


class TwoArithmetics:
    """An op that TPU-MLIR's interpreter rounds otherwise than the chip; its attribute `arithmetic` says which it has.

    Without the attribute it is the chip's.
    """

    @property
    def as_interpreter(self) -> bool:
        """Whether the op has the interpreter's arithmetic (DN-24)."""
        return cast("Operation", self).attributes.get(ARITHMETIC) == StringAttr("interpreter")

    def choose_arithmetic(self, chip: ChipSpec, arithmetic: Arithmetic, *, high_precision: bool) -> None:
        """Take an arithmetic at the end of the lowering. high_precision: attention keeps its sums in f32."""
        del chip, high_precision
        if arithmetic == "interpreter":
            cast("Operation", self).attributes[ARITHMETIC] = StringAttr(arithmetic)
