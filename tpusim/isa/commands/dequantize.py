"""Integer to float (DQ dq0): its command, legality and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need
from tpusim.isa.commands.broadcast import elementwise_steps
from tpusim.isa.finding import Finding
from tpusim.isa.region import FLOATS, View


class Dequantize(Command, frozen=True, tag="dequantize"):
    """Integer to float (DQ dq0): f32(scale) * (q - zero_point), for 16-bit outputs both factors in that type.

    bf16: the product is rounded to BF16, whatever the output's type (chips with a BF16 unit, numerics.md 8.1).
    """

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
        """A dequantisation is a cast."""
        return True

    def type_misfit(self) -> Finding | None:
        """The output is a float."""
        if self.output.dtype in FLOATS:
            return None
        return Finding("a float output", self.output.dtype, "use Rescale for integers")

    def cycles(self, chip: ChipSpec) -> int:
        """Steps of the float type."""
        return elementwise_steps(self, self.output, 1, chip)
