"""Table gather (SG)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class Lut(Command, frozen=True, tag="lut"):
    """Table gather (SG): output = table[byte of input], a negative value i at entry 256 + i (numerics.md 10).

    input: int8 or uint8. table: (1, 1, 1, 256) of the output's type. Decision: a table is one copy, at lane 0, that
    every lane reads. The broadcast load of the chip (hardware.md 2.3) is counted as this one load; the entries occupy
    their bytes in every lane, because space is allocated in all lanes alike.
    """

    inputs_ = ("input", "table")

    input: View
    table: View
    output: View
