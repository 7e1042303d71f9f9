"""Ops of a tensor and a number, and slopes of negative values (numerics.md 9.3, 9.7)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import IntegerAttr

from tpusim.field import PRIME, Elements, Field, Scaling, extreme, requanted, times
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ops.activation.slope import TpuLeakyRelu, TpuPRelu
from tpusim.ops.const_binary.tpu import ConstTpu, Kind, reversed_
from tpusim.ops.framework.families import relu_of, zero_point
from tpusim.proof.meanings.stored import rectified, stored_float, type_of, without_zero


def with_number(op: ConstTpu, operands: Sequence[Any], field: Field) -> Elements | None:
    """Floats with the number, relu; -x is not rounded. Integers times m with the stored number, relu, requant (9.3)."""
    (x,), reverse = operands, reversed_(op)
    if op.scaling is None:
        number = op.const_val.value.data
        found = rectified(_combined(field, op.KIND, x, field.constant(number), reverse=reverse), op, field)
        negated = op.KIND == "mul" and number == -1.0 and type_of(op.input) == type_of(op.output)
        return found if negated else stored_float(found, op.output, field)
    (m, r), dtype, relu = op.scaling, type_of(op.output), relu_of(op)
    if op.KIND == "mul":
        zero = zero_point(op.input)
        known, by = "" if zero else type_of(op.input), Scaling(m, r, zero_point(op.output))
        return requanted(field, without_zero(x, zero), by, dtype, relu=relu, known=known)
    number = int(op.const_val.value.data) % PRIME
    total = _combined(field, op.KIND, times(x, m), number, reverse=reverse)
    zero = zero_point(op.output) if op.KIND == "sub" else 0
    return requanted(field, total, Scaling(rshift=r, zero_point=zero), dtype, relu=relu)


def _combined(field: Field, kind: Kind, x: Elements, number: int, *, reverse: bool) -> Elements:
    """The operation of this kind. reverse: number - x."""
    match kind:
        case "mul":
            return times(x, number)
        case "add":
            return (x + number) % PRIME
        case "sub":
            return (number - x if reverse else x - number) % PRIME
        case "max" | "min":
            return extreme(field, kind, x, np.array(number))


def leaky_relu(op: TpuLeakyRelu, operands: Sequence[Any], field: Field) -> Elements | None:
    """One slope for negative values; on a chip that scales both sides, a multiplier and shift for each."""
    (x,), positive = operands, _pair(op.multiplier, op.rshift)
    if positive is None:
        return stored_float(field.apply(("slope",), x, np.array(field.constant(op.alpha.value.data))), op.output, field)
    negative = _pair(op.multiplier_neg, op.rshift_neg)
    positive, (m, r) = (None, positive) if negative is None else (positive, negative)
    return field.apply(("integer slope", r, positive, type_of(op.output)), x, np.array(m % PRIME))


def prelu(op: TpuPRelu, operands: Sequence[Any], field: Field) -> Elements | None:
    """A slope for the negative values of each channel; integers are shifted, positive ones by their multiplier."""
    x = operands[0]
    slope = operands[1].reshape(1, shape_of(op.input)[1], *(1,) * (x.ndim - 2))
    if uniform_of(op.output) is None or op.rshift is None:
        return stored_float(field.apply(("slope",), x, slope), op.output, field)
    positive = _pair(op.multiplier_pos, op.rshift_pos)
    return field.apply(("integer slope", op.rshift.value.data, positive, type_of(op.output)), x, slope)


def _pair(multiplier: IntegerAttr | None, rshift: IntegerAttr | None) -> tuple[int, int] | None:
    return None if multiplier is None or rshift is None else (multiplier.value.data, rshift.value.data)
