"""LayerNorm, GroupNorm and InstanceNorm, in float on every chip (numerics.md 11.2, 12)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import norm as kernels
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, NoneType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, float_attr, int_attr, op_name
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa import commands as isa
from tpusim.ops.base import (
    Array,
    EmitContext,
    FloatRule,
    ImportContext,
    LoweringContext,
    OnnxNode,
    OpT,
    Shape,
    TopOp,
    TpuOp,
    is_none,
)

# ----------------------------------------------------------------------------------------------------------- LayerNorm


def layernorm_shape(op: Operation, axis: int) -> Shape:
    """The input's shape. Raises ValueError unless weight and bias broadcast to its axes from `axis` on."""
    x = shape_of(op.operands[0])
    if not 0 <= axis < len(x):
        raise ValueError(f"an axis in [0, {len(x)}) is required, got {axis}")
    for value in op.operands[1:]:
        if not is_none(value) and np.broadcast_shapes(shape_of(value), x[axis:]) != x[axis:]:
            raise ValueError(f"weight and bias must broadcast to {x[axis:]}, got {shape_of(value)}")
    return x


@irdl_op_definition
class TopLayerNorm(TopOp):
    """`top.LayerNorm`: (x - mean)/sqrt(variance + eps)*weight + bias over the axes from `axis` on, biased variance."""

    name = "top.LayerNorm"
    ONNX: ClassVar[tuple[str, ...]] = ("LayerNormalization",)

    input = operand_def(TensorType)
    weight = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    eps = attr_def(FloatAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX LayerNormalization in f32 (stash_type 1); scale and bias may be absent or computed."""
        if node.take("stash_type", 1) != 1:
            raise node.refuse("stash_type 1 (float32 statistics) is required")
        operands = [ctx.value(name) for name in node.inputs]
        operands += [ctx.none()] * (3 - len(operands))
        rank, axis = len(shape_of(operands[0])), int(node.take("axis", -1))
        if not -rank <= axis < rank:
            raise node.refuse(f"an axis in [{-rank}, {rank}) is required, got {axis}")
        attributes = {"axis": int_attr(axis % rank), "eps": float_attr(node.take("epsilon", 1e-5))}
        return ctx.build(cls, operands, attributes, node.outputs[0])

    def infer(self) -> tuple[Shape, ...]:
        """The input's shape."""
        return (layernorm_shape(self, self.axis.value.data),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32."""
        return (kernels.layernorm_float(*operands, axis=self.axis.value.data, epsilon=self.eps.value.data),)

    def flops(self) -> int:
        """Nine steps per element: two sums, difference, square, product, weight, bias and the root (DN-27)."""
        return 9 * prod(shape_of(self.output))

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.LayerNorm in float in every mode."""
        if ctx.mode(self) == "int8":
            ctx.fallback(self, "LayerNorm has no integer form (numerics.md 12.1)")
        mode = ctx.float_mode(self)
        operands = [ctx.none() if is_none(v) else ctx.operand(v, mode, self) for v in self.operands]
        attributes: dict[str, Attribute] = {"axis": self.axis, "eps": self.eps}
        return ctx.build(TpuLayerNorm, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


@irdl_op_definition
class TpuLayerNorm(TpuOp):
    """`tpu.LayerNorm`: f32 with one rounding at the output (DN-21), or every step rounded to BF16 (11.2)."""

    name = "tpu.LayerNorm"

    input = operand_def(TensorType)
    weight = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    eps = attr_def(FloatAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The input's shape."""
        return (layernorm_shape(self, self.axis.value.data),)

    @property
    def _in_bf16(self) -> bool:
        return storage_dtype(element_of(self.output)).name == "bfloat16"

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """By the output's type."""
        compute = kernels.layernorm_bf16 if self._in_bf16 else kernels.layernorm_float
        return (compute(*operands, axis=self.axis.value.data, epsilon=self.eps.value.data),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """No local form in this version (layer_group.md 2 allows axes 1 to 4)."""
        del chip
        return "the layer norm reduces whole axes"

    def emit(self, ctx: EmitContext) -> None:
        """FN layernorm."""
        given = [i for i, v in enumerate(self.operands) if not is_none(v)]
        params: dict[str, float | int | str | bool] = {
            "axis": self.axis.value.data, "epsilon": self.eps.value.data, "bf16_steps": self._in_bf16,
            "weight": 1 in given, "bias": 2 in given,
        }  # fmt: skip
        inputs = tuple(ctx.input(i) for i in given)
        ctx.emit(isa.Fn, function="layernorm", inputs=inputs, output=ctx.output(), params=params)


# --------------------------------------------------------------------------------------------- GroupNorm, InstanceNorm


def groupnorm_shape(op: Operation, groups: int) -> Shape:
    """The input's shape. Raises ValueError unless `groups` divide its channels and weight and bias are (C,)."""
    x = shape_of(op.operands[0])
    if len(x) < 3 or groups < 1 or x[1] % groups:
        raise ValueError(f"an input (n, c, ...) of channels that {groups} groups divide is required, got {x}")
    for value in op.operands[1:]:
        if shape_of(value) != (x[1],):
            raise ValueError(f"weight and bias of shape {(x[1],)} are required, got {shape_of(value)}")
    return x


class GroupedTop(TopOp):
    """Statistics per sample and group of channels, then weight and bias per channel."""

    TPU: ClassVar[OpT]

    input = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = operand_def(TensorType)
    output = result_def(TensorType)
    eps = attr_def(FloatAttr)

    @property
    def groups(self) -> int:
        """Groups of channels."""
        raise NotImplementedError

    def infer(self) -> tuple[Shape, ...]:
        """The input's shape."""
        return (groupnorm_shape(self, self.groups),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32."""
        return (kernels.groupnorm_float(*operands, groups=self.groups, epsilon=self.eps.value.data),)

    def flops(self) -> int:
        """Nine steps per element, as LayerNorm (DN-27)."""
        return 9 * prod(shape_of(self.output))

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """The tpu op in float in every mode."""
        if ctx.mode(self) == "int8":
            ctx.fallback(self, f"{self.name.removeprefix('top.')} has no integer form (numerics.md 12.1)")
        operands = [ctx.operand(v, ctx.float_mode(self), self) for v in self.operands]
        element = ctx.float_type(self)
        return ctx.build(self.TPU, operands, dict(self.attributes), element, shape_of(self.output), op_name(self))


class GroupedTpu(TpuOp):
    """Statistics per sample and group of channels in f32, one rounding at the output."""

    input = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = operand_def(TensorType)
    output = result_def(TensorType)
    eps = attr_def(FloatAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    @property
    def groups(self) -> int:
        """Groups of channels."""
        raise NotImplementedError

    def infer(self) -> tuple[Shape, ...]:
        """The input's shape."""
        return (groupnorm_shape(self, self.groups),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32."""
        return (kernels.groupnorm_float(*operands, groups=self.groups, epsilon=self.eps.value.data),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """No local form in this version."""
        del chip
        return "statistics over whole images"

    def emit(self, ctx: EmitContext) -> None:
        """FN groupnorm."""
        params: dict[str, float | int | str | bool] = {"groups": self.groups, "epsilon": self.eps.value.data}
        inputs = (ctx.input(0), ctx.input(1), ctx.input(2))
        ctx.emit(isa.Fn, function="groupnorm", inputs=inputs, output=ctx.output(), params=params)


@irdl_op_definition
class TpuGroupNorm(GroupedTpu):
    """`tpu.GroupNorm`: `num_groups` equal runs of channels."""

    name = "tpu.GroupNorm"

    num_groups = attr_def(IntegerAttr)

    @property
    def groups(self) -> int:
        """As given."""
        return self.num_groups.value.data


@irdl_op_definition
class TpuInstanceNorm(GroupedTpu):
    """`tpu.InstanceNorm`: every channel is a group."""

    name = "tpu.InstanceNorm"

    @property
    def groups(self) -> int:
        """One per channel."""
        return shape_of(self.input)[1]


@irdl_op_definition
class TopGroupNorm(GroupedTop):
    """`top.GroupNorm`: `num_groups` equal runs of channels."""

    name = "top.GroupNorm"
    ONNX: ClassVar[tuple[str, ...]] = ("GroupNormalization",)
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", bf16="f32")
    TPU: ClassVar[OpT] = TpuGroupNorm

    num_groups = attr_def(IntegerAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX GroupNormalization of opset 21; before, it is deprecated (one scale per group) and no valid ONNX."""
        if node.take("stash_type", 1) != 1:
            raise node.refuse("stash_type 1 (float32 statistics) is required")
        x, groups = ctx.value(node.inputs[0]), int(node.take("num_groups", 0))
        shape = shape_of(x)
        if len(shape) < 3 or groups < 1 or shape[1] % groups:
            raise node.refuse(f"num_groups that divides the channels of {shape} is required, got {groups}")
        operands = [x, *(ctx.value(name) for name in node.inputs[1:])]
        attributes = {"num_groups": int_attr(groups), "eps": float_attr(node.take("epsilon", 1e-5))}
        return ctx.build(cls, operands, attributes, node.outputs[0])

    @property
    def groups(self) -> int:
        """As given."""
        return self.num_groups.value.data


@irdl_op_definition
class TopInstanceNorm(GroupedTop):
    """`top.InstanceNorm`: every channel is a group."""

    name = "top.InstanceNorm"
    ONNX: ClassVar[tuple[str, ...]] = ("InstanceNormalization",)
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32")
    TPU: ClassVar[OpT] = TpuInstanceNorm

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX InstanceNormalization."""
        operands = [ctx.value(name) for name in node.inputs]
        return ctx.build(cls, operands, {"eps": float_attr(node.take("epsilon", 1e-5))}, node.outputs[0])

    @property
    def groups(self) -> int:
        """One per channel."""
        return shape_of(self.input)[1]
