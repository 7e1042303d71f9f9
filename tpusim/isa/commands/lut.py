"""Table gather (SG): its command, legality and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.finding import Finding
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View
from tpusim.isa.steps import over


def tables(command: "Lut", chip: ChipSpec) -> Finding | None:
    """A table gather reads bytes and 256 entries (1, 1, 1, 256) of the output's type, or of int32 (numerics.md 10)."""
    if command.input.dtype not in ("i8", "u8"):
        return Finding("an i8 or u8 input", command.input.dtype, "quantise it first")
    wanted, table = (1, 1, 1, 256), command.table
    wide = table.dtype == "i32" and command.output.dtype in ("i8", "u8")
    if table.shape == wanted and (wide or table.dtype == command.output.dtype):
        return None
    return Finding(f"table {command.output.dtype} {wanted}", f"{table.dtype} {table.shape}", "correct the view")


class Lut(Command, frozen=True, tag="lut"):
    """Table gather (SG): output = table[byte of input]; a negative value i reads entry 256 + i (numerics.md 10).

    input: int8 or uint8. table: (1, 1, 1, 256) of the output's type, or int32 whose lowest byte is the entry, as
    TPU-MLIR stores it for some chips. Decision: the table is one copy, at lane 0, and
    every lane reads it. The chip's broadcast load (hardware.md 2.3) is counted as this one load; the entries occupy
    their bytes in every lane, because space is allocated in all lanes equally.
    """

    inputs_ = ("input", "table")
    rules = (tables,)
    in_every_lane = ("table",)
    one_lane = True
    elementwise = True
    shapes = "same"

    input: View
    table: View
    output: View

    def cycles(self, chip: ChipSpec) -> int:
        """The table is copied to all lanes, then SG reads one element per lane and cycle."""
        return 2 * ceil_div(self.table.nbytes, chip.eu_bytes) + over(self.output, 1, chip)
