"""Common to convolution and depthwise convolution: filters, coefficients, and the steps after the products."""

from typing import TYPE_CHECKING, TypeAlias

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import PerChannel
from tpusim.isa.commands.window import window_ranges, windows
from tpusim.isa.finding import Finding, Rule, first
from tpusim.isa.steps import accumulated, steps

if TYPE_CHECKING:
    from tpusim.isa.commands.conv import Conv
    from tpusim.isa.commands.depthwise import Depthwise

    Convolution: TypeAlias = Conv | Depthwise

_COEFFICIENTS = ("filter", "bias", "requant_table")


def coefficient_lanes(command: "Convolution", chip: ChipSpec) -> Finding | None:
    """Filter, bias and requant table of a convolution start at the lane of its output."""
    return first(
        Finding(f"{name} at the output's lane {command.output.lane}", f"lane {view.lane}", "load it at that lane")
        for name, view in command.local_operands()
        if name in _COEFFICIENTS and view.lane != command.output.lane
    )


def conv_channels(command: "Convolution", chip: ChipSpec) -> Finding | None:
    """A convolution has at most the chip's number of input and output channels."""
    most = max(command.input.shape[1], command.output.shape[1])
    if most <= chip.max_conv_channels:
        return None
    return Finding(f"at most {chip.max_conv_channels} channels", str(most), "split the channels")


def filters(command: "Convolution", chip: ChipSpec) -> Finding | None:
    """A filter is (1, oc, 1, K): K = AL(ic/groups, P)*taps for CONV, taps for depthwise (hardware.md 2.3).

    On a chip without a packing width these are (1, oc, taps, P), P the input channels of a group, and (1, oc, kh, kw).
    Windows of a filter: one depth of a volume's filter is (1, oc, K/(taps*P), taps*P); some rows and columns are
    (K/(taps*P), oc, kh, kw*P), of a depthwise filter (1, oc, kh, kw). Merged axes of the kernel count as
    input channels, not as taps; volumes and several groups allow none (2.4).
    """
    if (found := command.channel_misfit()) is not None:
        return found
    wanted, *windows = command.filter_shapes(chip)
    if command.filter.shape in (wanted, *windows):
        return None
    return Finding(f"filter {wanted}", str(command.filter.shape), "pack the filter for this chip")


ALIGNMENTS = {"bias": 4, "requant_table": 8}
"""Coefficient -> its address is a multiple of this many bytes."""
COEFFICIENT_RULES: tuple[Rule, ...] = (coefficient_lanes, window_ranges, conv_channels)
"""Rules of local memory."""
FILTER_RULES: tuple[Rule, ...] = (windows, filters)
"""Rules that also apply to global kernels."""


def coefficients(command: "Convolution", chip: ChipSpec) -> list[PerChannel]:
    """Bias and requant table per channel of the result."""
    channels, bias, table = command.output.shape[1], command.bias, command.requant_table
    one = (2 if bias is not None and bias.dtype == "u16" else 1, channels, 1, 1)
    if chip.hardware.coefficients != "channel_rows":
        row = PerChannel("requant_table", table, (1, channels, 1, chip.requant_words), "i32")
    else:
        width = 5 if table is not None and table.shape[-1] == 5 else 9
        row = PerChannel("requant_table", table, (1, channels, 1, width), "u8")
    return [PerChannel("bias", bias, one), row]


def after_products(command: "Convolution", chip: ChipSpec) -> int:
    """Cycles of bias and requant after integer products; a 32-bit result has only the bias and the relu."""
    bias = command.bias is not None
    if command.requant_table is not None or command.requant is not None:
        return accumulated(command.output, chip, bias=bias)
    summed = bias and command.output.dtype == "i32"
    return 2 * (summed + (summed and command.relu)) * steps(command.output, 4, chip)
