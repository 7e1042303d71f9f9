"""CONV and PorD commands: convolution (2-D, 3-D and transposed), depthwise convolution, pooling."""

from math import prod

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Conv, Depthwise, Pool, Requant
from tpusim.isa.region import View, itemsize
from tpusim.simulator.integer import (
    channel_parameters,
    check_accumulator,
    doubling_multiply,
    float_to_integer,
    is_float,
    requantize,
    round_half_away,
    rounding_shift,
    saturate,
)
from tpusim.simulator.memory import Machine
from tpusim.simulator.product import carrier
from tpusim.simulator.windows import Window, padded, patches, tap

_PATCH_BYTES = 16 << 20
"""Most elements of the patches that im2col makes at once; it limits the number of output rows."""


def unpack_filter(packed: np.ndarray, channels: int, taps: int, packing: int) -> np.ndarray:
    """(1, oc, 1, AL(ic, P)*taps) as stored -> (oc, ic*taps), tap fastest (hardware.md 2.3).

    Blocks of P channels may be the first axis (`Conv`).
    """
    oc = packed.shape[1]
    blocked = packed.swapaxes(0, 1).reshape(oc, -1, taps, packing)
    return blocked.transpose(0, 1, 3, 2).reshape(oc, -1, taps)[:, :channels].reshape(oc, channels * taps)


def filter_rows(command: Conv, packed: np.ndarray, chip: ChipSpec) -> np.ndarray:
    """(oc, ic*taps), tap fastest, of a filter as stored: merged axes of the kernel are taps again (hardware.md 2.4)."""
    along = [command.kernel[axis] for axis in command.merged]
    left = [size for axis, size in enumerate(command.kernel) if axis not in command.merged]
    channels = command.input.shape[1] // command.groups
    wide = channels * prod(along)
    packing = command.packing or chip.filter_packing(itemsize(command.filter.dtype), wide, command.groups)
    rows = unpack_filter(packed, wide, prod(left), packing)
    if not along:
        return rows
    apart = rows.reshape(-1, channels, *along, *left)
    axes = range(2, 2 + len(along))
    return np.moveaxis(apart, axes, [2 + axis for axis in command.merged]).reshape(len(rows), -1)


def _columns(image: np.ndarray, window: Window, groups: int, rows: slice, width: int) -> np.ndarray:
    """Patches of one image as (groups, ic/groups * taps, pixels)."""
    if window.is_pointwise():
        sh, sw = window.strides
        found = image[:, rows.start * sh : (rows.stop - 1) * sh + 1 : sh, : (width - 1) * sw + 1 : sw]
    else:
        found = patches(image, window, rows, width)
    return found.reshape(groups, -1, (rows.stop - rows.start) * width)


