"""Oracles of op_oracles.py: transposed and 3-D convolution, requant per channel, 3-D pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from convolution import gathered, scattered
from xdsl.ir import SSAValue

from tpusim.ir.attrs import ints
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.ops.framework.base import TpuOp

Array = np.ndarray
Oracle = Callable[[Any, Sequence[Any]], Array]


def zero(v: SSAValue) -> int:
    uniform = uniform_of(v)
    return uniform.zero_point.value.data if uniform else 0


def flagged(op: Any, key: str = "do_relu") -> bool:
    attribute = getattr(op, key, None)
    return attribute is not None and bool(attribute.value.data)


def stored(v: Array, op: TpuOp) -> Array:
    dtype = storage_dtype(element_of(op.results[0]))
    return np.clip(v, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def half_away(v: Array, r: Array) -> Array:
    """RSR HALF_AWAY_FROM_ZERO (4.3) of Python integers, a left shift for r < 0."""

    def one(a: int, n: int) -> int:
        if n <= 0:
            return a << -n
        sign = -1 if a < 0 else 1
        return sign * ((abs(a) + (1 << (n - 1))) >> n)

    v, r = np.broadcast_arrays(v, r)
    flat = [one(int(a), int(n)) for a, n in zip(v.reshape(-1), r.reshape(-1), strict=True)]
    return np.array(flat, dtype=object).reshape(v.shape)


def geometry(op: Any) -> dict[str, Any]:
    """The parameters of a convolution that `convolution` reads in addition to its operands."""
    fields = {name: ints(op.attributes[name]) for name in ("strides", "pads", "dilations")}
    return {**fields, "groups": op.attributes["group"].value.data}


def transposed(op: Any, operands: Sequence[Any]) -> Array:
    """Accumulators of a transposed convolution, the zero point removed from every input, and bias.

    z_in*sum(w) is added back: the bias of the op has it taken out (7.2).
    """
    x, w, b = operands
    acc = scattered(x.astype(np.int64) - zero(op.input), w, shape_of(op.output)[2:], **geometry(op))
    ones = (1,) * (w.ndim - 2)
    acc += (zero(op.input) * w.astype(np.int64).reshape(len(w), -1).sum(axis=1)).reshape(-1, *ones)
    return acc if b is None else acc + b.astype(np.int64).reshape(-1, *ones)


def deconv(op: Any, operands: Sequence[Any]) -> Array:
    """9.1: relu(acc + bias) in int32; with a requant sat(relu(.)) of it.

    BM1684: RSR(acc + bias, r, HALF_UP) (DN-12). CV18xx: v = RSR((acc + bias)*m, 31, HALF_UP) inside int32, then
    RSR(v, r, HALF_AWAY), m and r per channel (5.2, 5.5).
    """
    acc = transposed(op, operands)
    if op.quant_mode is not None and op.quant_mode.data == "QDM":
        m, r = (np.array(ints(v), dtype=object).reshape(-1, 1, 1) for v in (op.multiplier, op.rshift))
        doubled = (acc.astype(object) * m + (1 << 30)) >> 31
        acc = half_away(np.clip(doubled, -(2**31), 2**31 - 1), r).astype(np.int64)
    elif op.rshift is not None:
        (r,) = ints(op.rshift)
        acc = (acc + ((1 << r) >> 1)) >> r
    return stored(np.maximum(acc, 0) if flagged(op) else acc, op)


def deconv3d(op: Any, operands: Sequence[Any]) -> Array:
    """9.1: relu(acc + bias) in int32; every input element scatters its products, what lies outside is left out."""
    acc = transposed(op, operands)
    return stored(np.maximum(acc, 0) if flagged(op) else acc, op)


def requant_axis(op: Any, operands: Sequence[Any]) -> Array:
    """Section 6: sat(z_out + RSR(v*m[c], r[c], HALF_AWAY)), in Python integers; the table has m and -r."""
    x, table = operands[0].astype(object), np.asarray(operands[1])[0, :, 0]
    shape = (-1, *(1,) * (x.ndim - 2))
    left = table[:, 1] if table.shape[1] > 2 else (table[:, 1] & 0xFF).astype(np.uint8).view(np.int8)
    m, r = (np.array(v.tolist(), dtype=object).reshape(shape) for v in (table[:, 0], -left.astype(np.int64)))
    v = half_away(x * m, r) + zero(op.output)
    dtype = storage_dtype(element_of(op.output))
    return np.clip(v, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def conv3d(op: Any, operands: Sequence[Any]) -> Array:
    """9.1: relu(acc + bias) in int32, padding z_in."""
    x, w, b = operands
    acc = gathered(x, w, zero(op.input), **geometry(op))
    if b is not None:
        acc += b.astype(np.int64).reshape(-1, 1, 1, 1)
    return stored(np.maximum(acc, 0) if flagged(op) else acc, op)


def pool3d(op: Any, operands: Sequence[Any]) -> Array:
    """9.6: maximum; sat(round-half-away(avg*k*scale + offset)); BM1684: the table of 1/k (5.4)."""
    x, kernel, strides = operands[0].astype(np.int64), ints(op.kernel_shape), ints(op.strides)
    pads, shape = ints(op.pads), shape_of(op.output)
    y = np.zeros(shape, np.int64)
    counted, size = flagged(op, "count_include_pad"), prod(kernel)
    for place in product(*map(range, shape[2:])):
        starts = [p * s - before for p, s, before in zip(place, strides, pads, strict=False)]
        box = tuple(slice(max(a, 0), a + k) for a, k in zip(starts, kernel, strict=True))
        inside = x[(slice(None), slice(None), *box)]
        where = (slice(None), slice(None), *place)
        if op.pool_mode.data == "Max":
            y[where] = inside.max(axis=(2, 3, 4))
            continue
        seen = prod(inside.shape[2:])
        total = (inside.sum(axis=(2, 3, 4)) + (zero(op.input) * (size - seen) if counted else 0)) * size
        count = size if counted else seen
        if op.scale is not None:
            v = total / count * op.scale.value.data + op.offset.value.data
            y[where] = np.sign(v) * np.floor(np.abs(v) + 0.5)
        else:
            half = np.sign(total) * ((2 * np.abs(total) + count) // (2 * count)) * op.multiplier.value.data
            y[where] = (half + ((1 << op.rshift.value.data) >> 1)) >> op.rshift.value.data
    return stored(np.maximum(y, zero(op.output)) if flagged(op) else y, op)


ORACLES: dict[str, Oracle] = {
    "tpu.Conv3D": conv3d,
    "tpu.Deconv": deconv,
    "tpu.Deconv3D": deconv3d,
    "tpu.Pool3D": pool3d,
    "tpu.RequantIntAxis": requant_axis,
}
