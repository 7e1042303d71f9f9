"""How results are stored: element types, zero points, roundings of floats."""

import numpy as np
from xdsl.ir import Operation, SSAValue

from tpusim.field import Elements, Field, extreme, plus
from tpusim.field.integers import clamped
from tpusim.ir.types import element_of
from tpusim.isa.region import NARROW, DType
from tpusim.ops.framework.families import command_dtype, relu_limit_of, relu_of


def type_of(value: SSAValue) -> DType:
    """The element type of a tensor on the chip."""
    return command_dtype(element_of(value))


def stored_float(x: Elements, value: SSAValue, field: Field) -> Elements:
    """A float result, rounded where the tensor has a narrower type than f32."""
    dtype = type_of(value)
    return field.apply(("narrow", dtype), x) if dtype in NARROW else x


def rectified(x: Elements, op: Operation, field: Field) -> Elements:
    """A float result after relu and its limit in one step, not rounded yet."""
    limit = relu_limit_of(op)
    return clamped(field, x, 0, limit if limit >= 0 else None) if relu_of(op) else x


def rectified_in_steps(x: Elements, op: Operation, field: Field, *, rounded: bool = False) -> Elements:
    """A float result after relu, rounded, then the limit of the relu, rounded. rounded: x is already."""
    value, limit = op.results[0], relu_limit_of(op)
    x = clamped(field, x, 0, None) if relu_of(op) else x
    x = x if rounded else stored_float(x, value, field)
    if relu_of(op) and limit >= 0:
        x = stored_float(extreme(field, "min", x, np.array(field.constant(limit))), value, field)
    return x


def without_zero(x: Elements, zero: int) -> Elements:
    """Integers minus their zero point."""
    return plus(x, -zero)
