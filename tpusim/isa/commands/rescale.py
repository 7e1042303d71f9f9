"""Integer requant (RQ rq1): its command and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.commands.requant import Requant
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import over, steps, widest


class Rescale(Command, frozen=True, tag="rescale"):
    """Integer requant (RQ rq1): sat(RSR((q - input_zero)*m, r) + z), then a relu at z if `relu` is set."""

    inputs_ = ("input",)
    one_lane = True
    elementwise = True
    shapes = "same"
    one_kind = ("input", "output")

    input: View
    output: View
    requant: Requant
    input_zero: int = 0
    relu: bool = False

    def fused_requants(self) -> tuple[Requant, ...]:
        """The requant that this command applies."""
        return (self.requant,)

    def cycles(self, chip: ChipSpec) -> int:
        """Steps of the widest operand; bytes with zero points take 16-bit steps to subtract, then 32-bit steps."""
        shifted = self.input_zero or self.requant.zero_point
        if shifted and itemsize(self.input.dtype) == itemsize(self.output.dtype) == 1:
            return steps(self.output, 2, chip) + steps(self.output, 4, chip)
        return over(self.output, widest((self.input, self.output), chip), chip)
