"""Sums, differences, products, joined tensors, requants, casts and functions of one element."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpusim.field import PRIME, Elements, Field, Scaling, plus, requanted, saturated, shifted, summed, times
from tpusim.field import extreme as extreme_of
from tpusim.field.integers import by_channel, clamped
from tpusim.ir.attrs import floats, ints
from tpusim.ir.types import element_of, storage_dtype, uniform_of
from tpusim.ops.activation.tpu import FloatFunction
from tpusim.ops.add import DIFFERENCE, TpuAdd
from tpusim.ops.concat import TpuConcat
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.families import is_set, relu_limit_of, relu_of, zero_point
from tpusim.ops.minmax import ExtremeTpu
from tpusim.ops.mul import TpuMul
from tpusim.ops.norm.tpu import TpuScale
from tpusim.ops.pad import TpuPad
from tpusim.ops.relu import TpuClip, TpuRelu
from tpusim.ops.requant_axis import TpuRequantIntAxis
from tpusim.ops.rescale import Requantising
from tpusim.ops.sub import TpuDiv, TpuSub
from tpusim.proof.meanings.stored import rectified, rectified_in_steps, stored_float, type_of, without_zero


def add(op: TpuAdd, operands: Sequence[Any], field: Field) -> Elements | None:
    """Every operand shifted, then their sum with relu; a zero point comes after the relu."""
    zeros, ms, rs = [zero_point(v) for v in op.inputs], op.multipliers, op.rshifts
    dtype, zero, relu = type_of(op.output), zero_point(op.output), relu_of(op)
    if ms is None or rs is None:
        minus = op.coeff is not None and floats(op.coeff) == DIFFERENCE
        total = (operands[0] - operands[1]) % PRIME if minus else _chained(_plus, operands, op, field)
        if dtype == "i32":
            return clamped(field, total, 0, None) if relu else total
        return stored_float(rectified(total, op, field), op.output, field)
    terms = [times(without_zero(x, z), m) for x, z, m in zip(operands, zeros, ints(ms), strict=True)]
    if len(ints(rs)) == 1:
        total = clamped(field, summed(terms), 0, None) if relu else summed(terms)
        return saturated(field, shifted(field, total, ints(rs)[0], "half_up"), dtype)
    total = summed(shifted(field, x, r, "half_up") for x, r in zip(terms, ints(rs), strict=True))
    if zero and relu:
        total = clamped(field, total, 0, None)
    return saturated(field, plus(total, zero), dtype, floor=0 if relu and not zero else None)


def sub(op: TpuSub, operands: Sequence[Any], field: Field) -> Elements | None:
    """Both operands shifted, then their difference with relu; with one shift for both the other way round."""
    dtype, relu = type_of(op.output), relu_of(op)
    if op.multipliers is None or op.rshifts is None:
        return stored_float(rectified((operands[0] - operands[1]) % PRIME, op, field), op.output, field)
    first, second = (times(x, m) for x, m in zip(operands, ints(op.multipliers), strict=True))
    rs = ints(op.rshifts)
    if len(rs) == 1:
        total = (first - second) % PRIME
        total = clamped(field, total, 0, None) if relu else total
        return saturated(field, shifted(field, total, rs[0], "half_up"), dtype)
    total = (shifted(field, first, rs[0], "half_up") - shifted(field, second, rs[1], "half_up")) % PRIME
    return saturated(field, total, dtype, floor=0 if relu else None)


def mul(op: TpuMul, operands: Sequence[Any], field: Field) -> Elements | None:
    """The product without zero points, relu, one requant."""
    factors = [without_zero(x, zero_point(value)) for x, value in zip(operands, op.inputs, strict=True)]
    total = _chained(times, factors, op, field)
    if op.scaling is None:
        return stored_float(rectified(total, op, field), op.output, field)
    total = clamped(field, total, 0, None) if relu_of(op) else total
    by = Scaling(*op.scaling, zero_point(op.output), mode="qdm" if op.qdm else "shift")
    return requanted(field, total, by, type_of(op.output))


def _plus(a: Elements, b: Elements) -> Elements:
    return summed((a, b))


def _chained(combine: Callable[..., Elements], operands: Sequence[Elements], op: TpuOp, field: Field) -> Elements:
    """The operands combined from left to right, each float result but the last rounded to the op's type."""
    total = operands[0]
    for number, x in enumerate(operands[1:], 1):
        total = total if number == 1 else stored_float(total, op.results[0], field)
        total = combine(total, x)
    return total


def div(op: TpuDiv, operands: Sequence[Any], field: Field) -> Elements | None:
    """The quotient of two elements, with relu."""
    total = operands[0]
    for number, x in enumerate(operands[1:], 1):
        total = total if number == 1 else stored_float(total, op.output, field)
        total = field.apply(("div",), total, x)
    return stored_float(rectified(total, op, field), op.output, field)


