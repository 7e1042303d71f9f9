"""Recurrent layers: a matrix product of all rows, then step by step with gates from tables (numerics.md 11.7)."""

from math import prod

import numpy as np
from tpusim_kernels.prim.floattable import gate_table
from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import flag, op_name
from tpusim.ir.types import shape_of
from tpusim.ops.activation.lut_bf16 import FLOAT_TABLE_SHAPE
from tpusim.ops.framework.base import LoweringContext, is_none
from tpusim.ops.framework.families import relu_attributes
from tpusim.ops.interfaces import FloatLowering
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.recurrent import TopRecurrent
from tpusim.targets.cv18xx.target import TARGET

TABLES = ("SIGMOID", "TANH")
"""The functions of the gates, in the order of the op's tables."""


@TARGET.attach(TopRecurrent, FloatLowering)
class RecurrentByTables(Model[TopRecurrent], FloatLowering):
    """CV18xx multiplies all rows first; its kernel takes one step after the other."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """A tpu.MatMul and the tpu op, which all ops of a node share."""
        op = self.op
        operands = op.shared_operands(ctx, self._operands)
        attributes = dict(op.attributes)
        return ctx.build(op.TPU, operands, attributes, ctx.float_type(op), shape_of(op.output), op_name(op))

    def _operands(self, ctx: LoweringContext) -> list[SSAValue]:
        """The products of the rows, the recurrence in BF16, its biases in f32, the states, and four tables."""
        op, none = self.op, ctx.none()
        found = [none] * len(op.TPU.get_irdl_definition().operands)
        bias = ctx.array(op.operands[3])
        rows, states = (None, None) if bias is None else np.split(bias.reshape(op.ways, 2, -1), 2, axis=1)
        found[0] = self._products(ctx, rows)
        found[2] = ctx.operand(op.operands[2], "bf16", op)
        if states is not None and states.any():
            found[3] = ctx.weight(f"{op.whole.data}_r_bias", states.reshape(op.ways, -1))
        for number in range(op.FIRST, op.FIRST + len(op.OUTPUTS) - 1):
            if not is_none(op.operands[number]):
                found[number] = ctx.operand(op.operands[number], "bf16", op, op.whole.data)
        found[-4:] = [table for function in TABLES for table in self._tables(ctx, function)]
        return found

    def _products(self, ctx: LoweringContext, bias: np.ndarray | None) -> SSAValue:
        """The rows times the weights of all gates and directions, plus their biases."""
        op, name = self.op, self.op.name_of_products()
        weights = ctx.array(op.operands[1])
        assert weights is not None  # the import takes constant matrices only
        columns = prod(weights.shape[:2])
        matrix = ctx.float_weight(op, f"{op.whole.data}_filter_trans", weights.reshape(columns, -1).T.copy())
        offsets = ctx.none() if bias is None else ctx.weight(f"{op.whole.data}_w_bias", bias.reshape(-1))
        operands = [ctx.operand(op.rows, "bf16", op, name), matrix, offsets]
        attributes = {"left_transpose": flag(False), "right_transpose": flag(False), **relu_attributes()}
        shape = (*shape_of(op.rows)[:2], columns)
        return ctx.build(TpuMatMul, operands, attributes, ctx.float_type(op), shape, name)

    def _tables(self, ctx: LoweringContext, function: str) -> list[SSAValue]:
        pair, name = gate_table(function), f"{self.op.whole.data}_{function.lower()}"
        return [
            ctx.weight(f"{name}{word}", np.asarray(entries).reshape(FLOAT_TABLE_SHAPE))
            for word, entries in (("_table", pair.table), ("_slope_table", pair.mantissa))
        ]
