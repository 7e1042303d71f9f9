"""How long one command takes: TIU cycles (hardware.md 5.1) as TPU-MLIR's profile counts (U-87); transfers elsewhere.

L lanes, E elements of the widest operand per lane and step, P input channels of the conv array, A its output pixels.
cycles = ceil(operations / rate), with the waste of alignment counted as operations. Decision: no start-up; the profile
(`compiler_profile_*.txt`, bm1684x and bm1688) has none. A command stands for all that theirs issue for it:
the lane copies, sums and requants around a product, the steps of a cast.
"""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
from tpusim.isa import cycles_cv18xx
from tpusim.isa.commands import (
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
    HostCall,
    LaneCopy,
    Lut,
    MatMul,
    Move,
    Pick,
    Pool,
    Quantize,
    Rescale,
    Select,
    SendMessage,
    WaitMessage,
    Where,
)
from tpusim.isa.flash import flash_cycles
from tpusim.isa.functions import FlashMix, FlashScores, Interp, Reduce, Softmax, SoftmaxInt, Upsample
from tpusim.isa.interpolation import interpolation_cycles
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.matrices import lane_columns, row_steps, runs_on_vectors
from tpusim.isa.region import View, itemsize
from tpusim.isa.shapes import FLOATS, matrix_shape
from tpusim.isa.softmax import DIVISION_STEPS, softmax_cycles
from tpusim.isa.transfers import dma_ns, fills_lanes, kernel_dma_ns, kernel_tiles

