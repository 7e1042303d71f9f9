"""What macro functions (FN) compute, in NumPy: those without a file for their kind.

The exponential and the power are computed in float64 and rounded to f32 once; everything else is f32 step by step,
except where a docstring says otherwise. A meaning takes the function, its operands' values and the view of its result.
"""

import numpy as np

from tpusim.isa import functions as fn
from tpusim.isa.region import View
from tpusim.simulator.integer import (
    doubling_multiply,
    float_to_integer,
    round_half_away,
    rounding_shift,
    saturate,
)

Operands = tuple[np.ndarray, ...]


def _exponential(values: np.ndarray) -> np.ndarray:
    return np.exp(values.astype(np.float64)).astype(np.float32)


def softmax(function: fn.Softmax, operands: Operands, output: View) -> np.ndarray:
    """Sums in float64, rounded to f32 once; along one element a constant, also of what is no number."""
    (x,), axis = operands, function.axis
    largest = x.max(axis=axis, keepdims=True)
    if largest.size == x.size:
        return np.full(x.shape, float(not function.log), np.float32)
    shifted = (x - largest) * np.float32(function.beta)
    powers = _exponential(shifted)
    total = powers.sum(axis=axis, keepdims=True, dtype=np.float64).astype(np.float32)
    quotient = powers / total
    if not function.log:
        return quotient
    with np.errstate(divide="ignore"):  # a quotient that underflowed: minus infinity
        return np.log(quotient.astype(np.float64)).astype(np.float32)


def softmax_int(function: fn.SoftmaxInt, operands: Operands, output: View) -> np.ndarray:
    """By table (numerics.md 11.1): idx = max - q, S = f32 sum of t[idx] in index order.

    p = t[idx] / (S * s_out), all in f32; round half away, which for p >= 0 is trunc(p + 0.5) too; + z_out, saturated.
    """
    (q, table), axis = operands, function.axis
    wide = q.astype(np.int16)
    index = (wide.max(axis=axis, keepdims=True) - wide).astype(np.uint8)
    terms = table.reshape(-1)[index]
    # accumulate (not sum, which adds pairwise) fixes the order of the f32 additions.
    total = np.add.accumulate(terms, axis=axis, dtype=np.float32).take([-1], axis=axis)
    p = terms / (total * np.float32(function.scale))
    return float_to_integer(round_half_away(p), function.zero_point, output.dtype)


def lrn(function: fn.Lrn, operands: Operands, output: View) -> np.ndarray:
    """In float64, rounded to f32 once; an even size has the window of size - 1."""
    x, around = operands[0].astype(np.float64), (function.size - 1) // 2
    squares = np.pad(x * x, ((0, 0), (around, around), (0, 0), (0, 0)))
    total = sum(squares[:, i : i + x.shape[1]] for i in range(2 * around + 1))
    return (x / (function.bias + function.alpha / function.size * total) ** function.beta).astype(np.float32)


def _centred(operands: Operands, zero_points: tuple[int, ...]) -> list[np.ndarray]:
    """The operands as int64 minus their zero points."""
    return [x.astype(np.int64) - z for x, z in zip(operands, zero_points, strict=True)]


def _scaled(values: list[np.ndarray], multipliers: tuple[int, ...], rshifts: tuple[int, ...]) -> list[np.ndarray]:
    """RSR(value * multiplier, rshift) each, half up."""
    return [rounding_shift(x * m, r, "half_up") for x, m, r in zip(values, multipliers, rshifts, strict=True)]


def add_int(function: fn.AddInt, operands: Operands, output: View) -> np.ndarray:
    """The sum in 64-bit integers."""
    terms = _scaled(_centred(operands, function.operand_zero_points), function.multipliers, function.rshifts)
    total = sum(terms[1:], start=terms[0])
    if function.relu:
        total = np.maximum(total, 0)
    return saturate(total + function.zero_point, output.dtype)


def mul_int(function: fn.MulInt, operands: Operands, output: View) -> np.ndarray:
    """The product in 64-bit integers."""
    first, *rest = _centred(operands, function.operand_zero_points)
    for factor in rest:
        first = first * factor
    if function.relu:
        first = np.maximum(first, 0)
    if function.qdm:
        scaled = doubling_multiply(first, function.multiplier, function.rshift)
    else:
        scaled = rounding_shift(first * function.multiplier, function.rshift, "half_up")
    return saturate(scaled + function.zero_point, output.dtype)


def sub_int(function: fn.SubInt, operands: Operands, output: View) -> np.ndarray:
    """The difference in 64-bit integers."""
    first, second = _scaled([x.astype(np.int64) for x in operands], function.multipliers, function.rshifts)
    return saturate(first - second, output.dtype, floor=0 if function.relu else None)


def const_int(function: fn.ConstInt, operands: Operands, output: View) -> np.ndarray:
    """The operation with a constant, in 64-bit integers."""
    term, number = operands[0].astype(np.int64) * function.multiplier, np.int64(function.constant)
    match function.kind:
        case "add":
            term = term + number
        case "sub":
            term = number - term if function.reverse else term - number
        case "max":
            term = np.maximum(term, number)
        case "min":
            term = np.minimum(term, number)
    zero = function.zero_point
    scaled = rounding_shift(term, function.rshift, "half_up") + zero
    return saturate(scaled, output.dtype, floor=zero if function.relu else None)


def pad(function: fn.Pad, operands: Operands, output: View) -> np.ndarray:
    """The value in the operand's type."""
    x, widths = operands[0], list(zip(function.before, function.after, strict=True))
    if function.mode == "constant":
        return np.pad(x, widths, constant_values=np.asarray(function.value).astype(x.dtype))
    return np.pad(x, widths, mode=function.mode)


