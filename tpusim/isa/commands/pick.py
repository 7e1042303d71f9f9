"""Gather of places (SG)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class Pick(Command, frozen=True, tag="pick"):
    """Gather of places (SG): output[n, c, p] = input[n, c, indices[p]], a plane of h*w elements counted row by row.

    input, output: (n, c, h, w) of one type and any two planes. indices: (1, lanes, h, w) i16, their bits unsigned, at
    least one for each place of the result: place p is number p div lanes of those that lane p mod lanes has.
    """

    inputs_ = ("input", "indices")

    input: View
    indices: View
    output: View
