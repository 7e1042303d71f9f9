"""A function by two BF16 tables (SG and AR)."""

from typing import Literal

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class FloatLut(Command, frozen=True, tag="float_lut"):
    """A function by two BF16 tables (two SG and AR): CV18xx (numerics.md 10); every step rounded to BF16.

    slope: t = (x - (low + high)/2)*256/(high - low), j = its whole part as int8, table[j] + (t - j)*mantissa[j].
    mantissa: table[exponent of x] * mantissa[low byte of x]; log: their sum. low and high are read by slope only.
    input and output: bf16 of one shape; table and mantissa: bf16, 256 entries, one copy for all lanes as for Lut.
    """

    inputs_ = ("input", "table", "mantissa")

    mode: Literal["slope", "mantissa", "log"]
    input: View
    table: View
    mantissa: View
    output: View
    low: float = 0.0
    high: float = 0.0
