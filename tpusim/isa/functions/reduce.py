"""Reductions of floats along axes, and how long they take."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import reduced
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import steps

ReduceMode = Literal["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceProd"]
_ROOT = 40
"""Steps of a root: its series, two sums and three selections, in f32 (F-21)."""


class Reduce(Function, frozen=True, tag="reduce"):
    """Reduction `mode` over `axes` in float; the mean is the sum times `scale` (numerics.md 11.3)."""

    OVER_INPUT: ClassVar[bool] = True

    mode: ReduceMode
    axes: tuple[int, ...]
    scale: float = 1.0

    def made_of(self, operands: int) -> Steps:
        """One pass over the operand."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The result has the elements left without the reduced axes."""
        return reduced(operands, self.axes, result)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Windows along h or w of an image, else one pass over the operand."""
        if max(self.axes) in (2, 3) and len(output.shape) == 4:  # noqa: PLR2004  n, c, h, w
            return _cycles(inputs[0], output, self, chip)
        return super().cycles(inputs, output, chip)


def _cycles(view: View, output: View, function: Reduce, chip: ChipSpec) -> int:
    """A PorD whose window is the axis; a minimum is a negated maximum, a norm has squares before and a root after.

    Along the last axis every result is read separately, which takes another step if rows and results fill vectors. Rows
    of several whole vectors are first reduced to one vector, whose elements are read separately.
    """
    n, c, h, w = view.shape
    rows, vector = n * ceil_div(c, chip.lanes), chip.eu_elements(itemsize(view.dtype))
    if max(function.axes) == 2:  # noqa: PLR2004  h
        windows = rows * h * ceil_div(w, vector)
    elif w > vector and w % vector == 0 and 2 not in function.axes:  # noqa: PLR2004  h
        windows = rows * h * (w // vector + vector * (vector if chip.row_reduction_steps > 1 else 1))
    else:
        results = ceil_div(output.elements, output.shape[1]) * ceil_div(c, chip.lanes)
        times = chip.row_reduction_steps + (chip.row_reduction_steps > 1 and min(results, w) > vector)
        windows = results * (h if 2 in function.axes else 1) * w * times  # noqa: PLR2004
    match function.mode:
        case "ReduceMin":
            more = 2 * (steps(view, itemsize(view.dtype), chip) + steps(output, itemsize(view.dtype), chip))
        case "ReduceL2":
            more = 2 * steps(view, itemsize(view.dtype), chip) + _ROOT * steps(output, 4, chip)
        case _:
            more = 0
    return windows + more
