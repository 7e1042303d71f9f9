"""Slope for negative values (AR select)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.commands.requant import Requant
from tpusim.isa.region import View


class Select(Command, frozen=True, tag="select"):
    """Slope for negative values (AR select of two products): x if x > 0, else x times the slope of its channel.

    slope: (1, c, 1, 1), or one number for all. Integers: sat(RSR(q*slope, rshift, half_up)) (numerics.md 9.0 LeakyRelu,
    PRelu); f32: one product, no shift. positive: the requant of values that are not negative (CV18xx, 9.7).
    """

    inputs_ = ("input", "slope")

    input: View
    output: View
    slope: View | float
    rshift: int = 0
    positive: Requant | None = None
