"""Repetition of rows and columns, and how long it takes."""

from collections.abc import Sequence

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import counted, per_axis
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize


class Upsample(Function, frozen=True, tag="upsample"):
    """Every element of a plane repeated scale_h x scale_w times; the result may join the rows of one operand row.

    operand: (n, c, h, w). result: (n, c, h*scale_h, w*scale_w), or (n, c, h, scale_h*w*scale_w) in the same order.
    """

    scale_h: int
    scale_w: int

    def made_of(self, operands: int) -> Steps:
        """Steps that copy an element: to strided columns, and to the other rows."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Four axes, and as many elements as the factors make."""
        if (why := counted(operands, 1) or per_axis(operands[0], result=result)) is not None:
            return why
        n, c, h, w = operands[0]
        able = (n, c, h * self.scale_h, w * self.scale_w), (n, c, h, self.scale_h * w * self.scale_w)
        return None if result in able else Misfit(f"a result of {able[0]} or {able[1]}", f"{result}")

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """AR copies: into columns scale_w apart, which takes scale_w times as long; then of rows to the other rows."""
        n, c, h, w = inputs[0].shape
        vector, rows = chip.eu_elements(itemsize(output.dtype)), n * ceil_div(c, chip.lanes)
        columns = self.scale_w**2 * ceil_div(h * w, vector)
        return rows * (columns + (self.scale_h - 1) * ceil_div(h * w * self.scale_w, vector))
