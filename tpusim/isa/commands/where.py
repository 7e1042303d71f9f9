"""Choice between two tensors (AR select): its command, legality and cycles."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.commands.broadcast import arith_strides, elementwise_steps, row_passes
from tpusim.isa.finding import Finding
from tpusim.isa.region import FLOATS, View


class Where(Command, frozen=True, tag="where"):
    """on_true where the condition is not 0, else on_false (AR select); numpy broadcasting of axes of length 1.

    A branch may be a constant. Branches and output have one type; the condition may have any.
    """

    inputs_ = ("condition", "on_true", "on_false")
    local_rules = (arith_strides,)
    one_lane = True
    elementwise = True
    shapes = "broadcast"

    condition: View
    output: View
    on_true: View | float = 0.0
    on_false: View | float = 0.0

    def type_misfit(self) -> Finding | None:
        """Both branches have the output's type."""
        wanted = self.output.dtype
        for other in (self.on_true, self.on_false):
            if isinstance(other, View):
                if other.dtype != wanted:
                    return Finding(f"operands of {wanted}", other.dtype, "convert with Quantize or Dequantize")
            elif wanted not in FLOATS and other != int(other):
                return Finding("an integral constant", str(other), "quantise the constant")
        return None

    def cycles(self, chip: ChipSpec) -> int:
        """A selection (FUSED_CMP) takes two passes; equal constants in both branches take a copy's passes."""
        passes = row_passes(self.output, chip) if self.on_true == self.on_false else 2
        return elementwise_steps(self, self.output, passes, chip)
