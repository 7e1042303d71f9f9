"""What the integer ops of CV18xx compute, in NumPy int64 with its f32 steps done one by one in f32.

Written from docs/spec/numerics.md 4.4, 5.2, 6 and 9 alone, independent of the kernels and of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from convolution import gathered
from op_oracles import ORACLES, channels, flagged, number, saturated, windows
from op_oracles_conv import geometry

from tpusim.ir.attrs import ints
from tpusim.ir.types import shape_of

Array = np.ndarray
Oracle = Callable[[Any, Sequence[Any]], Array]


def f32_shift(v: Array, m: Any, r: Any) -> Array:
    """4.4: to_int(f32(v)*m / 2^r, HALF_UP) = floor(x + 0.5), every step rounded to f32."""
    product = np.asarray(v).astype(np.float32) * np.asarray(m).astype(np.float32)
    x = product / np.exp2(np.asarray(r).astype(np.float32))
    assert x.dtype == np.float32
    return np.floor(x + np.float32(0.5)).astype(np.int64)


def qdm(v: Array, q: Any, r: Any) -> Array:
    """5.2 with e = -r: RSR(v*Q, 31, HALF_UP), clamped to int32, RSR(., r, HALF_AWAY)."""
    v, q, r = np.broadcast_arrays(*(np.asarray(a, np.int64) for a in (v, q, r)))
    upper = np.clip((v * q + (1 << 30)) // (1 << 31), -(1 << 31), (1 << 31) - 1)
    half = np.where(r > 0, np.int64(1) << np.maximum(r - 1, 0), 0)
    return np.sign(upper) * ((np.abs(upper) + half) // (np.int64(1) << r))


def relu(v: Array, op: Any) -> Array:
    return np.maximum(v, 0) if flagged(op) else v


def conv(op: Any, operands: Sequence[Any]) -> Array:
    """9.1: acc + b32, QDM per channel, relu after it."""
    x, w, b = operands
    acc = gathered(x, w, **geometry(op))
    if b is not None:
        acc += channels(b, 4)
    m, r = (channels(np.array(ints(op.attributes[k])), 4) for k in ("multiplier", "rshift"))
    return saturated(relu(qdm(acc, m, r), op), op)


def matmul(op: Any, operands: Sequence[Any]) -> Array:
    """9.2: relu on the accumulator, then QDM; each right matrix has a separate multiplier, shift and bias."""
    x, w, b = operands
    x = x.swapaxes(-1, -2) if flagged(op, "left_transpose") else x
    w = w.swapaxes(-1, -2) if flagged(op, "right_transpose") else w
    batch = w.shape[:-2]
    rows = [np.array(ints(a), np.int64).reshape(*batch, 1, 1) if batch else ints(a)[0] for a in
            (op.multipliers, op.rshifts)]  # fmt: skip
    acc = np.matmul(x.astype(np.int64), w.astype(np.int64))
    if b is not None:
        acc = acc + (b.astype(np.int64).reshape(*batch, 1, -1) if batch else b.astype(np.int64))
    return saturated(qdm(relu(acc, op), *rows), op)


def mul(op: Any, operands: Sequence[Array]) -> Array:
    """9.0: relu on the product, QDM."""
    total: Any = 1
    for q in operands:
        total = total * q.astype(np.int64)
    return saturated(qdm(relu(total, op), number(op, "multiplier"), number(op, "rshift")), op)


def weighted(sign: int) -> Oracle:
    """9.0 Add and Sub: sat(floor(relu(sum q_i*m_i)/2^r + .5))."""

    def compute(op: Any, operands: Sequence[Array]) -> Array:
        first, *rest = (q.astype(np.int64) * m for q, m in zip(operands, ints(op.multipliers), strict=True))
        for term in rest:
            first = first + sign * term
        return saturated(f32_shift(relu(first, op), 1, ints(op.rshifts)[0]), op)

    return compute


def extreme(name: str, pick: Callable[[Array, Array], Array]) -> Oracle:
    """9.0 Max and Min: both sides m, r; a constant operand is compared as it is."""

    def compute(op: Any, operands: Sequence[Array]) -> Array:
        if op.multipliers is None:
            return ORACLES[name](op, operands)
        first, *rest = (
            f32_shift(q, m, ints(op.rshifts)[0]) for q, m in zip(operands, ints(op.multipliers), strict=True)
        )
        for term in rest:
            first = pick(first, term)
        return saturated(relu(first, op), op)

    return compute


def concat(op: Any, operands: Sequence[Array]) -> Array:
    """9.0: per input HU and sat in the op."""
    if op.multipliers is None:
        return ORACLES["tpu.Concat"](op, operands)
    pairs = zip(operands, ints(op.multipliers), ints(op.rshifts), strict=True)
    return np.concatenate([saturated(f32_shift(q, m, r), op) for q, m, r in pairs], axis=number(op, "axis"))


def leaky_relu(op: Any, operands: Sequence[Array]) -> Array:
    """9.7: positives scaled, negatives by another multiplier and shift."""
    q = operands[0].astype(np.int64)
    positive = f32_shift(q, number(op, "multiplier"), number(op, "rshift"))
    return saturated(
        np.where(q >= 0, positive, f32_shift(q, number(op, "multiplier_neg"), number(op, "rshift_neg"))), op
    )


def prelu(op: Any, operands: Sequence[Array]) -> Array:
    """9.7: positives scaled, negatives by the slope of their channel."""
    q, slope = operands[0].astype(np.int64), operands[1].reshape(-1)
    positive = f32_shift(q, number(op, "multiplier_pos"), number(op, "rshift_pos"))
    return saturated(np.where(q >= 0, positive, f32_shift(q, channels(slope, q.ndim), number(op, "rshift"))), op)


def pool(op: Any, operands: Sequence[Array]) -> Array:
    """9.6: v = floor(average*kh*kw + .5), then m and r in f32."""
    if op.pool_mode.data == "Max":
        return ORACLES["tpu.Pool2D"](op, operands)
    x, size = operands[0].astype(np.int64), prod(ints(op.kernel_shape))
    v = np.zeros((*shape_of(op.output), 1, 1)[:4], np.int64)
    for (i, j), inside in windows(op, x):
        count = size if flagged(op, "count_include_pad") else inside.shape[2] * inside.shape[3]
        v[:, :, i, j] = (2 * inside.sum(axis=(2, 3)) * size + count) // (2 * count)
    scaled = f32_shift(v, number(op, "multiplier"), number(op, "rshift")).reshape(shape_of(op.output))
    return saturated(relu(scaled, op), op)


def reduce(op: Any, operands: Sequence[Array]) -> Array:
    """11.3: f32 sum in index order (exact), then m and r."""
    x, axes = operands[0].astype(np.int64), ints(op.axes)
    take = {"ReduceMax": np.max, "ReduceMin": np.min}.get(op.mode.data, np.sum)
    x = np.abs(x) if op.mode.data == "ReduceL1" else x
    v = take(x, axis=axes, keepdims=bool(number(op, "keepdims")))
    assert np.abs(v).max() < 1 << 24
    return saturated(f32_shift(v, ints(op.multiplier)[0], ints(op.rshift)[0]), op)


def bf16_bits(x: Array) -> Array:
    """8.2: half to even on the upper 16 bits of f32; infinities and NaN give 0x7f7f."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)
    upper = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF
    return np.where(upper & 0x7F80 == 0x7F80, 0x7F7F, upper)


