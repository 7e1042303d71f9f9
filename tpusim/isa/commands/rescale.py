"""Integer requant (RQ rq1)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.commands.requant import Requant
from tpusim.isa.region import View


class Rescale(Command, frozen=True, tag="rescale"):
    """Integer requant (RQ rq1): sat(RSR((q - input_zero)*m, r) + z), then relu at z if asked."""

    inputs_ = ("input",)

    input: View
    output: View
    requant: Requant
    input_zero: int = 0
    relu: bool = False