def _convolve(image: np.ndarray, weights: np.ndarray, window: Window, groups: int, size: tuple[int, int]) -> np.ndarray:
    """Padded image (n, ic, h, w) and weights (oc, K) of one float dtype -> (n, oc, oh, ow) of that dtype."""
    n, oc, (oh, ow) = image.shape[0], weights.shape[0], size
    grouped = weights.reshape(groups, oc // groups, -1)
    out = np.empty((n, groups, oc // groups, oh, ow), weights.dtype)
    row_bytes = max(1, grouped.shape[2] * groups * ow * weights.itemsize)
    step = max(1, _PATCH_BYTES // row_bytes)
    for item in range(n):
        for start in range(0, oh, step):
            rows = slice(start, min(start + step, oh))
            columns = _columns(image[item], window, groups, rows, ow)
            out[item, :, :, rows] = (grouped @ columns).reshape(groups, oc // groups, -1, ow)
    return out.reshape(n, oc, oh, ow)


def _depthwise(image: np.ndarray, weights: np.ndarray, window: Window, size: tuple[int, int]) -> np.ndarray:
    """Padded image (n, c, h, w) and weights (c, kh*kw): shifted multiply-adds."""
    kh, kw = window.kernel
    out = np.zeros((image.shape[0], image.shape[1], *size), image.dtype)
    for k in range(kh * kw):
        out += tap(image, window, divmod(k, kw), size) * weights[:, k, None, None]
    return out


def _convolve_volume(
    volume: np.ndarray, weights: np.ndarray, window: Window, groups: int, size: tuple[int, ...], value: int
) -> np.ndarray:
    """Volume (n, ic, d, h, w) and weights (oc, ic/groups * kd*kh*kw): 2-D convolutions accumulated over kd."""
    plane, (kd, *flat) = window.plane(), window.kernel
    by_depth = weights.reshape(weights.shape[0], -1, kd, prod(flat))
    out = np.zeros((volume.shape[0], weights.shape[0], *size), weights.dtype)
    for depth in range(size[0]):
        for k in range(kd):
            place = depth * window.strides[0] - window.pads[0] + k * window.dilations[0]
            at, inserted = divmod(place, window.inserts[0] + 1)
            if 0 <= at < volume.shape[2] and not inserted:
                image = volume[:, :, at]
            elif value:
                image = np.full_like(volume[:, :, 0], value)
            else:
                continue
            tap_weights = by_depth[:, :, k].reshape(len(by_depth), -1)
            image = padded(image, plane, value, weights.dtype)
            out[:, :, depth] += _convolve(image, tap_weights, plane, groups, (size[1], size[2]))
    return out


def _channel_requant(acc: np.ndarray, table: np.ndarray, output: View, relu: bool) -> np.ndarray:
    """Requant per channel, HALF_UP, relu at the zero point."""
    multiplier, rshift, zero = channel_parameters(table, acc.ndim)
    scaled = rounding_shift(acc * multiplier, rshift, "half_up")
    if zero.any():
        scaled += zero
    return saturate(np.maximum(scaled, zero, out=scaled) if relu else scaled, output.dtype)


def _packed_requant(command: Conv | Depthwise, acc: np.ndarray, table: np.ndarray) -> np.ndarray:
    """QDM per channel; a row of bytes is [int32 bias,] int32 multiplier, int8 shift (hardware.md 2.3)."""
    rows = np.ascontiguousarray(table[0, :, 0])
    words = rows[:, :-1].copy().view("<i4").astype(np.int64)
    total = acc + words[:, 0, None, None] if words.shape[1] == 2 else acc
    check_accumulator(total, command)
    shift = rows[:, -1].view(np.int8).astype(np.int64)
    scaled = doubling_multiply(total, words[:, -1, None, None], shift[:, None, None])
    return saturate(np.maximum(scaled, 0) if command.relu else scaled, command.output.dtype)


def _bias(stored: np.ndarray, rank: int) -> np.ndarray:
    """(c, 1, ...) for sums of `rank` axes: one per channel, or two planes of 16 bits, upper halves of f32 first."""
    shape = (-1, *(1,) * (rank - 2))
    if stored.dtype != np.uint16:
        return stored.reshape(shape)
    upper, lower = stored.reshape(2, -1).astype(np.uint32)
    return ((upper << 16) | lower).view(np.float32).reshape(shape)


def _finish(command: Conv | Depthwise, acc: np.ndarray, memory: Machine) -> np.ndarray:
    """Bias, previous output if the command adds to it, requant and relu of sums (n, oc, ...) in a float carrier."""
    bias = None if command.bias is None else _bias(memory.load(command.bias), acc.ndim)
    if isinstance(command, Conv) and command.accumulate:
        earlier = memory.load(command.output)
        acc = acc.astype(np.float64 if is_float(command.input.dtype) else np.int64) + earlier
    if is_float(command.input.dtype):
        total = acc if bias is None else acc + bias
        total = np.maximum(total, 0.0) if command.relu else total
        total = np.minimum(total, command.relu_limit) if command.relu and command.relu_limit >= 0 else total
        return total.astype(np.float32)
    total = acc.astype(np.int64)
    if command.requant_table is not None and command.requant_table.dtype == "u8":
        return _packed_requant(command, total, memory.load(command.requant_table))
    if bias is not None:
        total += bias
    check_accumulator(total, command)
    if command.requant_table is not None:
        return _channel_requant(total, memory.load(command.requant_table), command.output, command.relu)
    return requantize(total, command.requant or Requant(), command.output.dtype, relu=command.relu)


def conv(command: Conv, memory: Machine) -> None:
    """CONV: im2col and BLAS; 1x1 without im2col; groups as one batched product."""
    window = Window(command.kernel, command.strides, command.pads, command.dilations, command.inserts)
    image, packed = memory.load(command.input), memory.load(command.filter)
    channels, taps = image.shape[1] // command.groups, prod(command.kernel)
    weights = filter_rows(command, packed, memory.chip)
    wide = carrier(image.dtype, weights.dtype, channels * taps)
    if command.rotate and not command.turned:
        weights = weights.reshape(len(weights), channels, taps)[:, :, ::-1].reshape(weights.shape)
    weights, size = weights.astype(wide), command.output.shape[2:]
    if len(size) == 3:
        acc = _convolve_volume(image, weights, window, command.groups, size, command.pad_value)
    else:
        image = padded(image, window, command.pad_value, wide)
        acc = _convolve(image, weights, window, command.groups, (size[0], size[1]))
    memory.store(command.output, _finish(command, acc, memory))


def depthwise(command: Depthwise, memory: Machine) -> None:
    """PorD depthwise: one multiply-add per kernel position."""
    window = Window(command.kernel, command.strides, command.pads, command.dilations, command.inserts)
    image, packed = memory.load(command.input), memory.load(command.filter)
    weights = packed.reshape(packed.shape[1], -1)
    weights = weights[:, ::-1] if command.rotate and not command.turned else weights
    wide = carrier(image.dtype, weights.dtype, weights.shape[1])
    _, _, oh, ow = command.output.shape
    image = padded(image, window, command.pad_value, wide)
    acc = _depthwise(image, weights.astype(wide), window, (oh, ow))
    memory.store(command.output, _finish(command, acc, memory))


def _max_pool(command: Pool, image: np.ndarray, window: Window) -> np.ndarray:
    """Maximum over each window; padding is the smallest value of the type, which never wins."""
    lowest = -np.inf if is_float(command.input.dtype) else np.iinfo(image.dtype).min
    image = padded(image, window, lowest, image.dtype)
    best: np.ndarray | None = None
    for at in np.ndindex(*window.kernel):
        seen = tap(image, window, at, command.output.shape[2:])
        best = seen if best is None else np.maximum(best, seen)
    assert best is not None  # a window has one element or more
    return best


def counts(command: Pool) -> np.ndarray:
    """The divisor of each average: the elements of its window inside the image, or all elements of the window."""
    size, axes = command.output.shape[2:], len(command.kernel)
    if command.count_include_pad:
        return np.full(size, prod(command.kernel), np.int64)
    found = np.ones((), np.int64)
    for i in range(axes):
        start = np.arange(size[i]) * command.strides[i] - command.pads[i]
        side = np.minimum(start + command.kernel[i], command.input.shape[2 + i]) - np.maximum(start, 0)
        found = np.multiply.outer(found, side)
    return np.maximum(found, 1)


def _window_sums(command: Pool, image: np.ndarray, window: Window, dtype: np.dtype) -> np.ndarray:
    image = padded(image, window, command.pad_value, dtype)
    total = np.zeros(command.output.shape, dtype)
    for at in np.ndindex(*window.kernel):
        total += tap(image, window, at, command.output.shape[2:])
    return total


def _average_pool(command: Pool, image: np.ndarray, window: Window) -> np.ndarray:
    """f32: float64 sum / count, rounded once. Integers: exact round-half-away(sum*window/count), then requant."""
    elements, counted = command.summed
    divisors = counts(command) * counted
    if is_float(command.input.dtype):
        mean = _window_sums(command, image, window, np.dtype(np.float64)) / divisors
        return (np.maximum(mean, 0.0) if command.relu else mean).astype(np.float32)
    scaled = _window_sums(command, image, window, np.dtype(np.int64)) * (prod(window.kernel) * elements)
    if command.scale > 0:
        real = scaled / divisors * command.scale + command.offset
        found = float_to_integer(round_half_away(real), 0, "i32").astype(np.int64)
        return saturate(np.maximum(found, command.zero_point) if command.relu else found, command.output.dtype)
    if command.first_rounding == "half_up":
        average = (2 * scaled + divisors) // (2 * divisors)
    else:
        average = np.sign(scaled) * ((2 * np.abs(scaled) + divisors) // (2 * divisors))
    return requantize(average, command.requant or Requant(), command.output.dtype, relu=command.relu)


def pool(command: Pool, memory: Machine) -> None:
    """Execute a maximum or an average of windows (PorD); an average of integers is requantised."""
    axes = len(command.kernel)
    window = Window(command.kernel, command.strides, command.pads, (1,) * axes, (0,) * axes)
    image = memory.load(command.input)
    if command.mode == "avg":
        memory.store(command.output, _average_pool(command, image, window))
        return
    best = _max_pool(command, image, window)
    if command.requant is None and command.input.dtype == command.output.dtype:
        memory.store(command.output, np.maximum(best, 0) if command.relu else best)
    else:
        memory.store(
            command.output,
            requantize(best.astype(np.int64), command.requant or Requant(), command.output.dtype, relu=command.relu),
        )
