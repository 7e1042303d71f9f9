"""A function by two BF16 tables (SG and AR): its command and legality."""

from typing import Literal

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.finding import Finding
from tpusim.isa.region import View

_TABLE_ENTRIES = 256


def float_tables(command: "FloatLut", chip: ChipSpec) -> Finding | None:
    """A function by tables needs a chip with BF16 tables, bf16 operands, 256 entries per table, a range for slopes."""
    if not chip.hardware.float_tables:
        return Finding("a chip with BF16 tables", chip.name, "compute the function with Fn active")
    for name, view in command.operands():
        if view.dtype != "bf16":
            return Finding(f"{name} bf16", view.dtype, "convert it")
        if name in command.in_every_lane and view.elements != _TABLE_ENTRIES:
            return Finding(f"{_TABLE_ENTRIES} entries in {name}", str(view.elements), "correct the view")
    if command.mode == "slope" and not command.low < command.high:
        return Finding("low < high", f"{command.low} and {command.high}", "give the range of the table")
    return None


class FloatLut(Command, frozen=True, tag="float_lut"):
    """A function by two BF16 tables (two SG and AR, numerics.md 10); every step rounded to BF16.

    slope: t = (x - (low + high)/2)*256/(high - low), j = its whole part as int8, table[j] + (t - j)*mantissa[j].
    mantissa: table[exponent of x] * mantissa[low byte of x]; log: their sum. low and high are read by slope only.
    input and output: bf16 of one shape; table and mantissa: bf16, 256 entries, one copy for all lanes as for Lut.
    """

    inputs_ = ("input", "table", "mantissa")
    rules = (float_tables,)
    in_every_lane = ("table", "mantissa")
    one_lane = True
    elementwise = True
    shapes = "same"

    mode: Literal["slope", "mantissa", "log"]
    input: View
    table: View
    mantissa: View
    output: View
    low: float = 0.0
    high: float = 0.0
