"""Float to integer (RQ rq0)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class Quantize(Command, frozen=True, tag="quantize"):
    """Float to integer (RQ rq0): sat(round-half-away(x * f32(scale)) + zero_point); scale is the reciprocal, f32.

    The product is in f32; of an f16 or bf16 input it is rounded to that type once more (numerics.md 8.1).
    bf16: sat(RNE(BF16(x * scale)) + zero_point), the scale a BF16 number, an f32 x cut off to BF16 first (CV18xx,
    numerics.md 8.1).
    """

    inputs_ = ("input",)

    input: View
    output: View
    scale: float
    zero_point: int = 0
    bf16: bool = False
