"""Integer to float (DQ dq0)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class Dequantize(Command, frozen=True, tag="dequantize"):
    """Integer to float (DQ dq0): f32(scale) * (q - zero_point), both rounded to an f16 or bf16 output's type first.

    bf16: the product is rounded to BF16, whatever the output's type (CV18xx, numerics.md 8.1).
    """

    inputs_ = ("input",)

    input: View
    output: View
    scale: float
    zero_point: int = 0
    bf16: bool = False
