"""Integer requant per channel (RQ rq1 with a table): its command, legality and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, PerChannel
from tpusim.isa.commands.requant import Rounding
from tpusim.isa.region import View
from tpusim.isa.steps import over, widest


class ChannelRescale(Command, frozen=True, tag="channel_rescale"):
    """Integer requant per channel (RQ rq1 with a table): sat(RSR(q*m[c], r[c], rounding) + z[c]).

    table: (1, c, 1, 3) int32, or (1, c, 1, 2) on chips that pack the last two words, as the requant_table of Conv.
    The output may have any number of axes after the channels in a global kernel.
    """

    inputs_ = ("input", "table")
    alignments = {"table": 8}  # noqa: RUF012
    one_lane = True
    elementwise = True
    shapes = "same"
    one_kind = ("input", "table", "output")

    input: View
    table: View
    output: View
    rounding: Rounding = "half_away"

    def per_channel(self, chip: ChipSpec) -> list[PerChannel]:
        """The table of requants."""
        return [PerChannel("table", self.table, (1, self.output.shape[1], 1, chip.requant_words), "i32")]

    def cycles(self, chip: ChipSpec) -> int:
        """Steps of the widest operand."""
        return over(self.output, widest((view for _, view in self.operands()), chip), chip)
