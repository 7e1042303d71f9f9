"""Copy between lanes (TRANS/BC)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class LaneCopy(Command, frozen=True, tag="lane_copy"):
    """Copy between views of one memory whose start lanes may differ (TRANS/BC lane copy)."""

    inputs_ = ("input",)

    input: View
    output: View
