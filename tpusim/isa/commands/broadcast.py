"""Common to AR commands with several operands of one shape, or of shapes that broadcast: a rule and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.finding import Finding, first
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import padded_elements, widest


def arith_strides(command: Command, chip: ChipSpec) -> Finding | None:
    """Explicit strides of AR operands are below 2**18."""
    return first(
        Finding(f"strides of {name} < 262,144", str(view.strides), "use a smaller slice")
        for name, view in command.local_operands()
        if max(view.strides or (0,)) >= 1 << 18
    )


def elementwise_steps(command: Command, output: View, passes: int, chip: ChipSpec) -> int:
    """Steps of the widest operand times the number of passes."""
    vector = widest((view for _, view in command.operands()), chip)
    if command.fills_lanes(chip):
        return passes * ceil_div(output.elements, vector * chip.lanes)
    return passes * padded_elements(output, chip, vector) // (vector * chip.lanes)


_WHOLE_ROW = 4
"""Elements of the longest row that usually lies on one line of local memory."""


def row_passes(view: View, chip: ChipSpec) -> int:
    """How often a copy of separate short rows repeats each vector step: once for each line of local memory.

    Result and operand have equally many lines. Most rows of more than four elements of two bytes or more
    lie on two lines (U-87).
    """
    if view.layout != "strided" or len(view.shape) != 4:  # noqa: PLR2004  n, c, h, w
        return 1
    size, (_, _, height, width), (_, _, row, step) = itemsize(view.dtype), view.shape, view.strides or (0, 0, 0, 0)
    vector = chip.eu_elements(size)
    if width > 1 and step > 1:
        return min(step, vector)
    if height == 1 or row <= width:
        return 1
    straddles = width > _WHOLE_ROW and size > 1 and vector % width
    lines = height * (2 if straddles else 1) * ceil_div(width, vector)
    return max(1, lines // ceil_div(height * width, vector))
