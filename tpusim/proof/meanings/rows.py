"""Functions of a row: Softmax, the norms, reductions and the places of extremes (numerics.md 11.1 to 11.3, 12.1).

What such a function computes of floats is uninterpreted. Its name has all parameters: those of the op, the steps that
are rounded, and the constants. Its operands are the element, the hash of its row in order, and its place.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tpusim_kernels.prim.floattable import SLOPE_RANGES

from tpusim.field import Elements, Field
from tpusim.ir.attrs import ints
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa.region import FLOATS
from tpusim.ops.arg import TpuArg
from tpusim.ops.cumulate import TpuCumSum
from tpusim.ops.elements import TpuTopK
from tpusim.ops.framework.families import is_set, zero_point
from tpusim.ops.groupnorm import GroupedTpu
from tpusim.ops.layernorm import TpuLayerNorm
from tpusim.ops.pixelnorm import TpuPixelNorm
from tpusim.ops.reduce import TpuReduce
from tpusim.ops.rmsnorm import TpuRMSNorm
from tpusim.ops.softmax import TpuSoftmax
from tpusim.proof.meanings.stored import stored_float, type_of


def softmax(op: TpuSoftmax, operands: Sequence[Any], field: Field) -> Elements | None:
    """In floats, on bytes by a table of exponentials, or in BF16 by four tables; of one float it is known."""
    if op.is_constant:
        return np.full(shape_of(op.output), field.constant(float(not is_set(op.log))), np.int64)
    (x, *tables), axis, log = operands, op.axis.value.data, is_set(op.log)
    length, rank = shape_of(op.input)[axis], len(shape_of(op.input))
    uniform, beta = uniform_of(op.output), 1.0 if op.beta is None else op.beta.value.data
    places = _places(length, axis, rank)
    given = [field.row(table).reshape(()) for table in tables if table is not None]
    name: tuple[object, ...] = ("softmax", ("log", log), ("beta", beta), "")
    if op.more_tables:
        name = ("softmax_tables", ("limit", SLOPE_RANGES["EXP"]), ("log", log), "")
    elif uniform is not None:
        zero, dtype = zero_point(op.output), type_of(op.output)
        name = ("softmax_int", ("scale", uniform.scale.data), ("zero_point", zero), dtype)
    return stored_float(field.apply(name, x, field.row(x, (axis,)), places, *given), op.output, field)


def layernorm(op: TpuLayerNorm, operands: Sequence[Any], field: Field) -> Elements | None:
    """Of the axes from `axis` on, with weight and bias of the place; in BF16 every step is rounded."""
    x, weight, bias, *tables = operands
    in_bf16 = type_of(op.output) == "bf16"
    name = (
        "layernorm", ("epsilon", op.eps.value.data), ("weight", weight is not None), ("bias", bias is not None),
        ("bf16_steps", in_bf16), ("tables", bool(tables)), "",
    )  # fmt: skip
    given = [v for v in (weight, bias) if v is not None] + [field.row(table).reshape(()) for table in tables]
    row = field.row(x, range(op.axis.value.data, x.ndim))
    return stored_float(field.apply(name, x, row, *given), op.output, field)


def rmsnorm(op: TpuRMSNorm, operands: Sequence[Any], field: Field) -> Elements | None:
    """Of the last axis, with the factor of the place; the quotient is rounded to the type of the result."""
    x, gamma = operands
    arithmetic = "interpreter" if op.as_interpreter else "chip"
    name = (
        "rmsnorm", ("epsilon", op.eps.value.data), ("weight", gamma is not None), ("arithmetic", arithmetic),
        type_of(op.output),
    )  # fmt: skip
    given = [] if gamma is None else [gamma]
    return stored_float(field.apply(name, x, field.row(x, (-1,)), *given), op.output, field)


def groupnorm(op: GroupedTpu, operands: Sequence[Any], field: Field) -> Elements | None:
    """Of each sample's runs of channels, with weight and bias of the channel; a first weight may divide instead."""
    (x, weight, bias), shape = operands, shape_of(op.input)
    name = (
        "groupnorm", ("groups", op.groups), ("epsilon", op.eps.value.data), ("weight", weight is not None),
        ("bias", bias is not None), ("weight_as_factor", op.weight_as_factor),
        ("bf16_steps", type_of(op.output) == "bf16"),
    )  # fmt: skip
    rows = field.row(x.reshape(shape[0], op.groups, -1), (2,))[..., 0]
    of_channel = np.repeat(rows, shape[1] // op.groups, 1).reshape(*shape[:2], *(1,) * (len(shape) - 2))
    given = [v.reshape(1, -1, *(1,) * (len(shape) - 2)) for v in (weight, bias) if v is not None]
    return stored_float(field.apply(name, x, of_channel, *given), op.output, field)


def reduce(op: TpuReduce, operands: Sequence[Any], field: Field) -> Elements | None:
    """Of the reduced elements in order; 1/n is rounded to the type of the result, integers are requantised."""
    axes, mode = ints(op.axes), ("mode", op.mode.data)
    row = field.row(operands[0], axes)
    if op.scaling is not None:
        m, r = op.scaling
        return field.apply(("reduce_int", mode, ("multiplier", m), ("rshift", r)), row)
    count = int(np.prod([shape_of(op.input)[axis] for axis in axes]))
    scale = float(np.float32(1 / count).astype(storage_dtype(element_of(op.output))))
    return stored_float(field.apply(("reduce", mode, ("scale", scale)), row), op.output, field)


def arg(op: TpuArg, operands: Sequence[Any], field: Field) -> Elements | None:
    """The place of the extreme of a row, the first or the last of equal ones; 0 in a row of one."""
    if op.is_constant:
        return np.full(shape_of(op.indices), field.constant(0), np.int64)
    key = ("arg", ("mode", op.mode.data), ("select_last", is_set(op.select_last_index)))
    return field.apply(key, field.row(operands[0], (op.axis.value.data,)))


def topk(op: TpuTopK, operands: Sequence[Any], field: Field) -> Elements | None:
    """The element of each rank in its row, or its place."""
    axis, k = op.axis.value.data, op.K.value.data
    key = ("topk", ("k", k), ("largest", is_set(op.largest)), ("result", op.result.data))
    return field.apply(key, field.row(operands[0], (axis,)), _places(k, axis, operands[0].ndim))


def cumulate(op: TpuCumSum, operands: Sequence[Any], field: Field) -> Elements | None:
    """Of the element, its row and its place in it."""
    (x,), axis, dtype = operands, op.axis.value.data, type_of(op.output)
    key = (
        "cumulate", ("mode", op.mode.data), ("exclusive", is_set(op.exclusive)), ("reverse", is_set(op.reverse)),
        "" if dtype in FLOATS else dtype,
    )  # fmt: skip
    places = _places(x.shape[axis], axis, x.ndim)
    return stored_float(field.apply(key, x, field.row(x, (axis,)), places), op.output, field)


def _places(count: int, axis: int, rank: int) -> Elements:
    """Numbers from 0 along an axis."""
    return np.arange(count).reshape([-1 if i == axis else 1 for i in range(rank)])


def pixelnorm(op: TpuPixelNorm, operands: Sequence[Any], field: Field) -> Elements | None:
    """Of axis 1, with weight and bias of the channel; bytes count in their scale, BF16 in rounded steps."""
    (x, weight, bias), uniform = operands, uniform_of(op.input)
    name = (
        "pixelnorm", ("epsilon", op.eps.value.data), ("weight", weight is not None), ("bias", bias is not None),
        ("bf16_steps", type_of(op.output) == "bf16"), ("scale", 0.0 if uniform is None else uniform.scale.data),
    )  # fmt: skip
    given = [v.reshape(1, -1, *(1,) * (x.ndim - 2)) for v in (weight, bias) if v is not None]
    return stored_float(field.apply(name, x, field.row(x, (1,)), *given), op.output, field)
