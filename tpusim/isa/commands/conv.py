"""Convolution (CONV): its command, legality and cycles."""

from math import prod

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need, PerChannel
from tpusim.isa.commands.filters import ALIGNMENTS, COEFFICIENT_RULES, FILTER_RULES, after_products, coefficients
from tpusim.isa.commands.requant import Requant
from tpusim.isa.commands.window import Window
from tpusim.isa.finding import Finding
from tpusim.isa.layout import align, ceil_div, sum_bytes
from tpusim.isa.multiplications import of_convolution, of_transposed
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import array, limits

_ONES = 6
"""Cycles that make the ones of a shifting PorD for one channel (F-24)."""
_F32_BYTES = 4


def conv_input_lane(command: "Conv", chip: ChipSpec) -> Finding | None:
    """The input of an 8- or 16-bit CONV starts at lane 0."""
    if itemsize(command.input.dtype) == _F32_BYTES or command.input.lane == 0:
        return None
    return Finding("input at lane 0", f"lane {command.input.lane}", "copy it with LaneCopy")


def sums_that_go_on(command: "Conv", chip: ChipSpec) -> Finding | None:
    """Only an output that is an accumulator, int32 or f32 without requant, may be added to."""
    if not command.accumulate:
        return None
    if command.output.dtype in ("i32", "f32") and command.requant is None and command.requant_table is None:
        return None
    fused = "with" if command.requant is not None or command.requant_table is not None else "without"
    got = f"{command.output.dtype} {fused} requant"
    return Finding("an i32 or f32 output without requant", got, "accumulate in 32 bits and requant afterwards")


