"""Reductions of floats along axes, and how long they take."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import reduced
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import ADDITION, row_windows, steps

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
        """Windows or products along h or w of an image, else one pass over the operand."""
        if max(self.axes) in (2, 3) and len(output.shape) == 4:  # noqa: PLR2004  n, c, h, w
            return _cycles(inputs[0], output, self, chip)
        return super().cycles(inputs, output, chip)


def _cycles(view: View, output: View, function: Reduce, chip: ChipSpec) -> int:
    """A PorD whose window is the axis; a minimum is a negated maximum, a norm has squares before and a root after.

    A product is made of multiplications.
    """
    if function.mode == "ReduceProd":
        return _product(view, function, chip)
    n, c, h, w = view.shape
    planes, size = n * ceil_div(c, chip.lanes), itemsize(view.dtype)
    vector = chip.eu_elements(size)
    if max(function.axes) == 2 and w == 1 and h > vector:  # noqa: PLR2004  h
        filled = align(h, vector)
        windows = planes * (ceil_div(h % vector, vector) + row_windows(1, filled, vector, chip))
    elif max(function.axes) == 2:  # noqa: PLR2004  h
        windows = planes * h * ceil_div(w, vector)
    else:
        rows, length = (1, h * w) if 2 in function.axes else (h, w)  # noqa: PLR2004  h
        windows = planes * row_windows(rows, length, vector, chip)
    match function.mode:
        case "ReduceMin":
            return windows + 2 * (steps(view, size, chip) + steps(output, size, chip))
        case "ReduceL1":
            return windows + 2 * steps(view, size, chip)
        case "ReduceL2":
            return windows + 2 * steps(view, size, chip) + _ROOT * steps(output, 4, chip)
        case _:
            return windows


def _product(view: View, function: Reduce, chip: ChipSpec) -> int:
    """Along h one place after the other; along w the second half times the first one, until one column is left."""
    n, c, h, w = view.shape
    planes, vector = n * ceil_div(c, chip.lanes), chip.eu_elements(itemsize(view.dtype))
    if max(function.axes) == 2:  # noqa: PLR2004  h
        return planes * ceil_div(w, vector) * (1 + ADDITION * (h - 1))
    rows, left = (1, h * w) if 2 in function.axes else (h, w)  # noqa: PLR2004  h
    total = ceil_div(rows, vector)
    while left > 1:
        kept = 1 << (left - 1).bit_length() - 1
        halves, copied = left - kept, 2 * kept - left
        total += ADDITION * ceil_div(rows * halves, vector) + ceil_div(rows * copied, vector)
        left = kept
    return planes * total
