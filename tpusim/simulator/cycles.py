"""How long one command takes: TIU cycles (hardware.md 5.1, DH-07) and DMA nanoseconds (5.2, DH-08).

L lanes, E elements of the widest operand per lane and step, P input channels of the conv array, A its output pixels.
cycles = start-up + ceil(operations / rate), with the waste of alignment counted as operations; start-ups of BM1688.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tpusim.chips import ChipSpec
from tpusim.errors import SimulationError
from tpusim.isa.commands import (
    Arith,
    ChannelScale,
    Command,
    Conv,
    Depthwise,
    Dequantize,
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
)
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.shapes import matrix_shape
from tpusim.simulator.blocks import blocks, contiguous_runs

_TAYLOR_TERMS = 10
"""Decision: terms of the SFU's exp and log series; the operation count is 2*terms - 1 (hardware.md 5.1)."""


class _Array(NamedTuple):
    """Widths of the multiplier array for one element type."""

    lanes: int
    vector: int
    depth: int
    pixels: int


def _array(chip: ChipSpec, size: int) -> _Array:
    """P and A of the chip; f32 runs on the vector units: P = 1, A = E."""
    vector = chip.eu_elements(size)
    pixels = {4: vector, 2: chip.cube_pixels * 2 // chip.half_mac_divisor}.get(size, chip.cube_pixels)
    return _Array(chip.lanes, vector, chip.filter_packing(size), pixels)


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
    n, oc, oh, ow = command.output.shape
    lanes, _, depth, pixels = _array(chip, itemsize(command.input.dtype))
    terms = align(command.input.shape[1] // command.groups, depth) * command.kernel[0] * command.kernel[1]
    per_output = 2 * terms - 1 + (command.bias is not None)
    return _cycles(23, n * align(oc, lanes) * align(oh * ow, pixels) * per_output, 2 * lanes * depth * pixels)


def _matmul(command: MatMul, chip: ChipSpec) -> int:
    lanes, _, depth, pixels = _array(chip, itemsize(command.left.dtype))
    rows, inner = matrix_shape(command.left, command.left_transpose)
    _, columns = matrix_shape(command.right, command.right_transpose)
    batch = max(1, command.output.elements // (rows * columns))
    start_up = {0: 81, 1: 56, 2: 37}[command.left_transpose + command.right_transpose]
    operations = 2 * batch * align(rows, lanes) * align(columns, depth) * align(inner, pixels)
    return _cycles(start_up, operations, 2 * depth * pixels * lanes)


def _window(command: Depthwise | Pool, chip: ChipSpec) -> int:
    vector = chip.eu_elements(itemsize(command.input.dtype))
    factor = 2 if isinstance(command, Depthwise) else 1
    per_output = max(1, 2 * command.kernel[0] * command.kernel[1] - 1)
    return _cycles(10, _padded_elements(command.output, chip, vector) * per_output, factor * vector * chip.lanes)


def _elementwise(command: Arith | ChannelScale, chip: ChipSpec) -> int:
    vector = _vector_length(command, chip)
    return _cycles(11, _padded_elements(command.output, chip, vector), vector * chip.lanes)


def _select(command: Select, chip: ChipSpec) -> int:
    """Two AR: the product, and the selection."""
    vector = _vector_length(command, chip)
    return _cycles(11, 2 * _padded_elements(command.output, chip, vector), vector * chip.lanes)


def _lut(command: Lut, chip: ChipSpec) -> int:
    """SG: one element per lane and cycle."""
    return _cycles(11, _padded_elements(command.output, chip, 1), chip.lanes)


def _requant(command: Rescale | Quantize | Dequantize, chip: ChipSpec) -> int:
    vector = _vector_length(command, chip)
    return _cycles(11, 3 * _padded_elements(command.output, chip, vector), 3 * vector * chip.lanes)


def _lane_copy(command: LaneCopy, chip: ChipSpec) -> int:
    return _cycles(27, command.output.elements, max(1, chip.eu_bytes // itemsize(command.output.dtype)))


class _Steps(NamedTuple):
    """What a macro function is made of, per element of its output."""

    arithmetic: int
    series: int = 0
    lookups: int = 0
    requants: int = 0


_ACTIVE_STEPS: dict[str, _Steps] = {
    **dict.fromkeys(("EXP", "LN", "LOG2", "SIN", "COS", "TAN", "SQRT", "RSQRT"), _Steps(arithmetic=1, series=1)),
    **dict.fromkeys(("SIGMOID", "TANH", "SINH", "COSH", "ELU", "ARCCOS"), _Steps(arithmetic=4, series=1)),
    **dict.fromkeys(("SILU", "SWISH", "QGELU", "LOG_SIGMOID", "ERF"), _Steps(arithmetic=5, series=1)),
    **dict.fromkeys(("TGELU", "GELU"), _Steps(arithmetic=8, series=1)),
    **dict.fromkeys(("SOFT_PLUS", "ARCTANH"), _Steps(arithmetic=3, series=2)),
    "MISH": _Steps(arithmetic=6, series=3),
    "HSIGMOID": _Steps(arithmetic=3),
    "HSWISH": _Steps(arithmetic=4),
    "SOFT_SIGN": _Steps(arithmetic=7),
    "RECIPROCAL": _Steps(arithmetic=5),
}
"""AR steps and Taylor series of an activation; a division counts 5 (hardware.md 5.1). Others are one AR."""


_FIXED_STEPS: dict[str, _Steps] = {
    "softmax_int": _Steps(arithmetic=4, lookups=1, requants=1),  # max, subtract, sum, multiply; table; requant
    "layernorm": _Steps(arithmetic=9, series=1),  # two sums, subtract, square, add, divide, three products; root
    "groupnorm": _Steps(arithmetic=9, series=1),
    "reduce": _Steps(arithmetic=1),  # one pass over the input
    "sub_int": _Steps(arithmetic=1, requants=2),  # multiply and shift per operand, one subtraction
    "const_int": _Steps(arithmetic=2, requants=1),  # product, constant; shift
    "interp": _Steps(arithmetic=6),  # difference, product, sum in two directions
    "gather": _Steps(arithmetic=0, lookups=1),  # one table access per element
    **dict.fromkeys(("concat", "reshape", "pad", "slice", "tile"), _Steps(arithmetic=1)),  # one copy
}
"""Macro functions whose steps depend on no parameter."""


def _function_steps(command: Fn) -> _Steps:
    match command.function:
        case "softmax":  # max, subtract, scale, sum, divide (5); exp, and log if asked
            return _Steps(arithmetic=9, series=2 if command.params.get("log") else 1)
        case "lrn":  # square, one sum per neighbour, scale, bias, multiply; log and exp
            return _Steps(arithmetic=4 + int(command.params.get("size", 1)), series=2)
        case "active":
            return _ACTIVE_STEPS.get(str(command.params.get("mode")), _Steps(arithmetic=1))
        case "add_int":  # multiply and shift per operand, additions
            return _Steps(arithmetic=len(command.inputs) - 1, requants=len(command.inputs))
        case "mul_int":  # products, one requant
            return _Steps(arithmetic=len(command.inputs) - 1, requants=1)
        case name:  # unknown to the table: a series and two vector steps
            return _FIXED_STEPS.get(name, _Steps(arithmetic=2, series=1))


def _function(command: Fn, chip: ChipSpec) -> int:
    vector, steps = _vector_length(command, chip), _function_steps(command)
    elements = _padded_elements(command.inputs[0] if command.function == "reduce" else command.output, chip, vector)
    rate = vector * chip.lanes
    return (
        steps.arithmetic * _cycles(11, elements, rate)
        + steps.series * _cycles(0, elements * (2 * _TAYLOR_TERMS - 1), 2 * rate)
        + steps.lookups * _cycles(11, command.output.elements, chip.lanes)
        + steps.requants * _cycles(11, elements, rate)
    )


_TIU: dict[type[Command], Callable[[Any, ChipSpec], int]] = {
    Conv: _conv,
    Depthwise: _window,
    Pool: _window,
    MatMul: _matmul,
    Arith: _elementwise,
    Rescale: _requant,
    Quantize: _requant,
    Dequantize: _requant,
    ChannelScale: _elementwise,
    Select: _select,
    Lut: _lut,
    LaneCopy: _lane_copy,
    Fn: _function,
}


def tiu_cycles(command: Command, chip: ChipSpec) -> int:
    """TIU cycles of a compute command. Raises SimulationError for a class without an entry."""
    cost = _TIU.get(type(command))
    if cost is None:
        raise SimulationError(f"{command.label}: no TIU cycle formula; add one to tpusim/simulator/cycles.py")
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
    system = [view for _, view in command.operands() if view.memory == "gmem"]
    moved = max((_burst_bytes(view, chip) for view in system), default=command.output.nbytes)
    filled = "l2s" if system else "l2l"
    direction = command.direction if isinstance(command, Move) else filled
    return chip.dma_latency_ns + moved / float(getattr(chip.bandwidth, direction))


def kernel_dma_ns(command: GlobalKernel, chip: ChipSpec) -> float:
    """DMA time of a global kernel: its loads and stores, one latency each per tile (DL-06)."""
    transfer = command.load_bytes / chip.bandwidth.s2l + command.store_bytes / chip.bandwidth.l2s
    return 2 * command.tiles * chip.dma_latency_ns + transfer
