"""Softmax: `top.Softmax`, `top.LogSoftmax`, `tpu.Softmax`; by table in INT8 along the channels, else in f32."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import softmax as kernels
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, NoneType, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, flag, float_attr, int_attr, ints_attr, op_name
from tpusim.ir.types import shape_of, uniform_of
from tpusim.isa import commands as isa
from tpusim.ops.base import (
    Array,
    EmitContext,
    ImportContext,
    LoweringContext,
    OnnxNode,
    RangeRule,
    Shape,
    TpuOp,
    is_none,
)
from tpusim.ops.families import UnaryTop, value_dtype, zero_point
from tpusim.ops.view import TopReshape

ENTRIES = 256


class NormalisedExponential(UnaryTop):
    """Softmax or its logarithm along one axis."""

    LOG: ClassVar[bool] = False

    axis = attr_def(IntegerAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX Softmax and LogSoftmax. Before opset 13 the axes from `axis` on are flattened into one."""
        x = ctx.value(node.inputs[0])
        shape = shape_of(x)
        coerced = ctx.opset < 13
        axis = int(node.take("axis", 1 if coerced else -1))
        if not -len(shape) <= axis < len(shape):
            raise node.refuse(f"an axis in [{-len(shape)}, {len(shape)}) is required, got {axis}")
        axis %= len(shape)
        wide = [i for i in range(axis, len(shape)) if shape[i] > 1]
        name = node.outputs[0]
        if coerced and len(wide) > 1:
            flat = {"shape": ints_attr((prod(shape[:axis]), prod(shape[axis:])))}
            y = ctx.build(cls, [ctx.build(TopReshape, [x], flat, name + "_flat")], {"axis": int_attr(1)}, name + "_2d")
            return ctx.build(TopReshape, [y], {"shape": ints_attr(shape)}, name)
        axis = wide[0] if coerced and wide else axis
        return ctx.build(cls, [x], {"axis": int_attr(axis)}, name)

    def infer(self) -> tuple[Shape, ...]:
        """The operand's shape."""
        shape, axis = shape_of(self.input), self.axis.value.data
        if not 0 <= axis < len(shape):
            raise ValueError(f"an axis in [0, {len(shape)}) is required, got {axis}")
        return (shape,)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32: subtract the maximum, exponential, divide by the sum."""
        return (kernels.softmax_float(operands[0], axis=self.axis.value.data, log=self.LOG, beta=1.0),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Softmax in integers along axis 1 of at most four axes, else in float."""
        attributes = {"axis": self.axis, "log": flag(self.LOG), "beta": float_attr(1.0)}
        shape, name = shape_of(self.output), op_name(self)
        if ctx.mode(self) == "int8":
            x, why = ctx.quant(self.input), self._why_not_int8(ctx)
            if why is None and x is not None:
                table = ctx.weight(name + "_table", exponential_table(x.scale))
                operands = [ctx.operand(self.input, "int8", self), table]
                return ctx.build(TpuSoftmax, operands, attributes, ctx.quantised_type(self.output), shape, name)
            ctx.fallback(self, why or "the input is not calibrated")
        operands = [ctx.operand(self.input, ctx.float_mode(self), self), ctx.none()]
        return ctx.build(TpuSoftmax, operands, attributes, ctx.float_type(self), shape, name)

    def _why_not_int8(self, ctx: LoweringContext) -> str | None:
        if self.LOG:
            return "the logarithm of softmax has no integer form (numerics.md 11.1)"
        if ctx.chip.requant_words == 0:
            return f"softmax has no integer form on {ctx.chip.name} (numerics.md 12.1)"
        if self.axis.value.data != 1 or len(shape_of(self.input)) > 4:
            return "integer softmax is along axis 1 of at most 4 axes (numerics.md 11.1)"
        return None if ctx.quant(self.output) is not None else "the output is not calibrated"


@irdl_op_definition
class TopSoftmax(NormalisedExponential):
    """`top.Softmax`: exp(x - max)/sum along `axis`."""

    name = "top.Softmax"
    ONNX: ClassVar[tuple[str, ...]] = ("Softmax",)
    RANGE: ClassVar[RangeRule] = RangeRule(fixed=(0.0, 1.0))


@irdl_op_definition
class TopLogSoftmax(NormalisedExponential):
    """`top.LogSoftmax`: x - max - log(sum of exp(x - max)) along `axis`."""

    name = "top.LogSoftmax"
    ONNX: ClassVar[tuple[str, ...]] = ("LogSoftmax",)
    LOG: ClassVar[bool] = True


def exponential_table(scale: float, beta: float = 1.0) -> np.ndarray:
    """(256,) f32: exp(-scale*i*beta) in double, narrowed (numerics.md 11.1)."""
    return np.exp(-scale * np.arange(ENTRIES, dtype=np.float64) * beta).astype(np.float32)


@irdl_op_definition
class TpuSoftmax(TpuOp):
    """`tpu.Softmax`: f32, or bytes through a table of 256 f32 exponentials (table `none` in float)."""

    name = "tpu.Softmax"

    input = operand_def(TensorType)
    table = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    log = opt_attr_def(BoolAttr)
    beta = opt_attr_def(FloatAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The operand's shape."""
        shape, axis = shape_of(self.input), self.axis.value.data
        if not 0 <= axis < len(shape):
            raise ValueError(f"an axis in [0, {len(shape)}) is required, got {axis}")
        if not is_none(self.table) and shape_of(self.table) != (ENTRIES,):
            raise ValueError(f"a table of {ENTRIES} entries is required, got {shape_of(self.table)}")
        return (shape,)

    @property
    def _options(self) -> tuple[bool, float]:
        """(log, beta)."""
        log = self.log is not None and bool(self.log.value.data)
        return log, self.beta.value.data if self.beta is not None else 1.0

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """By table: f32 sum in index order, quotient in double narrowed to f32, rounded half away (11.1)."""
        x, table = operands
        axis, output = self.axis.value.data, uniform_of(self.output)
        if output is None:
            log, beta = self._options
            return (kernels.softmax_float(x, axis=axis, log=log, beta=beta),)
        zero = zero_point(self.output)
        return (kernels.softmax_int(x, table, output.scale.data, zero, axis=axis, out_dtype=value_dtype(self.output)),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """No local form in this version (layer_group.md 2 allows 4-D with axis 2 or 3)."""
        del chip
        return "softmax reduces a whole axis"

    def emit(self, ctx: EmitContext) -> None:
        """FN softmax_int (q, table) or FN softmax."""
        axis, output = self.axis.value.data, uniform_of(self.output)
        params: dict[str, float | int | str | bool] = {"axis": axis}
        if output is None:
            log, beta = self._options
            params |= {"log": log, "beta": beta}
            ctx.emit(isa.Fn, function="softmax", inputs=(ctx.input(0),), output=ctx.output(), params=params)
            return
        params |= {"s_out": output.scale.data, "z_out": zero_point(self.output)}
        inputs = (ctx.input(0), ctx.input(1))
        ctx.emit(isa.Fn, function="softmax_int", inputs=inputs, output=ctx.output(), params=params)
