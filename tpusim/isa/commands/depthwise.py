"""Depthwise convolution (PorD): its command, legality and cycles."""

from math import prod

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need, PerChannel
from tpusim.isa.commands.filters import ALIGNMENTS, COEFFICIENT_RULES, FILTER_RULES, after_products, coefficients
from tpusim.isa.commands.requant import Requant
from tpusim.isa.commands.window import Window
from tpusim.isa.finding import Finding
from tpusim.isa.layout import ceil_div, sum_bytes
from tpusim.isa.multiplications import of_convolution, of_transposed
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import limits, window_steps


class Depthwise(Command, frozen=True, tag="depthwise"):
    """Depthwise convolution (PorD): Conv with groups = ic = oc and the filter (1, c, 1, kh*kw) or (1, c, kh, kw)."""

    inputs_ = ("input", "filter", "bias", "requant_table")
    local_rules = COEFFICIENT_RULES
    rules = FILTER_RULES
    one_lane = True
    one_kind = ("input", "filter", "bias", "output")
    product = True
    alignments = ALIGNMENTS

    input: View
    filter: View
    output: View
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    inserts: tuple[int, int] = (0, 0)
    rotate: bool = False
    turned: bool = False
    bias: View | None = None
    requant_table: View | None = None
    requant: Requant | None = None
    pad_value: int = 0
    relu: bool = False
    relu_limit: float = -1.0

    def fused_requants(self) -> tuple[Requant, ...]:
        """The requant for all channels, if it has one."""
        return () if self.requant is None else (self.requant,)

    def needs(self) -> tuple[Need, ...]:
        """A requant table needs a chip with multipliers."""
        return (Need("requant_table", "no requant table", "one"),) * (self.requant_table is not None)

    def per_channel(self, chip: ChipSpec) -> list[PerChannel]:
        """Bias and requant table."""
        return coefficients(self, chip)

    def least_work(self, chip: ChipSpec) -> int:
        """32-bit sums before a table's requants, once more than CONV, and its filter (layer_group.md 9.3)."""
        table = self.requant_table
        if table is None or table.dtype != "i32" or not chip.conv_accumulators or self.rotate:
            return 0
        taps = ceil_div(self.output.shape[1], chip.lanes) * prod(self.kernel)
        return 2 * sum_bytes(self.output, chip) + taps

    @property
    def transposed(self) -> bool:
        """Whether the kernel is turned by 180 degrees."""
        return self.rotate

    @property
    def window(self) -> Window:
        """The kernel, over the widened and padded input."""
        return Window(self.kernel, self.strides, self.pads, self.dilations, self.inserts)

    def channel_misfit(self) -> Finding | None:
        """Why the channels of input and output differ; None if they do not."""
        channels, outputs = self.input.shape[1], self.output.shape[1]
        if channels == outputs:
            return None
        return Finding(f"{outputs} input channels", str(channels), "depthwise keeps the channels")

    def filter_shapes(self, chip: ChipSpec) -> list[tuple[int, ...]]:
        """The shape of the whole filter, then that of a part of it."""
        outputs, part = self.output.shape[1], (1, self.output.shape[1], *self.kernel)
        return [part] if chip.ic_parallel_bytes == 0 else [(1, outputs, 1, prod(self.kernel)), part]

    def multiplications(self, outputs: int, inputs: int, depth: int = 1) -> int:
        """One per tap and output; if transposed, per tap and input."""
        kernel = (depth, *self.kernel)
        return of_transposed(inputs, 1, kernel) if self.rotate else of_convolution(outputs, 1, kernel)

    def cycles(self, chip: ChipSpec) -> int:
        """A PorD with weights; if products are summed in 32 bits, bias and requant are separate steps."""
        scaled = self.requant_table is not None or self.requant is not None
        size = 4 if scaled and chip.conv_accumulators else itemsize(self.output.dtype)
        once = window_steps(self.output, self.strides, size, chip)
        views = (view for _, view in self.operands())
        relu = limits(views, self.output, chip, relu=self.relu, above=self.relu_limit >= 0)
        return once * prod(self.kernel) + after_products(self, chip) + relu
