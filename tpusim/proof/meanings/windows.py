"""Convolutions, transposed convolutions and pools."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tpusim.field import (
    PRIME,
    Elements,
    Field,
    Scaling,
    Sliding,
    convolved,
    inverse,
    largest,
    requanted,
    saturated,
    seen,
    summed,
    times,
)
from tpusim.field.integers import by_channel, clamped
from tpusim.field.windows import padded
from tpusim.ir.attrs import ints
from tpusim.ir.packing import PACKED_BITS
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ops.conv.packed import PackedConvTpu
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.deconv.base import DeconvBase
from tpusim.ops.framework.families import is_set, relu_limit_of, relu_of, zero_point
from tpusim.ops.pool.tpu import PoolTpu, pool_shape
from tpusim.proof.meanings.stored import rectified_in_steps, stored_float, type_of


class Coefficients(NamedTuple):
    """Of a convolution: filter (oc, ic/g, ...), bias (oc,), rows of requant parameters and how these are stored."""

    filter: Elements
    bias: Elements | None
    words: Elements | None = None
    rounding: str = ""


def conv(op: PackedConvTpu, operands: Sequence[Any], field: Field) -> Elements | None:
    """Sums of products and bias; integers requantised by channel, by the one shift of all, or left in 32 bits."""
    found, dtype, relu = _coefficients(op, operands, field), type_of(op.output), relu_of(op)
    taps = found.filter.reshape(len(found.filter), found.filter.shape[1], -1)
    x = operands[0]
    total = _transposed(op, x, taps, field) if isinstance(op, DeconvBase) else _convolved(op, x, taps, field)
    if found.words is not None and found.rounding == "packed":
        return by_channel(field, total, found.words, dtype, relu=relu, rounding=found.rounding)
    if found.bias is not None:
        total = summed((total, found.bias.reshape(-1, *(1,) * (total.ndim - 2))))
    if found.words is not None:
        return by_channel(field, total, found.words, dtype, relu=relu, rounding=found.rounding)
    if not op.integer or dtype == "i32":
        limit = -1.0 if op.integer else relu_limit_of(op)
        total = clamped(field, total, 0, limit if limit >= 0 else None) if relu else total
        return stored_float(total, op.output, field)
    if op.rshift is None or len(set(ints(op.rshift))) > 1:
        return None
    by = Scaling(rshift=ints(op.rshift)[0], zero_point=zero_point(op.output))
    return requanted(field, total, by, dtype, relu=relu)


def _coefficients(op: PackedConvTpu, operands: Sequence[Any], field: Field) -> Coefficients:
    """As they are, or out of the chip's layouts (hardware.md 2.3)."""
    _, filter, bias = operands
    if isinstance(op, TpuConv2D) and is_set(op.coeff_merged):
        layout = op.merged_layout_of_type()
        rows, bias, words = layout.bytes_of(filter.reshape(layout.rows, -1), with_bias=is_set(op.with_bias))
        kind = type_of(op.filter)
        if layout.bits == PACKED_BITS:
            rows = field.halves(field.to_bytes(rows, kind, 1)[..., 0], layout.packed_type(kind))
        bias = None if bias is None else field.words(bias, kind, "i32")[:, 0]
        return Coefficients(op.unpacked_filter(rows), bias, field.words(words, kind, "i32"), "half_up")
    filter = op.unpacked_filter(filter) if op.packed else filter
    if not is_set(op.channel_packed):
        return Coefficients(filter, bias)
    if op.integer:
        return Coefficients(filter, None, bias.reshape(bias.shape[1], -1), "packed")
    upper, lower = bias.reshape(2, -1)
    return Coefficients(filter, field.apply(("halves of a float",), upper, lower))


def _convolved(op: PackedConvTpu, x: Elements, filter: Elements, field: Field) -> Elements:
    """Sums of products with a filter (oc, ic/g, taps); padding is the input's zero point."""
    geometry, inserts = op.geometry, op.inserts if isinstance(op, TpuConv2D) else None
    between = () if inserts is None else ints(inserts)
    window = Sliding(op.kernel, geometry["strides"], geometry["pads"], geometry["dilations"], between)
    return convolved(field, x, filter, window, op.groups, shape_of(op.output)[2:], zero_point(op.input) % PRIME)


def _transposed(op: DeconvBase, x: Elements, filter: Elements, field: Field) -> Elements:
    """A convolution of the widened, widely padded image with the turned kernel, cropped."""
    strides, pads, size = ints(op.strides), ints(op.pads), shape_of(op.output)[2:]
    reach = tuple(extent - 1 for extent in op.reach)
    after = tuple(r + more for r, more in zip(reach, ints(op.output_padding), strict=True))
    inserts = tuple(stride - 1 for stride in strides)
    window = Sliding(op.kernel, (1,) * len(reach), reach + after, op.geometry["dilations"], inserts)
    whole = tuple((n - 1) * s + 1 + a for n, s, a in zip(x.shape[2:], strides, after, strict=True))
    found = convolved(field, x, filter[:, :, ::-1], window, op.groups, whole, zero_point(op.input) % PRIME)
    return found[(slice(None), slice(None), *(slice(p, p + n) for p, n in zip(pads, size, strict=False)))]


def pool(op: PoolTpu, operands: Sequence[Any], field: Field) -> Elements | None:
    """The largest element of every window, or the sum divided by the elements that count."""
    geometry, x = op.geometry, operands[0]
    window = Sliding(geometry["kernel"], geometry["strides"], geometry["pads"])
    size = pool_shape(x.shape, **geometry)[2:]
    if op.pool_mode.data == "Max":
        best = largest(field, x, window, size)
        if uniform_of(op.output) is None:
            return rectified_in_steps(best, op, field, rounded=True)
        floor = 0 if relu_of(op) else None
        return saturated(field, best, type_of(op.output), floor=floor, known=type_of(op.input))
    wide = padded(x, window, zero_point(op.input) % PRIME)
    total = summed(seen(wide, window, at, size) for at in window.positions())
    inside = padded(np.ones((1, 1, *x.shape[2:]), np.int64), window, int(is_set(op.count_include_pad)))
    return _mean(op, total, summed(seen(inside, window, at, size) for at in window.positions()), field)


def _mean(op: PoolTpu, total: Elements, counts: Elements, field: Field) -> Elements:
    whole, zero, relu = prod(op.geometry["kernel"]), zero_point(op.output), relu_of(op)
    if op.scale is not None and op.offset is not None:
        key = ("real mean", op.scale.value.data, op.offset.value.data)
        found = field.apply(key, times(total, whole), counts)
        return saturated(field, found, type_of(op.output), floor=zero if relu else None)
    if op.scaling is None:
        return rectified_in_steps(times(total, inverse(counts)), op, field)
    rounded = field.apply(("mean", "half_up" if op.half_up else "half_away"), times(total, whole), counts)
    mean = np.where(counts == whole, total, rounded)
    return requanted(
        field, mean, Scaling(*op.scaling, mode="f32" if op.half_up else "shift"), type_of(op.output), relu=relu
    )
