"""How long one command takes: TIU cycles (hardware.md 5.1, DH-07) and DMA nanoseconds (5.2, DH-08).

L lanes, E elements of the widest operand per lane and step, P input channels of the conv array, A its output pixels.
cycles = start-up + ceil(operations / rate), with the waste of alignment counted as operations; start-ups of BM1688.
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
from tpusim.isa import cycles_cv18xx
from tpusim.isa.blocks import blocks, contiguous_runs
from tpusim.isa.commands import (
    AnyCommand,
    Arith,
    ChannelRescale,
    ChannelScale,
    Command,
    Compare,
    Conv,
    Depthwise,
    Dequantize,
    DmaSendMessage,
    DmaWaitMessage,
    Fill,
    Fn,
    GlobalKernel,
    LaneCopy,
    Lut,
    MatMul,
    Move,
    Pool,
    Quantize,
    Rescale,
    Select,
    SendMessage,
    WaitMessage,
    Where,
)
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.shapes import matrix_shape

_TAYLOR_TERMS = 10
"""Decision: terms of the SFU's exp and log series; the operation count is 2*terms - 1 (hardware.md 5.1)."""


class _Array(NamedTuple):
    """Widths of the multiplier array for one element type."""

    lanes: int
    vector: int
    depth: int
    pixels: int


