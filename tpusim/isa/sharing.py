"""Legality rules about bytes that operands, results and work areas of one command share; see `tpusim.isa.check`."""

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa.blocks import offsets
from tpusim.isa.commands.base import Command
from tpusim.isa.finding import Finding, Rule
from tpusim.isa.layout import extent, lmem_strides
from tpusim.isa.region import View, is_packed, itemsize

_COUNTED = 1 << 20
"""Most elements of views that are compared one by one; larger views whose extents overlap count as shared."""


def in_place(command: Command, chip: ChipSpec) -> Finding | None:
    """A TIU command whose result shares bytes with an operand works element by element, on exactly the same bytes.

    AR, RQ, DQ and SG do so: each element of result and operand has the same address and size. Decision: other commands
    would read elements that they have overwritten; only the library's FN may overwrite an operand, and a product may
    overwrite the sums that it adds to.
    """
    if command.engine == "gdma" or command.computed is not command:
        return None
    for out in command.writes():
        reach = extent(out, chip)
        for name, view in command.local_operands():
            if name in command.outputs_ or not reach.overlaps(extent(view, chip)):
                continue
            same = view.address == out.address and view.lane == out.lane and _places(view, chip) == _places(out, chip)
            if not same or not (command.elementwise or name in command.replaced):
                got = f"bytes [{reach.start:,}, {reach.stop:,}) and {name} at {view.address:,}"
                wanted = "a result that overlaps no operand, or replaces one element by element"
                return Finding(wanted, got, "move it")
    return None


def _places(view: View, chip: ChipSpec) -> tuple[object, ...]:
    """The positions of a view's elements relative to its address: sizes and strides."""
    return view.shape, lmem_strides(view, chip), itemsize(view.dtype), view.interleave


def work_areas(command: Command, chip: ChipSpec) -> Finding | None:
    """A work area is (1, lanes, 1, bytes) u8, compact, inside local memory, and overlaps no operand of the command."""
    local = command.local_operands()
    for view in command.scratch():
        kind = (view.memory, view.dtype, view.layout, view.lane, view.shape[:-1])
        if kind != ("lmem", "u8", "compact", 0, (1, chip.lanes, 1)):
            return Finding(f"u8 work of shape (1, {chip.lanes}, 1, bytes), compact", str(view), "correct the view")
        reach = extent(view, chip)
        if reach.stop > chip.lmem_bytes:
            wanted = f"work inside the {chip.lmem_bytes:,} bytes of a lane"
            return Finding(wanted, f"bytes [{reach.start:,}, {reach.stop:,})", "cut the slice smaller")
        for name, operand in local:
            if reach.overlaps(extent(operand, chip)):
                return Finding(f"work apart from {name}", f"{name} at {operand.address:,}", "move one of the two")
    return None


def _distinct(one: View, other: View, chip: ChipSpec) -> bool:
    """Whether two views share no element although their extents overlap, like rows or columns of one tensor."""
    if max(one.elements, other.elements) > _COUNTED or is_packed(one.dtype) or one.dtype != other.dtype:
        return False
    return not np.intersect1d(offsets(one, chip), offsets(other, chip)).size


def apart(command: Command, chip: ChipSpec) -> Finding | None:
    """If the result of a global kernel or a copy shares bytes with an operand, both have the same address and layout.

    A kernel works tile by tile and a transfer burst by burst: an early store could overwrite what is loaded later. A
    kernel that overwrites an operand works element by element.
    """
    body, copied = command.computed, command.engine == "gdma"
    if body is command and not copied:
        return None
    for out in body.writes():
        reach = extent(out, chip)
        for name, view in body.operands():
            if name in body.outputs_ or not reach.overlaps(extent(view, chip)):
                continue
            if copied and _distinct(view, out, chip):
                continue
            if not (copied or body.elementwise) or view != out:
                got = f"{name} at {view.address:#x}, the result at {out.address:#x}"
                return Finding("a result apart from its operands, tile by tile", got, "move the result")
    return None


KERNEL_SHARING_RULES: tuple[Rule, ...] = (work_areas, apart)
"""Rules for a global kernel as a whole."""

SHARING_RULES: tuple[Rule, ...] = (in_place, *KERNEL_SHARING_RULES)
"""Rules for every other command."""
