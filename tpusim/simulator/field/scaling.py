"""The requants of commands as `tpusim.field` states them, and the limits of floats."""

from tpusim.field import Elements, Field, Scaling
from tpusim.field.integers import clamped
from tpusim.isa.commands import Requant


def scaling(requant: Requant) -> Scaling:
    """The requant of a command."""
    return Scaling(requant.multiplier, requant.rshift, requant.zero_point, requant.rounding, requant.mode)


def floats_limited(field: Field, x: Elements, relu: bool, limit: float) -> Elements:
    """Not below 0 with relu, and then not above a limit that is not negative."""
    return clamped(field, x, 0, limit if limit >= 0 else None) if relu else x