def extreme(op: ExtremeTpu, operands: Sequence[Any], field: Field) -> Elements | None:
    """The largest or smallest element, with relu; with multipliers, of the requantised elements."""
    dtype = type_of(op.output)
    if op.scaling is not None:
        ms, r = op.scaling
        operands = [shifted(field, times(x, m), r, "half_up") for x, m in zip(operands, ms, strict=True)]
    found = extreme_of(field, op.KIND, *operands)
    if uniform_of(op.output) is None:
        return rectified(found, op, field)
    floor = 0 if relu_of(op) else None
    return saturated(field, found, dtype, floor=floor, known="" if op.scaling is not None else dtype)


def scale(op: TpuScale, operands: Sequence[Any], field: Field) -> Elements | None:
    """Factor and summand of the channel; integers clamped to 16 bits, shifted down by the channel, relu."""
    x, *constants = operands
    factor, summand, *rshift = (v.reshape(1, -1, *(1,) * (x.ndim - 2)) for v in constants if v is not None)
    total, dtype = summed((times(x, factor), summand)), type_of(op.output)
    if uniform_of(op.output) is None:
        return rectified_in_steps(total, op, field)
    if is_set(op.clamp16):
        total = field.apply(("16 bits", dtype.startswith("u")), total)
    total = field.apply(("channel shift", "down"), total, *rshift)
    return saturated(field, plus(total, zero_point(op.output)), dtype, floor=0 if relu_of(op) else None)


def clip(op: TpuClip, operands: Sequence[Any], field: Field) -> Elements | None:
    """Not below the minimum, rounded, then not above the maximum, rounded."""
    low, high = (np.array(field.constant(limit.value.data)) for limit in (op.minimum, op.maximum))
    found = stored_float(extreme_of(field, "max", operands[0], low), op.output, field)
    return stored_float(extreme_of(field, "min", found, high), op.output, field)


def concat(op: TpuConcat, operands: Sequence[Any], field: Field) -> Elements | None:
    """The operands in order, each requantised if they have multipliers."""
    if op.scaling is not None:
        kinds, dtype = [type_of(value) for value in op.inputs], type_of(op.output)
        scales = zip(operands, op.scaling, kinds, strict=True)
        operands = [requanted(field, x, Scaling(m, r), dtype, known=kind) for x, (m, r), kind in scales]
    return np.concatenate(list(operands), axis=op.along)


def relu(op: TpuRelu, operands: Sequence[Any], field: Field) -> Elements | None:
    """Not below 0, after a requant if the op has one."""
    dtype, known = type_of(op.output), type_of(op.input)
    if uniform_of(op.output) is None:
        limit = relu_limit_of(op)
        found = clamped(field, operands[0], 0, limit if limit >= 0 else None)
        return found if dtype in (known, "f32") else stored_float(found, op.output, field)
    if op.multiplier is None or op.rshift is None:
        return saturated(field, operands[0], dtype, floor=0, known=known)
    by = Scaling(op.multiplier.value.data, op.rshift.value.data)
    return requanted(field, operands[0], by, dtype, relu=True, known=known)


def requant(op: Requantising, operands: Sequence[Any], field: Field) -> Elements | None:
    """Without the zero point of the operand, the requant."""
    zero = zero_point(op.input)
    by = Scaling(*op.scaling, zero_point(op.output), op.ROUNDING)
    known = "" if zero else type_of(op.input)
    return requanted(field, without_zero(operands[0], zero), by, type_of(op.output), known=known)


def requant_axis(op: TpuRequantIntAxis, operands: Sequence[Any], field: Field) -> Elements | None:
    """By the words of each channel, rounded half away."""
    x, table = operands
    if table is None:
        return None
    words = table.reshape(table.shape[1], -1)
    return by_channel(field, x, words, type_of(op.output), relu=False, rounding="half_away")


def lut(op: Any, operands: Sequence[Any], field: Field) -> Elements | None:
    """The entry of the table that the byte names."""
    del op
    return field.apply(("table",), operands[0], field.row(operands[1]).reshape(()))


def active(op: FloatFunction, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of one element, with its name and coefficients."""
    mode, coefficients = op.function
    key = ("active", ("mode", mode), ("coefficients", tuple(coefficients)))
    return stored_float(field.apply(key, operands[0]), op.output, field)


def moved(op: Any, operands: Sequence[Any], field: Field) -> Elements | None:
    """The elements where the op's function moves them, of whatever kind they are."""
    del field
    return np.asarray(op.inference(operands)[0], np.int64)


def padded(op: TpuPad, operands: Sequence[Any], field: Field) -> Elements | None:
    """The tensor with a border: a number as the result stores it, the reflected tensor, or its edge repeated."""
    (x,), widths, dtype = operands, ints(op.paddings), storage_dtype(element_of(op.output))
    pairs, mode = list(zip(widths[: x.ndim], widths[x.ndim :], strict=True)), op.mode.data
    if mode == "constant":
        with np.errstate(over="ignore"):
            stored = float(np.float32(op.val.value.data).astype(dtype))
        return np.pad(x, pairs, constant_values=field.constant(stored))
    return np.pad(x, pairs, mode="reflect" if mode == "reflect" else "edge")
