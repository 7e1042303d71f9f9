"""Constant fill (GDMA)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class Fill(Command, frozen=True, tag="fill"):
    """Constant fill (GDMA constant mode)."""

    engine = "gdma"

    output: View
    value: float