def slice_(function: fn.Slice, operands: Operands, output: View) -> np.ndarray:
    """The result's number of elements along every axis."""
    parts = zip(function.offsets, function.steps, output.shape, strict=True)
    return operands[0][tuple(slice(o, o + (n - 1) * s + 1, s) for o, s, n in parts)]


def tile(function: fn.Tile, operands: Operands, output: View) -> np.ndarray:
    """Repeat the operand along every axis."""
    return np.tile(operands[0], function.times)


def upsample(function: fn.Upsample, operands: Operands, output: View) -> np.ndarray:
    """Repeat rows and columns, in the order of the result."""
    return operands[0].repeat(function.scale_h, 2).repeat(function.scale_w, 3).reshape(output.shape)


def arg(function: fn.Arg, operands: Operands, output: View) -> np.ndarray:
    """The first of equal extremes; the last is the first along the reversed axis."""
    (x,), axis = operands, function.axis
    best = {"ArgMax": np.argmax, "ArgMin": np.argmin}[function.mode]
    found = best(np.flip(x, axis), axis) if function.select_last else best(x, axis)
    found = x.shape[axis] - 1 - found if function.select_last else found
    return found.reshape(output.shape).astype(np.int32)


def interp(function: fn.Interp, operands: Operands, output: View) -> np.ndarray:
    """Rows, then columns; coordinates in f32; the last element has no right neighbour."""
    (image,) = operands
    if function.nearest:
        rows, columns = nearest(function, image.shape[2:], output.shape[2:])
        return image[:, :, rows][:, :, :, columns]
    axes = [neighbours(function, i, image.shape[2 + i], count) for i, count in enumerate(output.shape[2:])]
    if function.host:
        return _interp_on_host(image, axes, function)
    for axis, (left, right, _, d) in enumerate(axes, 2):
        a, b = image.take(left, axis), image.take(right, axis)
        image = a + d.reshape([-1 if i == axis else 1 for i in range(4)]) * (b - a)
    return image


def nearest(function: fn.Interp, before: tuple[int, ...], after: tuple[int, ...]) -> list[np.ndarray]:
    """The index that every place along h and w copies; steps and products in f32, those of a host's centres in f64."""
    found: list[np.ndarray] = []
    for size, count, stated in zip(before, after, (function.scale_h, function.scale_w), strict=True):
        step = np.float32(size) / np.float32(count) if function.host else np.float32(stated)
        if function.host and not function.asymmetric:
            at = np.ceil((np.arange(count) + 0.5) * float(step) - 1)
        else:
            at = np.multiply(np.arange(count), step, dtype=np.float32).astype(float)
            at = np.floor(at + 0.5) if function.align_corners and not function.host else np.floor(at)
        found.append(np.minimum(at, size - 1).astype(int))
    return found


def neighbours(function: fn.Interp, axis: int, before: int, after: int) -> tuple[np.ndarray, ...]:
    """(first neighbour, second, weight of the first, of the second) of every place along h (axis 0) or w, in f32."""
    scale = (function.scale_h, function.scale_w)[axis]
    if function.host:
        return _weights(before, after, function, at_start=scale == 1)
    places, step, half = np.arange(after, dtype=np.float32), np.float32(scale), np.float32(0.5)
    source = places * step if function.align_corners else (places + half) * step - half
    source = np.minimum(np.maximum(source, np.float32(0)), np.float32(before - 1))
    left = source.astype(np.int64)
    d = source - left.astype(np.float32)
    return left, np.minimum(left + 1, before - 1), np.float32(1) - d, d


def _interp_on_host(image: np.ndarray, axes: list[tuple[np.ndarray, ...]], function: fn.Interp) -> np.ndarray:
    """Four neighbours by the product of their weights; to the corners, columns first."""
    (top, bottom, above, below), (left, right, before, after) = axes
    a, b, c, d = (image[:, :, y][:, :, :, x] for y in (top, bottom) for x in (left, right))
    above, below = above[:, None], below[:, None]
    if function.align_corners:
        return above * (before * a + after * b) + below * (before * c + after * d)
    return above * before * a + above * after * b + below * before * c + below * after * d


def _weights(before: int, after: int, function: fn.Interp, *, at_start: bool) -> tuple[np.ndarray, ...]:
    """(first neighbour, second, weight of the first, of the second) of every place; at_start: a single one is at 0."""
    place, half, last = np.arange(after).astype(np.float32), np.float32(0.5), np.float32(before - 1)
    corners = function.align_corners
    if corners:
        at = np.float32(last / np.float32(after - 1)) * place if after > 1 else place
    elif function.asymmetric:
        at = place / (np.float32(after) / np.float32(before))
    elif before == after or (after == 1 and at_start):
        at = place
    else:
        at = (place + half) / (np.float32(after) / np.float32(before)) - half
    at = at.clip(np.float32(0), last)
    first = np.floor(at)
    second = np.minimum(first + 1, last)
    weights = [np.float32(1) - (at - first) if corners else second - at, at - first]
    if not corners:
        weights = [np.where(first == second, half, w) for w in weights]
    return first.astype(np.int64), second.astype(np.int64), *weights


def concat(function: fn.Concat, operands: Operands, output: View) -> np.ndarray:
    """Join the operands along the axis; bytes are moved unchanged."""
    return np.concatenate(operands, axis=function.axis)


def reshape(function: fn.Reshape, operands: Operands, output: View) -> np.ndarray:
    """The elements in order, in another shape."""
    return operands[0].reshape(output.shape)
