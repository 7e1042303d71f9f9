"""Copy between lanes (TRANS/BC): its command, legality and cycles."""

from math import prod

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.commands.copies import copies
from tpusim.isa.finding import Finding
from tpusim.isa.layout import ceil_div, lmem_strides
from tpusim.isa.region import View, itemsize


class LaneCopy(Command, frozen=True, tag="lane_copy"):
    """Copy between views of one memory whose start lanes may differ (TRANS/BC lane copy)."""

    inputs_ = ("input",)
    rules = (copies,)

    input: View
    output: View

    def memory_misfit(self) -> Finding | None:
        """Both sides are in one memory."""
        if self.input.memory == self.output.memory:
            return None
        return Finding("both views in one memory", f"{self.input.memory} and {self.output.memory}", "use Move")

    def cycles(self, chip: ChipSpec) -> int:
        """Each channel is copied separately, once per row of lanes that the copy reaches; by AR if no lane shifts.

        An AR that reads columns with a step takes as many steps for each vector, at most the elements of one.
        """
        n, c, *plane = self.output.shape
        start, target = (view.lane % chip.lanes for view in (self.input, self.output))
        steps = ceil_div(prod(plane) * itemsize(self.output.dtype), chip.eu_bytes)
        apart = min(lmem_strides(self.input, chip)[-1], chip.eu_elements(itemsize(self.output.dtype)))
        return n * ceil_div(target + c, chip.lanes) * steps * (max(1, apart) if start == target else c)