_ONES = 6
"""Cycles that make the ones of a shifting PorD for one channel (F-24)."""
_TAYLOR_TERMS = 10
"""Decision: terms of the SFU's exp and log series; the operation count is 2*terms - 1 (hardware.md 5.1)."""
_ROOT = 40
"""Steps of a root: its series, two sums and three selections, in f32 (F-21)."""
_WHOLE_ROW = 4
"""Elements of a row that lies on one line of local memory, as a rule."""
_SHIFTED_STEPS, _OFFSET_STEPS = 5, 7
"""Steps of a cast from f32 to integers with a zero point (F-22), and of a mean of integers with one after its window
(F-23)."""


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
    """E of hardware.md: elements per lane and cycle for the widest operand."""
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
    channels = command.input.shape[1] // command.groups
    lanes, _, depth, pixels = _array(chip, itemsize(command.input.dtype), channels)
    inside = prod(command.kernel[axis] for axis in command.merged)
    taps = kh * kw // inside * ceil_div(channels * inside, command.packing or depth)
    rows = command.groups * ceil_div(oc // command.groups, lanes)
    plane = n * rows * ceil_div(oh * ow, pixels) * taps
    beside = _merging(command, chip) + _brought(command, channels, chip) + _after_products(command, chip)
    return plane * prod(rest) * prod(depths) + beside


def _brought(command: Conv, channels: int, chip: ChipSpec) -> int:
    """Lane copies that bring the input of every channel group to the first lanes, as far as it is not there.

    Of f32 they take no time in the real profile.
    """
    if itemsize(command.input.dtype) == 4:  # noqa: PLR2004  bytes of f32
        return 0
    away = sum(group * channels % chip.lanes != 0 for group in range(command.groups))
    n, _, *plane = command.input.shape
    steps = ceil_div(prod(plane) * itemsize(command.input.dtype), chip.eu_bytes)
    return away * n * channels * ceil_div(channels, chip.lanes) * steps


def _merging(command: Conv, chip: ChipSpec) -> int:
    """What puts a kernel's axes into channels: each goes to as many lanes, then a depthwise PorD of ones shifts them.

    A load spreads its tensor on its way; what an op made is spread by a lane copy of every channel, the last in two
    steps where others take one.
    """
    if not (axes := command.merged):
        return 0
    n, ic, ih, iw = command.input.shape
    inside = prod(command.kernel[axis] for axis in axes)
    shifted = [command.output.shape[2 + axis] if axis in axes else (ih, iw)[axis] for axis in (0, 1)]
    vector, rows = chip.eu_elements(itemsize(command.input.dtype)), ceil_div(ic * inside, chip.lanes)
    steps = n * rows * ceil_div(prod(shifted), vector) * (chip.strided_window_steps if _strides(command) else 1)
    spread = 0 if command.spread else n * (ic + 1) * ceil_div(ih * iw, vector)
    return spread + _ONES + inside * (ic - 1) + inside * steps


def _strides(command: Conv) -> bool:
    """Whether the shifting PorD reads strided columns."""
    return 1 in command.merged and command.strides[-1] > 1


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
    if command.of_tile and runs_on_vectors(command):
        width = lane_columns(rows, columns, chip).right
        passes = inner + (command.bias is not None) + 2 * command.relu
        return batch * rows * row_steps(columns, width, chip) * passes
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
    if (folded := _folded_plane(command, size, chip)) is not None:
        return folded
    if size == 1 and command.mode == "avg" and command.offset:
        wide = _window_steps(command.output, command.strides, 4, chip) * prod(command.kernel)
        return wide + _OFFSET_STEPS * _steps(command.output, 4, chip)
    *depths, _, _ = command.kernel
    combined = _steps(command.output, size, chip) * (prod(depths) - 1)
    windows = _window_steps(command.output, command.strides, size, chip) * prod(command.kernel)
    return windows + combined + _borders(command, max(size, 2), chip)


def _borders(command: Pool, size: int, chip: ChipSpec) -> int:
    """Means over fewer elements, along every edge with pads that windows reach and that do not count: two AR steps."""
    if command.mode != "avg" or command.count_include_pad or len(command.kernel) != 2:  # noqa: PLR2004  an image
        return 0
    (n, c, oh, ow), (h, w) = command.output.shape, command.input.shape[2:]
    top, left, bottom, right = command.pads
    (kh, kw), (sh, sw) = command.kernel, command.strides
    rows = (top > 0) + ((oh - 1) * sh - top + kh > h and bottom > 0)
    columns = (left > 0) + ((ow - 1) * sw - left + kw > w and right > 0)
    return 2 * n * ceil_div(c, chip.lanes) * (rows * ceil_div(ow, chip.eu_elements(size)) + columns * oh)


def _folded_plane(command: Pool, size: int, chip: ChipSpec) -> int | None:
    """Two PorD where one window of floats is a plane: over its vectors, then over one; None: another.

    The last vector is filled up by an AR where the plane leaves some of it free.
    """
    n, c, *plane = command.input.shape
    vector = chip.eu_elements(size)
    if size == 1 or tuple(plane) != command.kernel or any(command.pads):
        return None
    filled = prod(plane) % vector != 0
    return n * ceil_div(c, chip.lanes) * (filled + ceil_div(prod(plane), vector) + vector)


def _elementwise(command: Arith | ChannelScale | Compare | Where, chip: ChipSpec) -> int:
    """Steps of the widest operand; a division of floats takes many, a selection (FUSED_CMP) two."""
    vector = _vector_length(command, chip)
    passes = 2 if isinstance(command, Where) else _passes(command) if isinstance(command, Arith) else 1
    if fills_lanes(command, chip):
        return passes * ceil_div(command.output.elements, vector * chip.lanes)
    if isinstance(command, Arith) and command.kind == "copy":
        passes *= max(_row_passes(view, chip) for _, view in command.operands())
    if isinstance(command, Where) and command.on_true == command.on_false:  # one value whatever the condition is
        passes = _row_passes(command.output, chip)
    return passes * _padded_elements(command.output, chip, vector) // (vector * chip.lanes)


def _row_passes(view: View, chip: ChipSpec) -> int:
    """How often a vector step of a copy is repeated where short rows of a tensor lie apart: once for each line of it.

    The lines of the result are as many as of the operand. Most rows of more than four elements of two bytes or more
    lie on two lines (U-87, BM1684X).
    """
    if view.layout != "strided" or len(view.shape) != 4:  # noqa: PLR2004  n, c, h, w
        return 1
    size, (_, _, height, width), (_, _, row, step) = itemsize(view.dtype), view.shape, view.strides or (0, 0, 0, 0)
    vector = chip.eu_elements(size)
    if width > 1 and step > 1:
        return min(step, vector)
    if height == 1 or row <= width:
        return 1
    straddles = width > _WHOLE_ROW and size > 1 and vector % width
    lines = height * (2 if straddles else 1) * ceil_div(width, vector)
    return max(1, lines // ceil_div(height * width, vector))


def _passes(command: Arith) -> int:
    """How often AR goes over the tensor; a sum of 16 bits with relu stays in its operands' bank, then it is limited."""
    if command.kind == "div":
        return DIVISION_STEPS
    limited = command.kind == "add" and command.relu and itemsize(command.output.dtype) == 1
    return 3 if limited and itemsize(command.a.dtype) == 2 else 1  # noqa: PLR2004  16 bits


def _select(command: Select, chip: ChipSpec) -> int:
    """Two AR: the product, and the selection."""
    vector = _vector_length(command, chip)
    return 2 * _padded_elements(command.output, chip, vector) // (vector * chip.lanes)


def _lut(command: Lut, chip: ChipSpec) -> int:
    """The table goes to all lanes; SG: one element per lane and cycle."""
    spread = 2 * ceil_div(command.table.nbytes, chip.eu_bytes)
    return spread + _padded_elements(command.output, chip, 1) // chip.lanes


def _pick(command: Pick, chip: ChipSpec) -> int:
    """SG: one element per lane and cycle."""
    return _padded_elements(command.output, chip, 1) // chip.lanes


def _requant(command: Rescale | ChannelRescale, chip: ChipSpec) -> int:
    """Steps of the widest operand; between bytes with zero points one of 16 bits, to take it off, and one of 32."""
    shifted = isinstance(command, Rescale) and (command.input_zero or command.requant.zero_point)
    if shifted and itemsize(command.input.dtype) == itemsize(command.output.dtype) == 1:
        return _steps(command.output, 2, chip) + _steps(command.output, 4, chip)
    vector = _vector_length(command, chip)
    return _padded_elements(command.output, chip, vector) // (vector * chip.lanes)


def _cast(command: Quantize | Dequantize, chip: ChipSpec) -> int:
    """Steps of the float type: one to it; from it the product and its sum, which f32 does in place, and the cast.

    From f32 one of these is doubled, as operand and result of it lie in one bank; those of a tile lie apart.
    """
    vector = _vector_length(command, chip)
    if fills_lanes(command, chip):
        steps = ceil_div(command.output.elements, vector * chip.lanes)
    else:
        steps = _padded_elements(command.output, chip, vector) // (vector * chip.lanes)
    if isinstance(command, Dequantize):
        return steps
    if itemsize(command.input.dtype) < 4:  # noqa: PLR2004  bytes
        return steps * 3
    return steps * (max(chip.quantize_steps, _SHIFTED_STEPS * (command.zero_point != 0)) - command.of_tile)


def _lane_copy(command: LaneCopy, chip: ChipSpec) -> int:
    """Each channel for itself, once for every row of lanes that the copy reaches; without a shift a copy by AR."""
    n, c, *plane = command.output.shape
    start, target = (view.lane % chip.lanes for view in (command.input, command.output))
    steps = ceil_div(prod(plane) * itemsize(command.output.dtype), chip.eu_bytes)
    return n * ceil_div(target + c, chip.lanes) * steps * (1 if start == target else c)


def _function(command: Fn, chip: ChipSpec) -> int:
    """The sum of what the function is made of (DC-04)."""
    if isinstance(command.function, Reduce) and max(command.function.axes) in (2, 3) and len(command.output.shape) == 4:  # noqa: PLR2004
        return _reduce(command, command.function, chip)
    if isinstance(command.function, FlashScores | FlashMix):
        return flash_cycles(command, chip)
    if isinstance(command.function, Interp):
        return interpolation_cycles(command, command.function, chip)
    if isinstance(command.function, Softmax) and len(command.output.shape) == 4 and command.function.axis > 1:  # noqa: PLR2004
        return softmax_cycles(command, command.function, chip)
    if isinstance(command.function, Upsample):
        return _upsample(command, command.function, chip)
    vector, steps = _vector_length(command, chip), command.function.made_of(len(command.inputs))
    view = command.inputs[0] if command.function.OVER_INPUT else command.output
    elements, rate = _padded_elements(view, chip, vector), vector * chip.lanes
    half = itemsize(view.dtype) == 2  # noqa: PLR2004  bytes
    return (
        steps.constants
        + (steps.arithmetic - half * steps.shorter + steps.requants) * ceil_div(elements, rate)
        + steps.series * ceil_div(elements * (2 * _TAYLOR_TERMS - 1), 2 * rate)
        + steps.lookups * ceil_div(_padded_elements(command.output, chip, 1), chip.lanes)
        + steps.shifts * _shift(view, chip)
        + _serial(command, steps.serial, chip)
    )


def _reduce(command: Fn, function: Reduce, chip: ChipSpec) -> int:
    """A PorD whose window is the axis; a minimum is a negated maximum, a norm has squares before and a root behind.

    Along the last axis every result is read for itself, which takes one step more where rows and results fill vectors;
    rows of several whole vectors are reduced to one, and its elements read for themselves.
    """
    view, output = command.inputs[0], command.output
    n, c, h, w = view.shape
    rows, vector = n * ceil_div(c, chip.lanes), chip.eu_elements(itemsize(view.dtype))
    if max(function.axes) == 2:  # noqa: PLR2004  h
        windows = rows * h * ceil_div(w, vector)
    elif w > vector and w % vector == 0 and 2 not in function.axes:  # noqa: PLR2004  h
        windows = rows * h * (w // vector + vector * (vector if chip.row_reduction_steps > 1 else 1))
    else:
        results = ceil_div(output.elements, output.shape[1]) * ceil_div(c, chip.lanes)
        steps = chip.row_reduction_steps + (chip.row_reduction_steps > 1 and min(results, w) > vector)
        windows = results * (h if 2 in function.axes else 1) * w * steps  # noqa: PLR2004
    match function.mode:
        case "ReduceMin":
            beside = 2 * (_steps(view, itemsize(view.dtype), chip) + _steps(output, itemsize(view.dtype), chip))
        case "ReduceL2":
            beside = 2 * _steps(view, itemsize(view.dtype), chip) + _ROOT * _steps(output, 4, chip)
        case _:
            beside = 0
    return windows + beside


def _upsample(command: Fn, function: Upsample, chip: ChipSpec) -> int:
    """AR copies: into columns scale_w apart, which takes so many times as long, and of these rows into the others."""
    n, c, h, w = command.inputs[0].shape
    vector, rows = chip.eu_elements(itemsize(command.output.dtype)), n * ceil_div(c, chip.lanes)
    columns = function.scale_w**2 * ceil_div(h * w, vector)
    return rows * (columns + (function.scale_h - 1) * ceil_div(h * w * function.scale_w, vector))


def _shift(view: View, chip: ChipSpec) -> int:
    """A lane copy of an f32 image by some channels."""
    n, c, *plane = view.shape
    return n * c * ceil_div(c, chip.lanes) * ceil_div(prod(plane) * 4, chip.eu_bytes)


def _serial(command: Fn, half_cycles: int, chip: ChipSpec) -> int:
    """The steps of a softmax that go along its axis element by element, each row in a lane of its own."""
    if not isinstance(command.function, SoftmaxInt):
        return 0
    length = command.output.shape[command.function.axis]
    return ceil_div(half_cycles * length * ceil_div(command.output.elements // length, chip.lanes), 2)


def _limits(command: Command, chip: ChipSpec) -> int:
    """An AR in place for the relu of floats behind another command, and one for its upper limit: two steps each."""
    if not isinstance(command, Conv | Depthwise | Pool | Arith | ChannelScale) or not command.relu:
        return 0
    floats = all(view.dtype in FLOATS for _, view in command.operands())
    if not floats or (isinstance(command, Arith) and command.kind in ("copy", "truncate")):
        return 0
    above = isinstance(command, Conv | Depthwise | Arith) and command.relu_limit >= 0
    return 2 * (1 + above) * _steps(command.output, itemsize(command.output.dtype), chip)


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
    Pick: _pick,
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
    return cost(command, chip) + _limits(command, chip)


def kernel_tiu_ns(kernel: GlobalKernel, chip: ChipSpec) -> float:
    """How long a global kernel computes; a call of the host takes none of the chip's time."""
    return 0.0 if isinstance(kernel, HostCall) else tiu_cycles(kernel.body, chip) * 1000 / chip.tiu_mhz


def command_ns(command: Command, chip: ChipSpec) -> float:
    """How long a command keeps its engine busy; a global kernel both, for the longer of its two times (DL-06).

    Of its shorter time the first load and the last store stand alone: all of it where one tile is enough. On a chip
    whose engines do not overlap a global kernel takes the sum of its times.
    """
    return _kept_ns(command.form, chip)


@lru_cache(1 << 14)
def _kept_ns(form: Command, chip: ChipSpec) -> float:
    return timed_ns(form, chip)


def timed_ns(command: Command, chip: ChipSpec) -> float:
    """The same as `command_ns`, computed anew for this very command."""
    if isinstance(command, Move | Fill):
        return dma_ns(command, chip)
    if isinstance(command, DmaSendMessage | DmaWaitMessage):
        return 1000 / chip.dma_mhz
    if isinstance(command, GlobalKernel):
        compute, transfer = kernel_tiu_ns(command, chip), kernel_dma_ns(command, chip)
        if not chip.engines_overlap:
            return compute + transfer
        return max(compute, transfer) + min(compute, transfer) / kernel_tiles(command, chip)
    return tiu_cycles(command, chip) * 1000 / chip.tiu_mhz
