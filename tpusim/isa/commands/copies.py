"""The legality rule of copies: what a copy requires of its two views."""

from typing import TYPE_CHECKING, TypeAlias

from tpusim.chips import ChipSpec
from tpusim.isa.finding import Finding

if TYPE_CHECKING:
    from tpusim.isa.commands.lane_copy import LaneCopy
    from tpusim.isa.commands.move import Move

    Copy: TypeAlias = Move | LaneCopy


def copies(command: "Copy", chip: ChipSpec) -> Finding | None:
    """A copy has one shape and element type on both sides; a lane copy and a copy by turns stay in one memory."""
    source, target = command.input, command.output
    if source.shape != target.shape or source.dtype != target.dtype:
        return Finding(
            f"the output to be {source.dtype} {source.shape}", f"{target.dtype} {target.shape}", "correct one view"
        )
    return command.memory_misfit()
