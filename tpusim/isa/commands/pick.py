"""Gather of places (SG): its command, legality and cycles."""

from math import prod

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.finding import Finding
from tpusim.isa.region import View
from tpusim.isa.steps import over


def picked(command: "Pick", chip: ChipSpec) -> Finding | None:
    """A gather of places keeps batch, channels and type; each lane stores an equal share of the i16 indices."""
    source, target, indices = command.input, command.output, command.indices
    if (source.dtype, source.shape[:2]) != (target.dtype, target.shape[:2]):
        wanted, got = ((v.dtype, *v.shape[:2]) for v in (target, source))
        return Finding("one type, batch and channels of input and output", f"{got} and {wanted}", "correct the views")
    places, (batch, lanes, *share) = prod(target.shape[2:]), indices.shape
    if (indices.dtype, batch, lanes) == ("i16", 1, chip.lanes) and prod(share) * chip.lanes >= places:
        return None
    wanted = f"i16 indices (1, {chip.lanes}, h, w) of {places} places"
    return Finding(wanted, f"{indices.dtype} {indices.shape}", "correct the view")


class Pick(Command, frozen=True, tag="pick"):
    """Gather of places (SG): output[n, c, p] = input[n, c, indices[p]], a plane of h*w elements counted row by row.

    input, output: (n, c, h, w) of one type and any two planes. indices: (1, lanes, h, w) i16, read as unsigned, at
    least one for each place of the result: the index of place p is number p div lanes in lane p mod lanes.
    """

    inputs_ = ("input", "indices")
    rules = (picked,)
    one_lane = True

    input: View
    indices: View
    output: View

    def cycles(self, chip: ChipSpec) -> int:
        """SG: one element per lane and cycle."""
        return over(self.output, 1, chip)
