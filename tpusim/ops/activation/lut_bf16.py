"""`tpu.LutBF16`: a function of BF16 values by two lookup tables; and its lowering (numerics.md 10)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from tpusim_kernels import lut_bf16 as kernels
from tpusim_kernels.prim.floattable import (
    POWERS,
    SLOPE_RANGES,
    TablePair,
    activation_table,
    log_table,
    power_table,
)
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def

from tpusim.ir.attrs import float_attr, op_name
from tpusim.ir.modes import LutModeAttr, lut_mode
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.ops.framework.base import Array, EmitContext, LoweringContext, Shape
from tpusim.ops.framework.families import ByTables, UnaryTop

LutMode = Literal["Slope", "Mantissa", "Log"]
FLOAT_TABLE_SHAPE = (1, 1, 32, 8)
"""The stored shape of a BF16 table of 256 entries (U-96)."""


@dataclass(frozen=True)
class FloatTable:
    """The two tables of a function. limit: a slope table spans [-limit, limit]."""

    mode: LutMode
    pair: TablePair
    limit: float = 0.0


def float_table(function: str, coeffs: tuple[float, ...]) -> FloatTable | None:
    """The tables of an activation function (numerics.md 9.8, 10); None if it has none."""
    if function in SLOPE_RANGES:
        return FloatTable("Slope", activation_table(function, coeffs), SLOPE_RANGES[function])
    if function in POWERS:
        return FloatTable("Mantissa", power_table(POWERS[function], *coeffs))
    return FloatTable("Log", log_table()) if function == "LN" else None


def table_weights(ctx: LoweringContext, name: str, pair: TablePair) -> list[SSAValue]:
    """Both tables of a pair as weights."""
    return [
        ctx.weight(name + suffix, np.asarray(entries).reshape(FLOAT_TABLE_SHAPE))
        for suffix, entries in (("_table", pair.table), ("_mantissa", pair.mantissa))
    ]


def build_lookup(op: UnaryTop, ctx: LoweringContext, found: FloatTable) -> SSAValue:
    """Append a tpu.LutBF16 on the op's operand, with its two tables as weights."""
    name = op_name(op)
    operands = [ctx.operand(op.input, "bf16", op), *table_weights(ctx, name, found.pair)]
    attributes = {
        "lut_mode": lut_mode(found.mode), "min_range": float_attr(-found.limit), "max_range": float_attr(found.limit)
    }  # fmt: skip
    return ctx.build(TpuLutBF16, operands, attributes, ctx.float_type(op), shape_of(op.output), name)


@irdl_op_definition
class TpuLutBF16(ByTables):
    """`tpu.LutBF16`: BF16 in and out by two tables of 256 BF16 entries; every step is rounded (numerics.md 10).

    lut_mode Slope: a base and a slope for each step of [min_range, max_range]. Mantissa: the product of the entries for
    the exponent and for the mantissa. Log: their sum.
    """

    name = "tpu.LutBF16"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = (1, 2)
    COPIED_OPERANDS: ClassVar[tuple[int, ...]] = (1, 2)

    input = operand_def(TensorType)
    table = operand_def(TensorType)
    mantissa = operand_def(TensorType)
    output = result_def(TensorType)
    lut_mode = attr_def(LutModeAttr)
    min_range = attr_def(FloatAttr)
    max_range = attr_def(FloatAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The operand's shape. Raises ValueError for tables or a range that do not fit."""
        for value in (self.table, self.mantissa):
            if shape_of(value) != FLOAT_TABLE_SHAPE:
                raise ValueError(f"tables of shape {FLOAT_TABLE_SHAPE} are required, got {shape_of(value)}")
        low, high = self._range
        if self.lut_mode.data == "Slope" and low >= high:
            raise ValueError(f"min_range < max_range is required, got {low} and {high}")
        return (shape_of(self.input),)

    @property
    def _range(self) -> tuple[float, float]:
        return self.min_range.value.data, self.max_range.value.data

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, table, mantissa = operands
        if self.lut_mode.data == "Slope":
            low, high = self._range
            return (kernels.lut_slope(x, table, mantissa, low=low, high=high),)
        return (kernels.lut_mantissa(x, table, mantissa, log=self.lut_mode.data == "Log"),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One command for two table gathers (SG) and the arithmetic (AR)."""
        low, high = self._range
        ctx.emit(
            isa.FloatLut, mode=self.lut_mode.data.lower(), input=ctx.input(0), table=ctx.input(1),
            mantissa=ctx.input(2), output=ctx.output(), low=low, high=high,
        )  # fmt: skip
