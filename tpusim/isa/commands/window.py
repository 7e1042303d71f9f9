"""The window of a convolution or a pool, and the rules about it."""

from typing import TYPE_CHECKING, NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.finding import Finding

if TYPE_CHECKING:
    from tpusim.isa.commands.base import Command

MOST_STEPS = 15
"""The largest dilation of a command, and its most padded elements on a side."""
MOST_INSERTED = 14
"""The most elements that a command inserts between two input elements."""


class Window(NamedTuple):
    """A window that slides along the axes after the channels; every attribute has an entry per axis.

    pads: those before every axis, then those after. channelwise: each channel of the result depends only on the same
    channel of the input.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    inserts: tuple[int, ...]
    channelwise: bool = False


def window_ranges(command: "Command", chip: ChipSpec) -> Finding | None:
    """Strides are 1 to the chip's limit (15), pads 0-15, dilations 1-15, inserted elements 0-14."""
    if (window := command.window) is None:
        return None
    for name, values, low, high in (
        ("strides", window.strides, 1, chip.max_stride),
        ("pads", window.pads, 0, MOST_STEPS),
        ("dilations", window.dilations, 1, MOST_STEPS),
        ("inserts", window.inserts, 0, MOST_INSERTED),
    ):
        if not all(low <= value <= high for value in values):
            return Finding(
                f"{name} within {low}-{high}", str(values), "gather what each window sees (codegen.md DC-09)"
            )
    return None


def windows(command: "Command", chip: ChipSpec) -> Finding | None:
    """Input and output of a window op have the same batch; every window lies inside the widened, padded input.

    A window has two axes, or three in the body of a global kernel; every attribute has an entry for each.
    """
    if (window := command.window) is None:
        return None
    source, target, axes = command.reads()[0].shape, command.writes()[0].shape, len(window.kernel)
    lengths = [len(values) for values in (window.strides, window.dilations, window.inserts)]
    if axes not in (2, 3) or lengths != [axes] * 3 or len(window.pads) != 2 * axes:
        got = f"{axes}, {lengths} and {len(window.pads)} pads"
        return Finding("2 or 3 entries of kernel, strides, dilations and inserts, twice the pads", got, "give all")
    if len(source) != 2 + axes or len(target) != 2 + axes or source[0] != target[0]:
        return Finding(f"n, c and {axes} axes with one batch", f"{source} and {target}", "correct the views")
    if window.channelwise and source[1] != target[1]:
        return Finding(f"{source[1]} output channels", str(target[1]), "pooling keeps the channels")
    for axis, name in enumerate(("depths", "rows", "columns")[3 - axes :]):
        span = (target[2 + axis] - 1) * window.strides[axis] + (window.kernel[axis] - 1) * window.dilations[axis] + 1
        widened = (source[2 + axis] - 1) * (window.inserts[axis] + 1) + 1
        room = widened + window.pads[axis] + window.pads[axis + axes]
        if span > room:
            got = f"a reach of {span} into {room} padded {name}"
            return Finding("every window inside the padded input", got, "load more input, or pad more")
    return None