class Conv(Command, frozen=True, tag="conv"):
    """2-D convolution (CONV), optional bias, requant and relu in one command; 3-D as the body of a global kernel.

    input: (n, ic, h, w) int8/uint8/f32; padded by pads (top, left, bottom, right) with `pad_value`, after `inserts`
        values `pad_value` were inserted between its rows and columns (a transposed convolution, hardware.md 4).
    filter: (1, oc, 1, K) with K = AL(ic/groups, P)*kh*kw; element (ic, k) at (ic div P)*(kh*kw*P) + k*P + ic mod P,
        k = kh_i*kw + kw_i, P the chip's filter packing for the element size (hardware.md 2.3).
    merged: axes of the kernel (0: h, 1: w) that are stored in the filter's input channels, innermost: channel ic*m + i
        has position i of the m along these axes, and k counts the other axes (hardware.md 2.4). spread: the load of
        the input already copied it to all lanes that need it, so no lane copies are needed.
    rotate: the kernel is turned by 180 degrees, position k of the window meets entry (last k) - k. turned: it is stored
        that way, so that position k meets entry k.
    3-D: (n, ic, d, h, w), three entries in kernel, strides, dilations and inserts, six pads (befores, then afters),
        k = (kd_i*kh + kh_i)*kw + kw_i. The library runs one 2-D CONV per output depth and kd_i and accumulates them in
        32 bits: in the result itself if that is int32 or f32, else in the work buffer of layer_group.md 9.3. In local
        memory these are separate commands; the filter of one depth may then be a window of the whole filter, read as
        (1, oc, AL(ic/groups, P)/P, kh*kw*P).
    If the window is computed in parts (codegen.md DC-09), the filter of a part is also a window of the whole filter,
        read as (AL(ic/groups, P)/P, oc, kh, kw*P).
    accumulate: the previous output, int32 or f32, is added to the accumulator; no requant is allowed then.
    bias: (1, oc, 1, 1) int32 (int16 on a chip without multipliers, f32), added to the accumulator.
    requant_table: (1, oc, 1, 3) int32: multiplier, -rshift, zero point per channel; (1, oc, 1, 2) on chips that pack
        the last two as (-rshift & 0xff) | zero point << 16; or `requant`, one for all. As rows of channels
        (1, oc, 1, 9) bytes: int32 bias, int32 multiplier, int8 shift, a QDM requant; (1, oc, 1, 5) without bias.
    Without a packing width the filter is (1, oc, kh*kw, P) and an f32 bias two planes of 16 bits, (2, oc, 1, 1): the
        upper halves, then the lower ones (hardware.md 2.3).
    Integers: sat(relu(RSR(acc + bias))) with relu at the zero point, after the requant (numerics.md 9.1).
    Without any requant the accumulator itself is written (int32, or f32 with relu).
    """

    inputs_ = ("input", "filter", "bias", "requant_table")
    local_rules = (conv_input_lane, *COEFFICIENT_RULES)
    rules = (*FILTER_RULES, sums_that_go_on)
    four_bits = ("filter",)
    one_kind = ("input", "filter", "bias", "output")
    product = True
    alignments = ALIGNMENTS

    input: View
    filter: View
    output: View
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    inserts: tuple[int, ...] = (0, 0)
    rotate: bool = False
    turned: bool = False
    groups: int = 1
    bias: View | None = None
    requant_table: View | None = None
    requant: Requant | None = None
    pad_value: int = 0
    relu: bool = False
    relu_limit: float = -1.0
    packing: int = 0
    """P of this filter if it differs from the chip's (a computed filter); 0: the chip's."""
    merged: tuple[int, ...] = ()
    spread: bool = False
    accumulate: bool = False

    def reads(self) -> tuple[View, ...]:
        """The operands, and the output if the command adds to it."""
        return (*super().reads(), self.output) if self.accumulate else super().reads()

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
        """32-bit sums before a table's requants (layer_group.md 9.3)."""
        table = self.requant_table
        if table is None or table.dtype != "i32" or not (chip.conv_accumulators or self.merged) or self.rotate:
            return 0
        return sum_bytes(self.output, chip)

    @property
    def transposed(self) -> bool:
        """Whether the kernel is turned by 180 degrees."""
        return self.rotate

    @property
    def window(self) -> Window:
        """The kernel, over the widened and padded input."""
        return Window(self.kernel, self.strides, self.pads, self.dilations, self.inserts)

    def channel_misfit(self) -> Finding | None:
        """Why groups or merged axes of the kernel do not fit the channels; None if they do."""
        channels, outputs = self.input.shape[1], self.output.shape[1]
        if self.merged and (len(self.kernel) != 2 or self.groups != 1):  # noqa: PLR2004  h and w
            got = f"a kernel {self.kernel} of {self.groups} groups"
            return Finding("a kernel of two axes and one group to merge", got, "give no merged axes")
        if channels % self.groups or outputs % self.groups:
            got = f"{channels} to {outputs} channels"
            return Finding(f"channels that {self.groups} groups divide", got, "correct groups")
        return None

    def filter_shapes(self, chip: ChipSpec) -> list[tuple[int, ...]]:
        """The shape of the whole filter, then those of parts of it."""
        outputs, rows = self.output.shape[1], chip.ic_parallel_bytes == 0
        inside = prod(self.kernel[axis] for axis in self.merged)
        each, taps = self.input.shape[1] // self.groups * inside, prod(self.kernel) // inside
        packing = self.packing or chip.filter_packing(itemsize(self.filter.dtype), each, self.groups)
        row = align(each, packing)
        if rows:
            return [(1, outputs, taps, row) if not self.packing else (1, outputs, 1, row * taps)]
        *some, last = self.kernel
        blocks = row // packing
        return [
            (1, outputs, 1, row * taps),
            (1, outputs, blocks, taps * packing),
            (blocks, outputs, *some, last * packing),
        ]

    def multiplications(self, outputs: int, inputs: int, depth: int = 1) -> int:
        """One per tap, output and input channel of the group; if transposed, per tap, input and output channel."""
        kernel = (depth, *self.kernel)
        if self.rotate:
            return of_transposed(inputs, self.output.shape[1] // self.groups, kernel)
        return of_convolution(outputs, self.input.shape[1] // self.groups, kernel)

    @property
    def depths(self) -> int:
        """Taps along the depth of a volume's filter, of which this 2-D command reads one (a window of its rows)."""
        view = self.filter
        row = view.elements // view.shape[1]
        return 1 if view.strides is None else view.strides[1] // row

    def cycles(self, chip: ChipSpec) -> int:
        """One 2-D CONV; a volume has one for each output depth and kernel depth.

        Inserted elements are multiplied like any other, so a transposed convolution costs its output times its kernel.
        """
        n, oc, *rest, oh, ow = self.output.shape
        *depths, kh, kw = self.kernel
        channels = self.input.shape[1] // self.groups
        lanes, _, depth, pixels = array(chip, itemsize(self.input.dtype), channels)
        inside = prod(self.kernel[axis] for axis in self.merged)
        taps = kh * kw // inside * ceil_div(channels * inside, self.packing or depth)
        rows = self.groups * ceil_div(oc // self.groups, lanes)
        plane = n * rows * ceil_div(oh * ow, pixels) * taps
        more = _merging(self, chip) + _brought(self, channels, chip) + after_products(self, chip)
        views = (view for _, view in self.operands())
        relu = limits(views, self.output, chip, relu=self.relu, above=self.relu_limit >= 0)
        return plane * prod(rest) * prod(depths) + more + relu


def _brought(command: Conv, channels: int, chip: ChipSpec) -> int:
    """Lane copies that bring the input of each channel group to the first lanes, unless it already starts at lane 0.

    Copies of f32 take no time in TPU-MLIR's profile.
    """
    if itemsize(command.input.dtype) == _F32_BYTES:
        return 0
    away = sum(group * channels % chip.lanes != 0 for group in range(command.groups))
    n, _, *plane = command.input.shape
    steps = ceil_div(prod(plane) * itemsize(command.input.dtype), chip.eu_bytes)
    return away * n * channels * ceil_div(channels, chip.lanes) * steps


def _merging(command: Conv, chip: ChipSpec) -> int:
    """Cycles to merge a kernel's axes into channels: lane copies of the channels, then a PorD of ones that shifts them.

    A load makes these copies on the way; the result of an op is copied channel by channel, the last channel in two
    steps, the others in one.
    """
    if not (axes := command.merged):
        return 0
    n, ic, ih, iw = command.input.shape
    inside = prod(command.kernel[axis] for axis in axes)
    shifted = [command.output.shape[2 + axis] if axis in axes else (ih, iw)[axis] for axis in (0, 1)]
    vector, rows = chip.eu_elements(itemsize(command.input.dtype)), ceil_div(ic * inside, chip.lanes)
    strided = 1 in axes and command.strides[-1] > 1
    steps = n * rows * ceil_div(prod(shifted), vector) * (chip.strided_window_steps if strided else 1)
    copied = 0 if command.spread else n * (ic + 1) * ceil_div(ih * iw, vector)
    return copied + _ONES + inside * (ic - 1) + inside * steps
