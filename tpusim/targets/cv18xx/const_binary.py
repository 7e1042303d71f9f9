"""Ops of a tensor and a number, as tables or as ops of two tensors (numerics.md 9.3, 10)."""

import numpy as np
from tpusim_kernels.prim.floattable import slope_table
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from tpusim_kernels.prim.table import Bytes, byte_table
from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import op_name
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.activation.lut_bf16 import FloatTable, build_lookup
from tpusim.ops.activation.tpu import TABLE_SHAPE, TpuLut
from tpusim.ops.const_binary.base import ConstTop
from tpusim.ops.const_binary.top import AddConstToAdd, ExtremeConstTop, TopAddConst, TopMulConst
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import built_in_integers, relu_attributes, relu_limit_of, relu_of
from tpusim.ops.interfaces import ChipRewrites, FloatLowering, IntegerLowering
from tpusim.ops.relu import ReluApart
from tpusim.ops.rescale import requantised
from tpusim.targets.cv18xx.target import TARGET

TABLE_RANGE = 15.0
"""The slope table of a product or difference with a number spans +-15 (U-58) and is extended by lines."""


@TARGET.attach(ConstTop, IntegerLowering)
class ConstByTable(Model[ConstTop], IntegerLowering):
    """The op and its relu are a table of bytes."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        op, x, y = self.op, ctx.quant(self.op.input), ctx.quant(self.op.output)
        if x is None or y is None:
            return "input or output is not calibrated"
        entries = byte_table(op.function, Bytes(x.scale, 0, x.signed), Bytes(y.scale, 0, y.signed))
        operands = [
            ctx.operand(op.input, "int8", op), ctx.weight(op_name(op) + "_table", entries.reshape(TABLE_SHAPE))
        ]  # fmt: skip
        return built_in_integers(op, ctx, TpuLut, operands, {})


@TARGET.attach(ConstTop, FloatLowering)
class ConstByFloatTable(Model[ConstTop], FloatLowering):
    """In BF16 the op is a slope table."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.LutBF16; in f32 the tpu op."""
        op = self.op
        if ctx.float_mode(op) != "bf16":
            return op.lower_float(ctx)
        return build_lookup(op, ctx, FloatTable("Slope", slope_table(op.function, TABLE_RANGE), TABLE_RANGE))


@TARGET.attach(TopAddConst, IntegerLowering)
class NoAddConst(Model[TopAddConst], IntegerLowering):
    """Sums with a number have no integer form (DN-13)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        if ctx.quant(self.op.input) is None or ctx.quant(self.op.output) is None:
            return "input or output is not calibrated"
        ctx.decision(self.op, "DN-13")
        return "this chip has no integer form of AddConst (numerics.md 9.3)"


@TARGET.attach(ExtremeConstTop, IntegerLowering)
class ExtremeOfTensors(Model[ExtremeConstTop], IntegerLowering):
    """The op is a maximum or minimum of two tensors; one is filled with the constant in bytes (numerics.md 9.3)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """The op of two tensors."""
        op, x, y = self.op, ctx.quant(self.op.input), ctx.quant(self.op.output)
        if x is None or y is None:
            return "input or output is not calibrated"
        name, shape = op_name(op), shape_of(op.output)
        operand = requantised(ctx, op, ctx.operand(op.input, "int8", op), x, op.output)
        assert operand is not None  # small multipliers always fit
        stored = np.full(shape, saturate_np(round_half_away(op.number / y.scale), "int8"), np.int8)
        operands = [operand, ctx.weight(name + "_const", stored)]
        return built_in_integers(op, ctx, op.TENSORS, operands, relu_attributes(relu_of(op)))


@TARGET.attach(ExtremeConstTop, FloatLowering)
class ExtremeOfFloatTensors(Model[ExtremeConstTop], FloatLowering):
    """In BF16 the op is one of two tensors, too."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """The op of two tensors; in f32 the op of a tensor and a number."""
        op, mode = self.op, ctx.float_mode(self.op)
        if mode != "bf16":
            return op.lower_float(ctx)
        name, shape = op_name(op), shape_of(op.output)
        number = ctx.float_weight(op, name + "_const", np.full(shape, op.number, np.float32))
        operands = [ctx.operand(op.input, mode, op), number]
        attributes = relu_attributes(relu_of(op), relu_limit_of(op))
        return ctx.build(op.TENSORS, operands, attributes, ctx.float_type(op), shape, name)


@TARGET.attach(TopMulConst, ChipRewrites)
class MulConstWithoutRelu(Model[TopMulConst], ChipRewrites):
    """A product with a number has no relu."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The relu becomes an op after the product."""
        del weights, chip
        return (ReluApart(TopMulConst.name),)


@TARGET.attach(TopAddConst, ChipRewrites)
class SumsOfTensors(Model[TopAddConst], ChipRewrites):
    """CV18xx adds only tensors."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The number becomes a weight."""
        del chip
        return (AddConstToAdd(weights),)
