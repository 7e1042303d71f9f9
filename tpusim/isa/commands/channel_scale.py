"""Multiply-add per channel (AR mac): its command, legality and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, PerChannel
from tpusim.isa.commands.broadcast import elementwise_steps
from tpusim.isa.finding import Finding
from tpusim.isa.multiplications import of_channel_scale
from tpusim.isa.region import View
from tpusim.isa.steps import limits


def accumulators_of_16_bits(command: "ChannelScale", chip: ChipSpec) -> Finding | None:
    """Only a chip with accumulators of 16 bits clamps to them (numerics.md 9.4)."""
    if command.clamp16 and chip.hardware.scale_bits != 16:
        return Finding("no clamp16", "clamp16=true", f"{chip.name} accumulates in {chip.hardware.scale_bits} bits")
    return None


class ChannelScale(Command, frozen=True, tag="channel_scale"):
    """Per-channel multiply-add (AR mac): f32 x*scale + bias; integers RSR(q*scale + bias, r, down) saturated.

    scale, bias: (1, c, 1, 1); rshift: (1, c, 1, 1) int32, integers only. clamp16: the accumulator is clamped to 16 bits
    before the shift (numerics.md 9.4).
    """

    inputs_ = ("input", "scale", "bias", "rshift")
    rules = (accumulators_of_16_bits,)
    one_lane = True
    elementwise = True
    shapes = "same"

    input: View
    output: View
    scale: View
    bias: View | None = None
    rshift: View | None = None
    zero_point: int = 0
    clamp16: bool = False
    relu: bool = False

    def per_channel(self, chip: ChipSpec) -> list[PerChannel]:
        """Scale, bias and shift."""
        one = (1, self.output.shape[1], 1, 1)
        return [
            PerChannel("scale", self.scale, one),
            PerChannel("bias", self.bias, one),
            PerChannel("rshift", self.rshift, one, "i32"),
        ]

    def multiplications(self, outputs: int, inputs: int, depth: int = 1) -> int:
        """One for each output."""
        return of_channel_scale(outputs)

    def cycles(self, chip: ChipSpec) -> int:
        """Steps of the widest operand."""
        views = (view for _, view in self.operands())
        return elementwise_steps(self, self.output, 1, chip) + limits(views, self.output, chip, relu=self.relu)
