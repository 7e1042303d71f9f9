"""The two arithmetics of 16-bit floats: that of the chip, and that of TPU-MLIR's interpreter (numerics.md 14)."""

from typing import ClassVar, Literal, cast

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from tpusim.chips import ChipSpec
from tpusim.ir.upstream import ARITHMETIC

Arithmetic = Literal["chip", "interpreter"]


class TwoArithmetics:
    """An op that TPU-MLIR's interpreter and the chip round differently; its attribute `arithmetic` says whose it has.

    UNLESS_STATED: whose it has without the attribute.
    """

    UNLESS_STATED: ClassVar[Arithmetic] = "chip"

    @property
    def as_interpreter(self) -> bool:
        """Whether the op has the interpreter's arithmetic (DN-24)."""
        stated = cast("Operation", self).attributes.get(ARITHMETIC, StringAttr(self.UNLESS_STATED))
        return stated == StringAttr("interpreter")

    def choose_arithmetic(self, chip: ChipSpec, arithmetic: Arithmetic, *, high_precision: bool) -> None:
        """Take an arithmetic at the end of the lowering. high_precision: attention keeps its sums in f32."""
        del chip, high_precision
        attributes = cast("Operation", self).attributes
        if arithmetic == "interpreter" == self.UNLESS_STATED:
            attributes.pop(ARITHMETIC, None)
        elif arithmetic == "interpreter":
            attributes[ARITHMETIC] = StringAttr(arithmetic)
