"""Float to integer (RQ rq0): its command, legality and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need
from tpusim.isa.commands.broadcast import elementwise_steps
from tpusim.isa.finding import Finding
from tpusim.isa.region import FLOATS, View, itemsize

_F32_BYTES = 4
_HALF_STEPS, _SHIFTED_STEPS = 3, 5
"""Steps of a cast from 16 bits, and from f32 to integers with a zero point (F-22)."""


class ScaledCast(Command, frozen=True):
    """A cast between floats and integers with a scale and a zero point. bf16: by a BF16 float unit."""

    inputs_ = ("input",)
    one_lane = True
    elementwise = True
    shapes = "same"

    input: View
    output: View
    scale: float
    zero_point: int = 0
    bf16: bool = False

    def needs(self) -> tuple[Need, ...]:
        """The option bf16 needs a BF16 float unit."""
        return (Need("bf16", "no bf16", "bf16=true"),) if self.bf16 else ()

    @property
    def casts(self) -> bool:
        """It is a cast."""
        return True


class Quantize(ScaledCast, frozen=True, tag="quantize"):
    """Float to integer (RQ rq0): sat(round-half-away(x * f32(scale)) + zero_point); scale is the reciprocal, f32.

    The product is in f32; for an f16 or bf16 input it is also rounded to that type (numerics.md 8.1).
    bf16: sat(RNE(BF16(x * scale)) + zero_point); the scale is a BF16 number, and an f32 x is first truncated to BF16
    (chips with a BF16 unit, numerics.md 8.1).
    """

    def type_misfit(self) -> Finding | None:
        """The input is a float."""
        if self.input.dtype in FLOATS:
            return None
        return Finding("a float input", self.input.dtype, "use Rescale for integers")

    def cycles(self, chip: ChipSpec) -> int:
        """Steps of the float type: the product, its sum (in place for f32), and the cast.

        From f32 one of these counts twice, because its operand and result share a bank; in a tile they do not.
        """
        once = elementwise_steps(self, self.output, 1, chip)
        if itemsize(self.input.dtype) < _F32_BYTES:
            return once * _HALF_STEPS
        return once * (max(chip.quantize_steps, _SHIFTED_STEPS * (self.zero_point != 0)) - self.of_tile)
