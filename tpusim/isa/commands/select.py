"""Slope for negative values (AR select): its command, legality and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need, PerChannel
from tpusim.isa.commands.requant import Requant
from tpusim.isa.finding import Finding
from tpusim.isa.region import FLOATS, View
from tpusim.isa.steps import over, widest


class Select(Command, frozen=True, tag="select"):
    """Slope for negative values (AR select of two products): x if x > 0, else x times the slope of its channel.

    slope: (1, c, 1, 1), or one number for all. Integers: sat(RSR(q*slope, rshift, half_up)) (numerics.md 9.0 LeakyRelu,
    PRelu); f32: one product, no shift. positive: the requant of values that are not negative (9.7).
    """

    inputs_ = ("input", "slope")
    one_lane = True
    elementwise = True
    shapes = "same"
    one_kind = ("input", "slope", "output")

    input: View
    output: View
    slope: View | float
    rshift: int = 0
    positive: Requant | None = None

    def fused_requants(self) -> tuple[Requant, ...]:
        """The requant of values that are not negative, if it has one."""
        return () if self.positive is None else (self.positive,)

    def needs(self) -> tuple[Need, ...]:
        """A requant of values that are not negative needs a chip of small multipliers."""
        return () if self.positive is None else (Need("small_multiplier", "no positive", str(self.positive)),)

    def per_channel(self, chip: ChipSpec) -> list[PerChannel]:
        """The slope, if it is not one number for all."""
        slope = self.slope if isinstance(self.slope, View) else None
        return [PerChannel("slope", slope, (1, self.output.shape[1], 1, 1))]

    def type_misfit(self) -> Finding | None:
        """A slope for integers is a whole number."""
        slope = self.slope
        if self.output.dtype in FLOATS or isinstance(slope, View) or slope == int(slope):
            return None
        return Finding("an integral slope", str(slope), "quantise it, with a right shift")

    def cycles(self, chip: ChipSpec) -> int:
        """Two AR: the product, and the selection."""
        return 2 * over(self.output, widest((view for _, view in self.operands()), chip), chip)
