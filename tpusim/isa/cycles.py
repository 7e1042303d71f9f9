"""How long one command takes: TIU cycles (hardware.md 5.1) and DMA nanoseconds (5.2), as TPU-MLIR's own profile counts.

L lanes, E elements of the widest operand per lane and step, P input channels of the conv array, A its output pixels.
cycles = ceil(operations / rate), with the waste of alignment counted as operations. Decision: no start-up; the profile
(`compiler_profile_*.txt` of 1.30.2, bm1684x and bm1688) has none. A command stands for all that theirs issue for it:
the lane copies, sums and requants around a product, the steps of a cast.
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
from tpusim.isa.layout import align, ceil_div, gmem_strides, lmem_strides
from tpusim.isa.region import View, is_packed, itemsize
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


def _steps(view: View, size: int, chip: ChipSpec) -> int:
    """Vector steps over a view whose elements are worked on as `size` bytes each."""
    vector = chip.eu_elements(size)
    return _padded_elements(view, chip, vector) // (vector * chip.lanes)


def _accumulated(output: View, chip: ChipSpec, *, bias: bool) -> int:
    """What follows integer products whose array has no requant: a sum takes two steps of 32 bits, a requant one."""
    return (3 if bias else 1) * _steps(output, 4, chip) if chip.conv_accumulators else 0


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
    packing = command.packing or depth
    taps = kh * kw * ceil_div(command.input.shape[1] // command.groups, packing)
    plane = n * ceil_div(oc, lanes) * ceil_div(oh * ow, pixels) * taps
    return plane * prod(rest) * prod(depths) + _after_products(command, chip)


def _after_products(command: Conv | Depthwise, chip: ChipSpec) -> int:
    """Bias and requant behind integer products; of 32-bit results the bias alone, and the relu."""
    bias = command.bias is not None
    if command.requant_table is not None or command.requant is not None:
        return _accumulated(command.output, chip, bias=bias)
    summed = bias and command.output.dtype == "i32"
    return 2 * (summed + (summed and command.relu)) * _steps(command.output, 4, chip)


def _matmul(command: MatMul, chip: ChipSpec) -> int:
    rows, inner = matrix_shape(command.left, command.left_transpose)
    lanes, _, depth, pixels = _array(chip, itemsize(command.left.dtype), inner)
    _, columns = matrix_shape(command.right, command.right_transpose)
    batch = max(1, command.output.elements // (rows * columns))
    if command.right_transpose and not command.left_transpose:  # columns over pixels, the inner axis over the depth
        steps = ceil_div(columns, pixels) * ceil_div(inner, depth)
    else:
        steps = ceil_div(columns, depth) * ceil_div(align(inner, depth), pixels)
    found = batch * ceil_div(rows, lanes) * steps
    if command.requant is None and not command.requants and command.multipliers is None:
        return found
    spread = 2 * ceil_div(columns, chip.eu_elements(4)) if command.bias is not None else 0
    return found + spread + _accumulated(command.output, chip, bias=command.bias is not None)


def _window_steps(output: View, strides: tuple[int, ...], size: int, chip: ChipSpec) -> int:
    """Steps of a PorD for one element of its window; strided columns are read in more than one."""
    n, c, *rest, oh, ow = output.shape
    vector = chip.eu_elements(size)
    once = n * ceil_div(c, chip.lanes) * ceil_div(oh * ow, vector) * prod(rest)
    return once * (chip.strided_window_steps if strides[-1] > 1 else 1)


def _depthwise(command: Depthwise, chip: ChipSpec) -> int:
    """PorD with weights; where products are summed up in 32 bits, bias and requant follow."""
    scaled = command.requant_table is not None or command.requant is not None
    size = 4 if scaled and chip.conv_accumulators else itemsize(command.output.dtype)
    steps = _window_steps(command.output, command.strides, size, chip)
    return steps * prod(command.kernel) + _after_products(command, chip)


def _pool(command: Pool, chip: ChipSpec) -> int:
    """One PorD; of a volume one per output depth and depth of the kernel, and AR to combine the depths."""
    size = itemsize(command.input.dtype)
    *depths, _, _ = command.kernel
    combined = _steps(command.output, size, chip) * (prod(depths) - 1)
    return _window_steps(command.output, command.strides, size, chip) * prod(command.kernel) + combined


def _elementwise(command: Arith | ChannelScale | Compare | Where, chip: ChipSpec) -> int:
    vector = _vector_length(command, chip)
    return _padded_elements(command.output, chip, vector) // (vector * chip.lanes)


def _select(command: Select, chip: ChipSpec) -> int:
    """Two AR: the product, and the selection."""
    vector = _vector_length(command, chip)
    return 2 * _padded_elements(command.output, chip, vector) // (vector * chip.lanes)


def _lut(command: Lut, chip: ChipSpec) -> int:
    """The table goes to all lanes; SG: one element per lane and cycle."""
    spread = 2 * ceil_div(command.table.nbytes, chip.eu_bytes)
    return spread + _padded_elements(command.output, chip, 1) // chip.lanes


def _requant(command: Rescale | ChannelRescale, chip: ChipSpec) -> int:
    vector = _vector_length(command, chip)
    return _padded_elements(command.output, chip, vector) // (vector * chip.lanes)


def _cast(command: Quantize | Dequantize, chip: ChipSpec) -> int:
    """Steps of the float type: one to it; from it the product and its sum, which f32 does in place, and the cast.

    Decision: an operand and a result in one bank, which doubles a step, are not counted.
    """
    vector = _vector_length(command, chip)
    steps = _padded_elements(command.output, chip, vector) // (vector * chip.lanes)
    if isinstance(command, Dequantize):
        return steps
    return steps * (chip.quantize_steps if itemsize(command.input.dtype) == 4 else 3)


def _lane_copy(command: LaneCopy, chip: ChipSpec) -> int:
    """Each channel for itself, once for every row of lanes that the copy reaches."""
    n, c, *plane = command.output.shape
    rows = ceil_div(max(command.input.lane, command.output.lane) % chip.lanes + c, chip.lanes)
    return n * c * rows * ceil_div(prod(plane) * itemsize(command.output.dtype), chip.eu_bytes)


def _function(command: Fn, chip: ChipSpec) -> int:
    """The sum of what the function is made of (DC-04)."""
    vector, steps = _vector_length(command, chip), command.function.made_of(len(command.inputs))
    elements = _padded_elements(command.inputs[0] if command.function.OVER_INPUT else command.output, chip, vector)
    rate = vector * chip.lanes
    return (
        steps.arithmetic * ceil_div(elements, rate)
        + steps.series * ceil_div(elements * (2 * _TAYLOR_TERMS - 1), 2 * rate)
        + steps.lookups * ceil_div(command.output.elements, chip.lanes)
        + steps.requants * ceil_div(elements, rate)
    )


def _message(command: SendMessage | WaitMessage, chip: ChipSpec) -> int:
    """Decision: one cycle; what a barrier of the cores really costs is not known."""
    return 1


_TIU: dict[type[Command], Callable[[Any, ChipSpec], int]] = {
    Conv: _conv,
    Depthwise: _depthwise,
    Pool: _pool,
    MatMul: _matmul,
    Arith: _elementwise,
    Compare: _elementwise,
    Where: _elementwise,
    Rescale: _requant,
    ChannelRescale: _requant,
    Quantize: _cast,
    Dequantize: _cast,
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


def _common_run(one: View, other: View, chip: ChipSpec) -> int:
    """Bytes of the runs that are contiguous on both sides of a copy."""
    strides = [lmem_strides(v, chip) if v.laned else gmem_strides(v) for v in (one, other)]
    run = 1
    for axis in sorted(range(len(one.shape)), key=lambda a: (strides[1][a], -a)):
        size = one.shape[axis]
        if size == 1:
            continue
        if any(s[axis] != run for s in strides) or (axis == 1 and (one.laned or other.laned)):
            break
        run *= size
    return run * itemsize(one.dtype)


def _by_runs(size: int, run: int, chip: ChipSpec) -> float:
    """Bytes that runs cost as much as; where short ones cost as much as long ones, few pages have few channels."""
    if not chip.dma_run_bytes:
        return ceil_div(size, run) * align(run, chip.dma_burst_bytes)
    pages = max(1, ceil_div(size - chip.dma_rest_bytes, chip.dma_page_bytes))
    charged = max(size, ceil_div(size, run) * chip.dma_run_bytes)
    return charged * chip.dma_channels / min(pages, chip.dma_channels)


def _transfer_ns(direction: str, moved: float, chip: ChipSpec) -> float:
    return chip.latency_ns(direction) + moved / float(getattr(chip.bandwidth, direction))


def _system_copy_ns(command: Move, chip: ChipSpec) -> float:
    """A copy in global memory, by runs that are contiguous on both sides.

    Or it goes through local memory, where its elements are put in order. Decision: two of them in a cycle; upstream's
    transpositions take between a half and one cycle for each.
    """
    size = command.input.nbytes
    direct = _transfer_ns("s2s", _by_runs(size, _common_run(command.input, command.output, chip), chip), chip)
    there, back = (_transfer_ns(way, _by_runs(size, size, chip), chip) for way in ("s2l", "l2s"))
    return min(direct, there + back + command.output.elements / 2 * 1000 / chip.tiu_mhz)


def traffic(command: Command) -> tuple[int, int]:
    """(bytes loaded from, bytes stored to) global memory: payload, without padding."""
    if isinstance(command, GlobalKernel):
        return command.load_bytes, command.store_bytes
    if isinstance(command, Move | Fill):
        load = sum(view.nbytes for view in command.reads() if view.memory == "gmem")
        return load, sum(view.nbytes for view in command.writes() if view.memory == "gmem")
    return 0, 0


def dma_ns(command: Move | Fill, chip: ChipSpec) -> float:
    """DMA time: latency + bytes / bandwidth of the direction; a fill counts as l2l (local memory) or l2s (global).

    Runs of local memory count where short ones cost as much as long ones.
    """
    if chip.cycle_model == "cv18xx":
        return cycles_cv18xx.dma_ns(command, chip)
    system = [view for _, view in command.operands() if view.memory == "gmem"]
    plain = all(view.interleave == 1 and not is_packed(view.dtype) for _, view in command.operands())
    if isinstance(command, Move) and plain and len(system) > 1:
        return _system_copy_ns(command, chip)
    direction = command.direction if isinstance(command, Move) else "l2s" if system else "l2l"
    if isinstance(command, Move) and plain and chip.dma_run_bytes:
        run = _common_run(command.input, command.output, chip)
        return _transfer_ns(direction, _by_runs(command.input.nbytes, run, chip), chip)
    moved = max((_burst_bytes(view, chip) for view in system), default=command.output.nbytes)
    return _transfer_ns(direction, moved, chip)


def kernel_dma_ns(command: GlobalKernel, chip: ChipSpec) -> float:
    """DMA time of a global kernel: its loads and stores, one latency each per tile (DL-06)."""
    load, store = (chip.kernel_gbs or rate for rate in (chip.bandwidth.s2l, chip.bandwidth.l2s))
    waits = command.tiles * (chip.latency_ns("s2l") + chip.latency_ns("l2s"))
    return waits + command.load_bytes / load + command.store_bytes / store


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
