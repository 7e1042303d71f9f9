"""How long one command takes on CV18xx: TIU cycles and DMA nanoseconds (hardware.md 5.3, DH-09).

A step of the array serves EU output elements of every lane: 16 of 8 bits, 8 of 16 bits. cycles = latencies + steps *
cycles per step. Figures that the specification does not name (pooling, depthwise, matrix product) come from the
profiler's source; commands that the chip composes of several (requants, casts, macro functions) count the parts.
"""

from collections.abc import Callable
from math import ceil, prod
from typing import Any

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
from tpusim.isa.blocks import blocks, contiguous_runs
from tpusim.isa.commands import (
    Arith,
    ChannelScale,
    Command,
    Compare,
    Conv,
    Depthwise,
    Dequantize,
    Fill,
    FloatLut,
    Fn,
    LaneCopy,
    Lut,
    MatMul,
    Move,
    Pool,
    Quantize,
    Rescale,
    Select,
    Where,
)
from tpusim.isa.commands.matmul import matrix_shape
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import View, itemsize

_PIPELINE = 41
_COMMAND = 26
_POST, _POST_PER_CHANNEL = 12, 31
_PER_CHANNEL_LEAST = 16
_TABLE_ROWS, _SERIES_ROWS = 16, 32
"""Rows of a table of bytes, and of the BF16 slope or mantissa table of a series (numerics.md 10)."""
_LATENCY = {
    "mul": (2.5, 4.5), "mac": (9.0, 11.0), "add": (5.0, 7.0), "sub": (5.0, 7.0), "max": (3.0, 5.0), "min": (3.0, 5.0),
    "shift": (4.0, 4.0), "copy": (2.0, 4.0), "truncate": (2.0, 4.0),
}  # fmt: skip
"""Cycles per step by operation, for operands of 8 bits and wider ones."""
_AXI_WORD_BYTES, _PAGE_BYTES = 16, 4096


def _width(view: View) -> int:
    return itemsize(view.dtype)