def _array(chip: ChipSpec, size: int, channels: int) -> _Array:
    """P and A of the chip; f32 runs on the vector units: P = 1, A = E."""
    vector = chip.eu_elements(size)
    pixels = {4: vector, 2: chip.cube_pixels * 2 // chip.half_mac_divisor}.get(size, chip.cube_pixels)
    return _Array(chip.lanes, vector, chip.filter_packing(size, channels), pixels)


def peak_macs(size: int, chip: ChipSpec) -> int:
    """Multiply-accumulates of all lanes per TIU cycle at most, for elements of `size` bytes."""
    if chip.cycle_model == "cv18xx":
        return cycles_cv18xx.peak_macs(size, chip)
    lanes, _, depth, pixels = _array(chip, size, 1)
    return lanes * depth * pixels


def _cycles(start_up: int, operations: int, rate: int) -> int:
    return start_up + ceil_div(operations, rate)


def _vector_length(command: Command, chip: ChipSpec) -> int:
    """E for the widest operand."""
    return chip.eu_elements(max(itemsize(view.dtype) for _, view in command.operands()))


def _padded_elements(view: View, chip: ChipSpec, vector: int) -> int:
    """Product n * AL(c, L) * AL(h*w, E): elements that whole vector steps of all lanes process."""
    if len(view.shape) != 4:
        return align(view.elements, chip.lanes * vector)
    n, c, h, w = view.shape
    return n * align(c, chip.lanes) * align(h * w, vector)


def _conv(command: Conv, chip: ChipSpec) -> int:
    """One 2-D CONV; of a volume one per output depth and depth of the kernel.

    Inserted elements are multiplied like any other, so a transposed convolution costs its output times its kernel.
    """
    n, oc, *rest, oh, ow = command.output.shape
    *depths, kh, kw = command.kernel
    lanes, _, depth, pixels = _array(chip, itemsize(command.input.dtype), command.input.shape[1] // command.groups)
    terms = align(command.input.shape[1] // command.groups, depth) * kh * kw
    per_output = 2 * terms - 1 + (command.bias is not None)
    plane = _cycles(23, n * align(oc, lanes) * align(oh * ow, pixels) * per_output, 2 * lanes * depth * pixels)
    return plane * prod(rest) * prod(depths)


def _matmul(command: MatMul, chip: ChipSpec) -> int:
    rows, inner = matrix_shape(command.left, command.left_transpose)
    lanes, _, depth, pixels = _array(chip, itemsize(command.left.dtype), inner)
    _, columns = matrix_shape(command.right, command.right_transpose)
    batch = max(1, command.output.elements // (rows * columns))
    start_up = {0: 81, 1: 56, 2: 37}[command.left_transpose + command.right_transpose]
    operations = 2 * batch * align(rows, lanes) * align(columns, depth) * align(inner, pixels)
    return _cycles(start_up, operations, 2 * depth * pixels * lanes)


def _window(command: Depthwise | Pool, chip: ChipSpec) -> int:
    """One PorD; of a volume one per output depth and depth of the kernel, and AR to combine the depths."""
    vector = chip.eu_elements(itemsize(command.input.dtype))
    factor = 2 if isinstance(command, Depthwise) else 1
    *depths, kh, kw = command.kernel
    n, c, *rest, oh, ow = command.output.shape
    elements = n * align(c, chip.lanes) * align(oh * ow, vector)
    one = _cycles(10, elements * max(1, 2 * kh * kw - 1), factor * vector * chip.lanes)
    combined = _cycles(11, elements, vector * chip.lanes) * (prod(depths) - 1)
    return prod(rest) * (one * prod(depths) + combined)


def _elementwise(command: Arith | ChannelScale | Compare | Where, chip: ChipSpec) -> int:
    vector = _vector_length(command, chip)
    return _cycles(11, _padded_elements(command.output, chip, vector), vector * chip.lanes)


def _select(command: Select, chip: ChipSpec) -> int:
    """Two AR: the product, and the selection."""
    vector = _vector_length(command, chip)
    return _cycles(11, 2 * _padded_elements(command.output, chip, vector), vector * chip.lanes)


def _lut(command: Lut, chip: ChipSpec) -> int:
    """SG: one element per lane and cycle."""
    return _cycles(11, _padded_elements(command.output, chip, 1), chip.lanes)


def _requant(command: Rescale | ChannelRescale | Quantize | Dequantize, chip: ChipSpec) -> int:
    vector = _vector_length(command, chip)
    return _cycles(11, 3 * _padded_elements(command.output, chip, vector), 3 * vector * chip.lanes)


def _lane_copy(command: LaneCopy, chip: ChipSpec) -> int:
    return _cycles(27, command.output.elements, max(1, chip.eu_bytes // itemsize(command.output.dtype)))


def _function(command: Fn, chip: ChipSpec) -> int:
    """The sum of what the function is made of (DC-04)."""
    vector, steps = _vector_length(command, chip), command.function.made_of(len(command.inputs))
    elements = _padded_elements(command.inputs[0] if command.function.OVER_INPUT else command.output, chip, vector)
    rate = vector * chip.lanes
    return (
        steps.arithmetic * _cycles(11, elements, rate)
        + steps.series * _cycles(0, elements * (2 * _TAYLOR_TERMS - 1), 2 * rate)
        + steps.lookups * _cycles(11, command.output.elements, chip.lanes)
        + steps.requants * _cycles(11, elements, rate)
    )


def _message(command: SendMessage | WaitMessage, chip: ChipSpec) -> int:
    """Decision: one cycle; what a barrier of the cores really costs is not known."""
    return 1


_TIU: dict[type[Command], Callable[[Any, ChipSpec], int]] = {
    Conv: _conv,
    Depthwise: _window,
    Pool: _window,
    MatMul: _matmul,
    Arith: _elementwise,
    Compare: _elementwise,
    Where: _elementwise,
    Rescale: _requant,
    ChannelRescale: _requant,
    Quantize: _requant,
    Dequantize: _requant,
    ChannelScale: _elementwise,
    Select: _select,
    Lut: _lut,
    LaneCopy: _lane_copy,
    Fn: _function,
    SendMessage: _message,
    WaitMessage: _message,
}


def tiu_cycles(command: Command, chip: ChipSpec) -> int:
    """TIU cycles of a compute command. Raises CommandError for a class without an entry."""
    if chip.cycle_model == "cv18xx":
        return cycles_cv18xx.tiu_cycles(command, chip)
    cost = _TIU.get(type(command))
    if cost is None:
        raise CommandError(f"{command.label}: no TIU cycle formula; add one to tpusim/isa/cycles.py")
    return cost(command, chip)


def _burst_bytes(view: View, chip: ChipSpec) -> int:
    """Bytes of a GMEM view with every contiguous run rounded up to whole DDR bursts."""
    runs = [contiguous_runs(block, itemsize(view.dtype), chip.dma_burst_bytes) for block in blocks(view, chip)]
    return sum(count * align(run, chip.dma_burst_bytes) for count, run in runs)


def traffic(command: Command) -> tuple[int, int]:
    """(bytes loaded from, bytes stored to) global memory: payload, without padding."""
    if isinstance(command, GlobalKernel):
        return command.load_bytes, command.store_bytes
    if isinstance(command, Move | Fill):
        load = sum(view.nbytes for view in command.reads() if view.memory == "gmem")
        return load, sum(view.nbytes for view in command.writes() if view.memory == "gmem")
    return 0, 0


def dma_ns(command: Move | Fill, chip: ChipSpec) -> float:
    """DMA time: latency + bytes / bandwidth of the direction; a fill counts as l2l (local memory) or l2s (global)."""
    if chip.cycle_model == "cv18xx":
        return cycles_cv18xx.dma_ns(command, chip)
    system = [view for _, view in command.operands() if view.memory == "gmem"]
    moved = max((_burst_bytes(view, chip) for view in system), default=command.output.nbytes)
    filled = "l2s" if system else "l2l"
    direction = command.direction if isinstance(command, Move) else filled
    return chip.dma_latency_ns + moved / float(getattr(chip.bandwidth, direction))


def kernel_dma_ns(command: GlobalKernel, chip: ChipSpec) -> float:
    """DMA time of a global kernel: its loads and stores, one latency each per tile (DL-06)."""
    transfer = command.load_bytes / chip.bandwidth.s2l + command.store_bytes / chip.bandwidth.l2s
    return 2 * command.tiles * chip.dma_latency_ns + transfer


def command_ns(command: AnyCommand, chip: ChipSpec) -> float:
    """How long a command keeps its engine busy; a global kernel both, for the longer of its two times (DL-06).

    On a chip whose engines do not overlap a global kernel takes the sum of its times.
    """
    if isinstance(command, Move | Fill):
        return dma_ns(command, chip)
    if isinstance(command, DmaSendMessage | DmaWaitMessage):
        return 1000 / chip.dma_mhz
    if isinstance(command, GlobalKernel):
        compute, transfer = tiu_cycles(command.body, chip) * 1000 / chip.tiu_mhz, kernel_dma_ns(command, chip)
        return max(compute, transfer) if chip.engines_overlap else compute + transfer
    return tiu_cycles(command, chip) * 1000 / chip.tiu_mhz
