"""Integer requant per channel (RQ rq1 with a table)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.commands.requant import Rounding
from tpusim.isa.region import View


class ChannelRescale(Command, frozen=True, tag="channel_rescale"):
    """Integer requant per channel (RQ rq1 with a table): sat(RSR(q*m[c], r[c], rounding) + z[c]).

    table: (1, c, 1, 3) int32, or 2 words on chips that pack the last two, as the requant_table of Conv. The output may
    have any number of axes after the channels in a global kernel.
    """

    inputs_ = ("input", "table")

    input: View
    table: View
    output: View
    rounding: Rounding = "half_away"
