"""Integer to float (DQ dq0): its command, legality and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.broadcast import elementwise_steps
from tpusim.isa.commands.quantize import ScaledCast
from tpusim.isa.finding import Finding
from tpusim.isa.region import FLOATS


class Dequantize(ScaledCast, frozen=True, tag="dequantize"):
    """Integer to float (DQ dq0): f32(scale) * (q - zero_point), for 16-bit outputs both factors in that type.

    bf16: the product is rounded to BF16, whatever the output's type (chips with a BF16 unit, numerics.md 8.1).
    """

    def type_misfit(self) -> Finding | None:
        """The output is a float."""
        if self.output.dtype in FLOATS:
            return None
        return Finding("a float output", self.output.dtype, "use Rescale for integers")

    def cycles(self, chip: ChipSpec) -> int:
        """Steps of the float type."""
        return elementwise_steps(self, self.output, 1, chip)
