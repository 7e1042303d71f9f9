"""The product of matrices, with bias and requant."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpusim.field import PRIME, Elements, Field, Scaling, plus, product, requanted, saturated, shifted, times
from tpusim.field.integers import clamped
from tpusim.ir.attrs import ints
from tpusim.ir.types import shape_of
from tpusim.ops.framework.families import is_set, relu_of, zero_point
from tpusim.ops.matmul.a16 import TpuA16MatMul
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.view import chip_of_module
from tpusim.proof.meanings.stored import rectified_in_steps, stored_float, type_of


def a16_matmul(op: TpuA16MatMul, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of a row of the input, and of codes, scales, zero points and bias of a column."""
    x, codes, scale, zp, bias = operands
    columns, arithmetic = shape_of(op.weight)[0], "interpreter" if op.as_interpreter else "chip"
    name = ("a16_matmul", ("bits", op.bits), ("bias", bias is not None), ("arithmetic", arithmetic), type_of(op.output))
    rows = [codes, *(op.by_row(part) for part in (scale, zp))]
    weights = [field.row(part, (1,)).reshape(1, -1) for part in rows]
    given = [] if bias is None else [bias.reshape(1, -1)]
    found = field.apply(name, field.row(x.reshape(-1, x.shape[-1]), (1,)).reshape(-1, 1), *weights, *given)
    return stored_float(found.reshape(*x.shape[:-1], columns), op.output, field)


def matmul(op: TpuMatMul, operands: Sequence[Any], field: Field) -> Elements | None:
    """Products of matrices with bias; integers with relu, then the requant of the tensor, a column or a matrix."""
    (x, w), bias, columns = op.factors(operands), operands[2], operands[3:]
    left, right = op.transposes
    total = product(x.swapaxes(-1, -2) if left else x, w.swapaxes(-1, -2) if right else w)
    several = op.qdm and op.multipliers is not None and len(ints(op.multipliers)) > 1
    if bias is not None:
        chip = chip_of_module(op)
        total = stored_float(total, op.output, field) if chip is not None and op.rounds_twice(chip) else total
        rows = (*shape_of(op.right)[:-2], 1, -1) if several else (-1,)
        total = (total + bias.reshape(rows)) % PRIME
    if op.scaling is None:
        return rectified_in_steps(op.stored(total), op, field)
    total = op.stored(clamped(field, total, 0, None) if relu_of(op) else total)
    dtype, zero, mode = type_of(op.output), zero_point(op.output), "qdm" if op.qdm else "shift"
    if is_set(op.fuse_rq):
        if not columns:
            return None
        found = shifted(field, times(total, columns[0].reshape(-1)), op.scaling[1], "half_up")
        return saturated(field, plus(found, zero), dtype)
    if not several:
        return requanted(field, total, Scaling(*op.scaling, zero, mode=mode), dtype)
    assert op.multipliers is not None and op.rshifts is not None  # each matrix has one
    pairs = zip(ints(op.multipliers), ints(op.rshifts), strict=True)
    apart = total.reshape(-1, len(ints(op.rshifts)), *total.shape[-2:])
    by = [Scaling(m, r, zero, mode=mode) for m, r in pairs]
    return np.stack([requanted(field, apart[:, i], s, dtype) for i, s in enumerate(by)], 1).reshape(total.shape)