def _steps(view: View, chip: ChipSpec, size: int) -> int:
    """Steps of the array for one result: n * ceil(lane + c, NPU) * ceil(h*w, EU)."""
    vector = max(1, chip.eu_bytes // size)
    if len(view.shape) != 4:
        return ceil_div(view.elements, chip.lanes * vector)
    n, c, h, w = view.shape
    return n * ceil_div(view.lane + c, chip.lanes) * ceil_div(h * w, vector)


def peak_macs(size: int, chip: ChipSpec) -> int:
    """Most multiply-accumulates of all lanes per cycle: a step of the array; for INT8 two input channels at once."""
    return chip.lanes * max(1, chip.eu_bytes // size) * (2 if size == 1 else 1)


def _conv(command: Conv, chip: ChipSpec) -> int:
    wide, per_channel = _width(command.input) > 1, command.requant_table is not None
    channels, taps = command.input.shape[1] // command.groups, prod(command.kernel)
    double = not wide and command.groups == 1 and channels > 1
    fetch = ceil(((chip.eu_bytes - 1) * command.strides[1] + 1) / chip.eu_bytes) + 1
    bubble = taps * max(fetch - channels, 0)
    loop = taps * ceil_div(channels, 2 if double else 1) + bubble + _bias_and_shift(command, wide, per_channel)
    loop = max(loop, _PER_CHANNEL_LEAST) if per_channel and not wide else loop
    post = _POST_PER_CHANNEL if per_channel else _POST
    return _PIPELINE + _steps(command.output, chip, _width(command.input)) * loop + post


def _bias_and_shift(command: Conv | Depthwise, wide: bool, per_channel: bool) -> int:
    bias = 2 if command.bias is not None and not per_channel else 0
    return bias + (2 if wide else 1 if per_channel else 4)


def _depthwise(command: Depthwise, chip: ChipSpec) -> int:
    wide, per_channel, taps = _width(command.input) > 1, command.requant_table is not None, prod(command.kernel)
    columns = min(command.output.shape[3], chip.eu_bytes)
    reach = (columns - 1) * command.strides[1] + 1
    fetches = reach / columns + (chip.eu_bytes - 1) / chip.eu_bytes if taps > 1 else 1.0
    loop = max(taps * fetches, _PER_CHANNEL_LEAST if per_channel else 0)
    tail = (2 if command.bias is not None and not per_channel else 0) + (2 if wide else 3)
    post = _POST_PER_CHANNEL if per_channel else _POST
    return ceil(_steps(command.output, chip, _width(command.input)) * (loop + tail)) + post


def _pool(command: Pool, chip: ChipSpec) -> int:
    size = _width(command.input)
    vector, taps = chip.eu_bytes // size, prod(command.kernel)
    reach = (vector - 1) * command.strides[1] + 1
    fetches = reach / vector + (vector - 1 if reach >= vector else reach - 1) / vector
    fetches = 1.0 if prod(command.output.shape[2:]) == 1 else max(fetches, 1.0)
    steps = _steps(command.output, chip, size)
    if command.mode == "max":
        return ceil(steps * (taps * fetches + 2))
    return ceil(steps * (taps * fetches + (2 if size > 1 else 4))) + _POST


def _matmul(command: MatMul, chip: ChipSpec) -> int:
    size = _width(command.left)
    rows, inner = matrix_shape(command.left, command.left_transpose)
    _, columns = matrix_shape(command.right, command.right_transpose)
    batch = max(1, command.output.elements // (rows * columns))
    steps = batch * rows * ceil_div(ceil_div(columns, chip.eu_bytes // size), chip.lanes)
    tail = (2 if command.bias is not None else 0) + (2 if size > 1 else 4)
    return _PIPELINE + steps * (inner + tail) + _POST


def _vector(kind: str, source: View, result: View, chip: ChipSpec, times: int = 1) -> int:
    """One element-wise command over the result."""
    latency = _LATENCY[kind][_width(source) > 1]
    latency += 3 if kind in ("mul", "shift") and _width(result) == 1 else 0
    latency += 0 if _width(result) == 1 else 1
    steps = _steps(result, chip, max(_width(source), _width(result)))
    return times * (ceil(steps * latency) + _COMMAND + _POST)


def _arith(command: Arith, chip: ChipSpec) -> int:
    kind, times = ("mul", 5) if command.kind == "div" else (command.kind, 1)
    return _vector(kind, command.a, command.output, chip, times)


def _scaled(command: Rescale | Quantize | Dequantize, chip: ChipSpec) -> int:
    return _vector("mul", command.input, command.output, chip)


def _channel_scale(command: ChannelScale, chip: ChipSpec) -> int:
    return _vector("mac", command.input, command.output, chip)


def _select(command: Select, chip: ChipSpec) -> int:
    """The product of the negative half, that of the other half if it is scaled, and their maximum."""
    products = 1 + (command.positive is not None)
    return _vector("mul", command.input, command.output, chip, products) + _vector(
        "max", command.input, command.output, chip
    )


def _compare(command: Compare, chip: ChipSpec) -> int:
    """One selection, as long as a maximum."""
    return _vector("max", command.a, command.output, chip)


def _where(command: Where, chip: ChipSpec) -> int:
    """The chip has no selection of three operands: both branches times the mask or its complement, and their sum."""
    output = command.output
    return _vector("mul", output, output, chip, 2) + _vector("add", output, output, chip)


def _table(result: View, chip: ChipSpec, rows: int) -> int:
    return _steps(result, chip, _width(result)) * (1 + rows + 2) + _COMMAND + _POST


def _lut(command: Lut, chip: ChipSpec) -> int:
    return _table(command.output, chip, _TABLE_ROWS)


def _float_lut(command: FloatLut, chip: ChipSpec) -> int:
    """Two lookups; around a slope: position, whole part, rest, product, sum; around a mantissa: exponent, product."""
    parts = ("mul", "copy", "sub", "mul", "add") if command.mode == "slope" else ("copy", "mul")
    arithmetic = sum(_vector(kind, command.input, command.output, chip) for kind in parts)
    return 2 * _table(command.output, chip, _SERIES_ROWS) + arithmetic


def _lane_copy(command: LaneCopy, chip: ChipSpec) -> int:
    return _vector("copy", command.input, command.output, chip)


def _function(command: Fn, chip: ChipSpec) -> int:
    arithmetic, series, lookups, requants, *_ = command.function.made_of(len(command.inputs))
    source = command.inputs[0]
    result = source if command.function.OVER_INPUT else command.output
    return (
        _vector("mul", source, result, chip, arithmetic + requants)
        + lookups * _table(result, chip, _TABLE_ROWS)
        + 2 * series * _table(result, chip, _SERIES_ROWS)
    )


_TIU: dict[type[Command], Callable[[Any, ChipSpec], int]] = {
    Conv: _conv,
    Depthwise: _depthwise,
    Pool: _pool,
    MatMul: _matmul,
    Arith: _arith,
    Compare: _compare,
    Where: _where,
    Rescale: _scaled,
    Quantize: _scaled,
    Dequantize: _scaled,
    ChannelScale: _channel_scale,
    Select: _select,
    Lut: _lut,
    FloatLut: _float_lut,
    LaneCopy: _lane_copy,
    Fn: _function,
}


def tiu_cycles(command: Command, chip: ChipSpec) -> int:
    """TIU cycles of a compute command. Raises CommandError for a class without an entry."""
    for kind in type(command).__mro__:
        if (cost := _TIU.get(kind)) is not None:
            return cost(command, chip)
    raise CommandError(f"{command.label}: no TIU cycle formula of CV18xx; add one to tpusim/isa/families/cv18xx.py")


def transfer_ns(runs: int, run_bytes: int, chip: ChipSpec, rate: float) -> float:
    """The slower of DRAM and SRAM for `runs` contiguous runs of `run_bytes`.

    DRAM moves whole units (64 bytes), one more where a run crosses a page of 4 KiB; SRAM moves 16-byte words, one per
    cycle. Every run counts (DH-09).
    """
    crossings = (run_bytes - 1) // _PAGE_BYTES
    dram = runs * (align(run_bytes, chip.dma_burst_bytes) + crossings * chip.dma_burst_bytes) / rate
    sram = runs * ceil_div(run_bytes, _AXI_WORD_BYTES) * 1000 / chip.dma_mhz
    return max(dram, sram)


def dma_ns(command: Command, chip: ChipSpec) -> float:
    """The formula of `_copied_ns` for copies and fills; for other commands the time that they state."""
    return _copied_ns(command, chip) if isinstance(command, Move | Fill) else command.dma_ns(chip)


def _copied_ns(command: Move | Fill, chip: ChipSpec) -> float:
    """Latency, and the transfer of the side in global memory; a copy inside local memory has the SRAM's rate."""
    system = [view for _, view in command.operands() if view.memory == "gmem"]
    if not system:
        return chip.dma_latency_ns + transfer_ns(1, max(1, command.output.nbytes), chip, chip.bandwidth.l2l)
    direction = command.direction if isinstance(command, Move) else "l2s"
    rate = float(getattr(chip.bandwidth, direction))
    times = [
        sum(
            transfer_ns(count, run, chip, rate)
            for count, run in (contiguous_runs(block, itemsize(view.dtype), 0) for block in blocks(view, chip))
        )
        for view in system
    ]
    return chip.dma_latency_ns + max(times)