def bf16(x: Array) -> Array:
    """8.2, as f32."""
    return (bf16_bits(x).astype(np.uint32) << 16).view(np.float32)


def cast(op: Any, operands: Sequence[Array]) -> Array:
    """8.1: bf16 -> int8 rounds to bf16, then to an integer, both half to even; f32 -> int8 runs on the CPU."""
    x = operands[0]
    if x.dtype == np.float32:
        return ORACLES["tpu.Cast"](op, operands)
    scale = bf16(np.array([1.0 / op.output.type.element_type.scale.data], np.float32))[0]
    return saturated(np.rint(bf16(x.astype(np.float32) * scale).astype(np.float64)).astype(np.int64), op)


def nearest(op: Any, operands: Sequence[Array]) -> Array:
    """12: the host copies bytes; with asymmetric coordinates from floor(o * in / out)."""
    assert op.mode.data == "nearest" and op.coord_mode.data == "asymmetric"
    x, size = operands[0], op.output.type.get_shape()
    rows, columns = (np.arange(after) * x.shape[axis] // after for axis, after in zip((2, 3), size[2:], strict=True))
    return x[:, :, rows][..., columns]


CV18XX: dict[str, Oracle] = ORACLES | {
    "tpu.Add": weighted(1),
    "tpu.Cast": cast,
    "tpu.Concat": concat,
    "tpu.Conv2D": conv,
    "tpu.Interp": nearest,
    "tpu.LeakyRelu": leaky_relu,
    "tpu.MatMul": matmul,
    "tpu.Max": extreme("tpu.Max", np.maximum),
    "tpu.Min": extreme("tpu.Min", np.minimum),
    "tpu.Mul": mul,
    "tpu.PReluOp": prelu,
    "tpu.Pool2D": pool,
    "tpu.Reduce": reduce,
    "tpu.Sub": weighted(-1),
}
"""By op: the form of CV18xx, else the one all chips share."""
