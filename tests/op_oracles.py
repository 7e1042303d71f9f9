"""What each integer tpu op computes, in NumPy int64 and plain loops, written from docs/spec/numerics.md alone.

Independent of the kernels and of the machine: three implementations must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from convolution import gathered
from op_oracles_conv import ORACLES as CONVOLUTIONS
from op_oracles_conv import geometry
from op_oracles_elementwise import ORACLES as ELEMENTWISE
from op_oracles_logic import ORACLES as LOGIC
from xdsl.ir import SSAValue

from tpusim.ir.attrs import ints
from tpusim.ir.types import element_of, is_tensor, shape_of, storage_dtype, uniform_of
from tpusim.ops.framework.base import TpuOp

Array = np.ndarray
Oracle = Callable[[Any, Sequence[Any]], Array]


def half_up(v: Array, r: Any) -> Array:
    """RSR HALF_UP (4.3): floor(v/2^r + 1/2); a left shift for r < 0."""
    v, r = np.broadcast_arrays(np.asarray(v, np.int64), np.asarray(r, np.int64))
    right = np.maximum(r, 0)
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    return ((v + half) >> right) << np.maximum(-r, 0)


def half_away(v: Array, r: int) -> Array:
    """RSR HALF_AWAY_FROM_ZERO (4.3)."""
    return np.sign(v) * half_up(np.abs(v), r)


def saturated(v: Array, op: TpuOp) -> Array:
    dtype = storage_dtype(element_of(op.results[0]))
    return np.clip(v, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def zero(v: SSAValue) -> int:
    uniform = uniform_of(v)
    return uniform.zero_point.value.data if uniform else 0


def flagged(op: Any, key: str = "do_relu") -> bool:
    attribute = getattr(op, key, None)
    return attribute is not None and bool(attribute.value.data)


def number(op: Any, key: str) -> int:
    """An attribute by its Python name; those of tpusim have a prefix in the module."""
    return getattr(op, key).value.data


def channels(v: Array, rank: int) -> Array:
    return v.astype(np.int64).reshape(1, -1, *(1,) * (rank - 2))


# ----------------------------------------------------------------------------------------------------------- sections 9


def conv(op: Any, operands: Sequence[Any]) -> Array:
    """9.1: sat(relu(RSR((acc + bias)*m, r) + z_out)); BM1684 multiplies by 1."""
    x, w, b = operands
    acc = gathered(x, w, zero(op.input), **geometry(op))
    if b is not None:
        acc += channels(b, 4)
    m, r = (channels(np.array(ints(getattr(op, k))), 4) for k in ("multiplier", "rshift"))
    v = half_up(acc * m, r) + zero(op.output)
    return saturated(np.maximum(v, zero(op.output)) if flagged(op) else v, op)


def matmul(op: Any, operands: Sequence[Any]) -> Array:
    """9.2: sat(RSR(relu(acc + bias)*m, r) + z_out)."""
    x, w, b = operands
    inside = flagged(op, "heads_inside")
    x, w = (a.swapaxes(1, 2) if inside else a for a in (x, w))
    x = x.swapaxes(-1, -2) if flagged(op, "left_transpose") else x
    w = w.swapaxes(-1, -2) if flagged(op, "right_transpose") else w
    acc = np.matmul(x.astype(np.int64), w.astype(np.int64)) + (0 if b is None else b.astype(np.int64))
    acc = np.maximum(acc, 0) if flagged(op) else acc
    y = saturated(half_up(acc * ints(op.multipliers)[0], ints(op.rshifts)[0]) + zero(op.output), op)
    return y.swapaxes(1, 2) if inside else y


def add(op: Any, operands: Sequence[Array]) -> Array:
    """9.0, 9.5: each operand scaled and rounded alone, summed, relu before z_out."""
    total: Any = 0
    for q, v, m, r in zip(operands, op.inputs, ints(op.multipliers), ints(op.rshifts), strict=True):
        total = total + half_up((q.astype(np.int64) - zero(v)) * m, r)
    return saturated((np.maximum(total, 0) if flagged(op) else total) + zero(op.output), op)


def mul(op: Any, operands: Sequence[Array]) -> Array:
    """9.0, 9.5: sat(RSR(relu(product)*m, r) + z_out)."""
    total: Any = 1
    for q, v in zip(operands, op.inputs, strict=True):
        total = total * (q.astype(np.int64) - zero(v))
    total = np.maximum(total, 0) if flagged(op) else total
    return saturated(half_up(total * number(op, "multiplier"), number(op, "rshift")) + zero(op.output), op)


def windows(op: Any, x: Array) -> Iterator[tuple[tuple[int, int], Array]]:
    """(output place, values inside the image) of every window."""
    (kh, kw), (sh, sw), (top, left, _, _) = ints(op.kernel_shape), ints(op.strides), ints(op.pads)
    _, _, oh, ow = (*shape_of(op.output), 1, 1)[:4]  # (n, c) without keepdims
    for i in range(oh):
        for j in range(ow):
            y, z = i * sh - top, j * sw - left
            yield (i, j), x[:, :, max(y, 0) : y + kh, max(z, 0) : z + kw]


def pool(op: Any, operands: Sequence[Array]) -> Array:
    """9.6: maximum; or round-half-away(average*kh*kw), then RSR(v*m, r)."""
    x = operands[0].astype(np.int64)
    y = np.zeros((*shape_of(op.output), 1, 1)[:4], np.int64)
    size = prod(ints(op.kernel_shape))
    for (i, j), inside in windows(op, x):
        if op.pool_mode.data == "Max":
            y[:, :, i, j] = inside.max(axis=(2, 3))
            continue
        count = size if flagged(op, "count_include_pad") else inside.shape[2] * inside.shape[3]
        total = inside.sum(axis=(2, 3)) * size
        y[:, :, i, j] = np.sign(total) * ((2 * np.abs(total) + count) // (2 * count))
    if op.pool_mode.data == "Avg":
        y = half_up(y * number(op, "multiplier"), number(op, "rshift"))
    y = y.reshape(shape_of(op.output))
    return saturated(np.maximum(y, 0) if flagged(op) else y, op)


def scale(op: Any, operands: Sequence[Array]) -> Array:
    """9.4: sat(relu(RSR(q*m + B, r, DOWN) + z_out)); BM1684 clamps the sum to 16 bits."""
    x, m, b, r = operands
    v = x.astype(np.int64) * channels(m, x.ndim) + channels(b, x.ndim)
    if flagged(op, "clamp16"):
        low, high = (-(2**15), 2**15 - 1) if storage_dtype(element_of(op.output)).kind == "i" else (0, 2**16 - 1)
        v = np.clip(v, low, high)
    v = (v >> channels(r, x.ndim)) + zero(op.output)
    return saturated(np.maximum(v, 0) if flagged(op) else v, op)


def rescale(rounding: Callable[[Array, int], Array]) -> Oracle:
    """Section 6: sat(RSR((q - z_in)*m, r) + z_out)."""

    def compute(op: Any, operands: Sequence[Array]) -> Array:
        v = (operands[0].astype(np.int64) - zero(op.input)) * number(op, "multiplier")
        return saturated(rounding(v, number(op, "rshift")) + zero(op.output), op)

    return compute


def relu(op: Any, operands: Sequence[Array]) -> Array:
    """9.0, 9.7: bytes max(q, 0); BM1684 rescales by an 8-bit multiplier first."""
    v = operands[0].astype(np.int64)
    if op.multiplier is not None:
        v = half_up(v * number(op, "multiplier"), number(op, "rshift"))
    return saturated(np.maximum(v, 0), op)


def cast(op: Any, operands: Sequence[Array]) -> Array:
    """8.1: sat(round-half-away(F(x*F(1/s))) + z) for an operand of type F, and f32(s)*(q - z)."""
    (x,), source, target = operands, uniform_of(op.input), uniform_of(op.output)
    if target is None:
        assert source is not None
        return np.float32(source.scale.data) * (x.astype(np.int64) - zero(op.input)).astype(np.float32)
    kind = storage_dtype(element_of(op.input))
    inverse = np.float32(1.0 / target.scale.data).astype(kind).astype(np.float32)
    product = (x.astype(np.float32) * inverse).astype(kind).astype(np.float64)
    rounded = np.sign(product) * np.floor(np.abs(product) + 0.5)
    return saturated(rounded.astype(np.int64) + zero(op.output), op)


def softmax(op: Any, operands: Sequence[Array]) -> Array:
    """11.1: t[M - q] / (sum of t * s_out), the sum in f32 in index order, half away or trunc(p + 0.5)."""
    q, table = operands
    axis, target = number(op, "axis"), uniform_of(op.output)
    assert target is not None
    q = np.moveaxis(q.astype(np.int64), axis, 0)
    terms = table[q.max(axis=0) - q]
    total = np.zeros(terms.shape[1:], np.float32)
    for term in terms:
        total = total + term
    p = terms / (total * np.float32(target.scale.data))
    return saturated(np.moveaxis(np.floor(p.astype(np.float64) + 0.5).astype(np.int64), 0, axis) + zero(op.output), op)


def leaky_relu(op: Any, operands: Sequence[Array]) -> Array:
    """9.0: q >= 0 ? q : RSR(q*m, r)."""
    q = operands[0].astype(np.int64)
    return saturated(np.where(q >= 0, q, half_up(q * number(op, "multiplier"), number(op, "rshift"))), op)


def prelu(op: Any, operands: Sequence[Array]) -> Array:
    """9.0: q < 0 ? RSR(q*slope[c], r) : q."""
    q, slope = operands[0].astype(np.int64), operands[1].reshape(-1)
    return saturated(np.where(q < 0, half_up(q * channels(slope, q.ndim), number(op, "rshift")), q), op)


def lut(op: Any, operands: Sequence[Array]) -> Array:
    """Section 10: the entry of the byte, a negative i at 256 + i."""
    q, table = operands
    return table.reshape(-1)[q.astype(np.int64) % 256]


def top_k(op: Any, operands: Sequence[Array]) -> Array:
    """Elements or places in the order of the values; of equal ones the first place first."""
    values = operands[0].astype(np.float64) * (-1 if flagged(op, "largest") else 1)
    order = np.argsort(values, axis=number(op, "axis"), kind="stable")
    places = np.take(order, range(number(op, "K")), axis=number(op, "axis")).astype(np.int32)
    return np.take_along_axis(operands[0], places, number(op, "axis")) if op.result.data == "values" else places


def suppressed(op: Any, operands: Sequence[Array]) -> Array:
    """Boxes class by class, from the highest score down, in rational numbers."""
    boxes, scores = ([[[Fraction(float(v)) for v in row] for row in batch] for batch in x] for x in operands)
    limit, floor, rows = Fraction(op.iou_threshold.value.data), op.score_threshold, list[tuple[int, int, int]]()
    for batch, classes in enumerate(scores):
        sides = [_sides(box, center=flagged(op, "center_point_box")) for box in boxes[batch]]
        for which, of_class in enumerate(classes):
            kept: list[int] = []
            for box in sorted(range(len(of_class)), key=lambda i: -of_class[i]):  # noqa: B023  used at once
                low = floor is not None and of_class[box] <= Fraction(floor.value.data)
                if not low and len(kept) < number(op, "max_output_size"):
                    kept += [] if any(_shared(sides[box], sides[k]) > limit for k in kept) else [box]
            rows += [(batch, which, box) for box in kept]
    found = np.full(op.output.type.get_shape(), -1, np.int32)
    found[: len(rows)] = np.array(rows).reshape(-1, 3)
    return found


def _sides(box: Sequence[Fraction], *, center: bool) -> tuple[tuple[Fraction, Fraction], ...]:
    """(low, high) along both axes."""
    spans = [(m - e / 2, m + e / 2) if center else (m, e) for m, e in zip(box[:2], box[2:], strict=True)]
    return tuple((min(span), max(span)) for span in spans)


def _shared(one: tuple[tuple[Fraction, Fraction], ...], other: tuple[tuple[Fraction, Fraction], ...]) -> Fraction:
    """Intersection over union."""
    common, area, areas = Fraction(1), Fraction(1), Fraction(1)
    for (low, high), (start, end) in zip(one, other, strict=True):
        common *= max(Fraction(0), min(high, end) - max(low, start))
        area, areas = area * (high - low), areas * (end - start)
    return common / (area + areas - common) if common else Fraction(0)


def blocks(op: Any, operands: Sequence[Array]) -> Array:
    """Depth2Space element by element: pixel (h*rows + i, w*columns + j) of channel c is channel (c, i, j) at (h, w)."""
    rows, columns = op.block_h.value.data, op.block_w.value.data
    inverse, first, swapped = (bool(flag.value.data) for flag in (op.is_inversed, op.is_crd, op.swap_cr))
    last = [flag is not None and not flag.value.data for flag in (op.in_is_nchw, op.out_is_nchw)]
    x, result = np.asarray(operands[0]), np.empty(tuple(op.output.type.get_shape()), operands[0].dtype)
    x, y = (np.moveaxis(a, 3, 1) if at_end else a for a, at_end in zip((x, result), last, strict=True))
    _, c, height, width = (x if inverse else y).shape
    for channel, row, column in np.ndindex(c, height, width):
        (h, i), (w, j) = divmod(row, rows), divmod(column, columns)
        block = j * rows + i if swapped else i * columns + j
        deep = channel * rows * columns + block if first else block * c + channel
        if inverse:
            y[:, deep, h, w] = x[:, channel, row, column]
        else:
            y[:, channel, row, column] = x[:, deep, h, w]
    return result


ORACLES: dict[str, Oracle] = {
    "tpu.Depth2Space": blocks,
    "tpu.Active": lambda op, x: np.abs(x[0].astype(np.int64)).astype(x[0].dtype),
    "tpu.LeakyRelu": leaky_relu,
    "tpu.Lut": lut,
    "tpu.PReluOp": prelu,
    "tpu.Add": add,
    "tpu.Cast": cast,
    "tpu.Concat": lambda op, x: np.concatenate(x, axis=number(op, "axis")),
    "tpu.Conv2D": conv,
    "tpu.MatMul": matmul,
    "tpu.Mul": mul,
    "tpu.MulShift": rescale(half_up),
    "tpu.TopK": top_k,
    "tpu.Nms": suppressed,
    "tpu.Permute": lambda op, x: np.transpose(x[0], ints(op.order)),
    "tpu.Pool2D": pool,
    "tpu.Relu": relu,
    "tpu.RequantInt": rescale(half_away),
    "tpu.Reshape": lambda op, x: x[0].reshape(ints(op.shape)),
    "tpu.Scale": scale,
    "tpu.Softmax": softmax,
    "tpu.SwapDimInner": lambda op, x: np.roll(x[0], [-o for o in ints(op.offset)], range(x[0].ndim)),
    **ELEMENTWISE,
    **CONVOLUTIONS,
    **LOGIC,
}
"""By op; ops that only compute in float (Clip, LRN) have none."""


def has_integer_form(op: TpuOp) -> bool:
    """Whether the op's meaning is defined by integers: its result is stored as one, or it is a cast of one."""
    if op.name == "tpu.Cast":
        return any(uniform_of(v) is not None for v in (op.operands[0], op.results[0]))
    return is_tensor(op.results[0]) and storage_dtype(element_of(op.results[0])).kind in "iu"
