"""CONV and PorD commands: convolution, depthwise convolution, pooling."""

import numpy as np

from tpusim.isa.commands import Conv, Depthwise, Pool, Requant
from tpusim.isa.region import View, itemsize
from tpusim.simulator.integer import (
    check_accumulator,
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
"""im2col works on so many output rows at once that their patches stay about this small."""


def unpack_filter(packed: np.ndarray, channels: int, taps: int, packing: int) -> np.ndarray:
    """(1, oc, 1, AL(ic, P)*taps) as stored -> (oc, ic*taps), tap fastest (hardware.md 2.3)."""
    oc = packed.shape[1]
    blocked = packed.reshape(oc, -1, taps, packing)
    return blocked.transpose(0, 1, 3, 2).reshape(oc, -1, taps)[:, :channels].reshape(oc, channels * taps)


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


def _channel_requant(acc: np.ndarray, table: np.ndarray, output: View, relu: bool) -> np.ndarray:
    """Requant per channel; a table row is (multiplier, -rshift, zero point), or two words with both packed (2.3)."""
    words = table[0, :, 0].astype(np.int64)
    if words.shape[1] == 2:
        second = table[0, :, 0, 1]
        left, zero = (second & 0xFF).astype(np.uint8).view(np.int8), second >> 16
        words = np.stack([words[:, 0], left.astype(np.int64), zero.astype(np.int64)], axis=1)
    multiplier, left, zero = (words[:, i, None, None] for i in range(3))
    scaled = rounding_shift(acc * multiplier, -left, "half_up") + zero
    return saturate(np.maximum(scaled, zero) if relu else scaled, output.dtype)


def _finish(command: Conv | Depthwise, acc: np.ndarray, memory: Machine) -> np.ndarray:
    """Bias, requant and relu of an accumulator (n, oc, oh, ow) of a float carrier."""
    bias = None if command.bias is None else memory.load(command.bias).reshape(-1, 1, 1)
    if is_float(command.input.dtype):
        total = acc if bias is None else acc + bias
        total = np.maximum(total, 0.0) if command.relu else total
        total = np.minimum(total, command.relu_limit) if command.relu and command.relu_limit >= 0 else total
        return total.astype(np.float32)
    total = acc.astype(np.int64)
    if bias is not None:
        total += bias
    check_accumulator(total, command)
    if command.requant_table is not None:
        return _channel_requant(total, memory.load(command.requant_table), command.output, command.relu)
    return requantize(total, command.requant or Requant(), command.output.dtype, relu=command.relu)


def conv(command: Conv, memory: Machine) -> None:
    """CONV: im2col and BLAS; 1x1 without im2col; groups as one batched product."""
    window = Window(command.kernel, command.strides, command.pads, command.dilations)
    image, packed = memory.load(command.input), memory.load(command.filter)
    channels, taps = image.shape[1] // command.groups, command.kernel[0] * command.kernel[1]
    weights = unpack_filter(packed, channels, taps, memory.chip.filter_packing(itemsize(command.filter.dtype)))
    wide = carrier(image.dtype, weights.dtype, channels * taps)
    _, _, oh, ow = command.output.shape
    image = padded(image, window, command.pad_value, wide)
    acc = _convolve(image, weights.astype(wide), window, command.groups, (oh, ow))
    memory.store(command.output, _finish(command, acc, memory))


def depthwise(command: Depthwise, memory: Machine) -> None:
    """PorD depthwise: one multiply-add per kernel position."""
    window = Window(command.kernel, command.strides, command.pads, command.dilations)
    image, packed = memory.load(command.input), memory.load(command.filter)
    weights = packed.reshape(packed.shape[1], -1)
    wide = carrier(image.dtype, weights.dtype, weights.shape[1])
    _, _, oh, ow = command.output.shape
    image = padded(image, window, command.pad_value, wide)
    acc = _depthwise(image, weights.astype(wide), window, (oh, ow))
    memory.store(command.output, _finish(command, acc, memory))


def _max_pool(command: Pool, image: np.ndarray, window: Window) -> np.ndarray:
    """Maximum over each window; padding is the smallest value of the type, so it never wins (DN-17)."""
    lowest = -np.inf if is_float(command.input.dtype) else np.iinfo(image.dtype).min
    image = padded(image, window, lowest, image.dtype)
    size = (command.output.shape[2], command.output.shape[3])
    best = tap(image, window, (0, 0), size)
    for k in range(1, window.kernel[0] * window.kernel[1]):
        best = np.maximum(best, tap(image, window, divmod(k, window.kernel[1]), size))
    return best


def _counts(command: Pool) -> np.ndarray:
    """Elements that each average divides by, (oh, ow): pixels inside the image, or all of the window."""
    kh, kw = command.kernel
    if command.count_include_pad:
        return np.full(command.output.shape[2:], kh * kw, np.int64)
    sides: list[np.ndarray] = []
    for axis, before, kernel, stride in zip((2, 3), command.pads, command.kernel, command.strides, strict=False):
        start = np.arange(command.output.shape[axis]) * stride - before
        sides.append(np.minimum(start + kernel, command.input.shape[axis]) - np.maximum(start, 0))
    return np.maximum(sides[0][:, None] * sides[1][None, :], 1)


def _window_sums(command: Pool, image: np.ndarray, window: Window, dtype: np.dtype) -> np.ndarray:
    image = padded(image, window, command.pad_value, dtype)
    size = (command.output.shape[2], command.output.shape[3])
    total = np.zeros((*image.shape[:2], *size), dtype)
    for k in range(window.kernel[0] * window.kernel[1]):
        total += tap(image, window, divmod(k, window.kernel[1]), size)
    return total


def _average_pool(command: Pool, image: np.ndarray, window: Window) -> np.ndarray:
    """f32: float64 sum / count, rounded once. Integers: exact round-half-away(sum*kh*kw/count), then requant."""
    counts = _counts(command)
    if is_float(command.input.dtype):
        mean = _window_sums(command, image, window, np.dtype(np.float64)) / counts
        return (np.maximum(mean, 0.0) if command.relu else mean).astype(np.float32)
    scaled = _window_sums(command, image, window, np.dtype(np.int64)) * (window.kernel[0] * window.kernel[1])
    if command.scale > 0:
        real = scaled / counts * command.scale + command.offset
        found = float_to_integer(round_half_away(real), 0, "i32").astype(np.int64)
        return saturate(np.maximum(found, command.zero_point) if command.relu else found, command.output.dtype)
    average = np.sign(scaled) * ((2 * np.abs(scaled) + counts) // (2 * counts))
    return requantize(average, command.requant or Requant(), command.output.dtype, relu=command.relu)


def pool(command: Pool, memory: Machine) -> None:
    """PorD pooling."""
    window = Window(command.kernel, command.strides, command.pads)
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
