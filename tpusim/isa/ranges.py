"""How far the window of one command may step, and be padded and widened (hardware.md 4)."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Command, Conv, Depthwise, Pool
from tpusim.isa.finding import Finding

MOST_STEPS = 15
"""Elements that a command can dilate by, and pad on a side."""
MOST_INSERTED = 14
"""Elements that it can insert between two of its input."""


def window_ranges(command: Command, chip: ChipSpec) -> Finding | None:
    """Strides are 1 to the chip's limit (15), pads 0-15, dilations 1-15, inserted elements 0-14."""
    if not isinstance(command, Conv | Depthwise | Pool):
        return None
    dilations, inserts = ((1,), (0,)) if isinstance(command, Pool) else (command.dilations, command.inserts)
    for name, values, low, high in (
        ("strides", command.strides, 1, chip.max_stride),
        ("pads", command.pads, 0, MOST_STEPS),
        ("dilations", dilations, 1, MOST_STEPS),
        ("inserts", inserts, 0, MOST_INSERTED),
    ):
        if not all(low <= value <= high for value in values):
            return Finding(
                f"{name} within {low}-{high}", str(values), "gather what each window sees (codegen.md DC-09)"
            )
    return None
