"""Reductions: `top.Reduce` and `tpu.Reduce`, in float on every chip (numerics.md 11.3, 12)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
from tpusim_kernels.reduce import reduce_float
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, flag, ints, ints_attr, op_name, text
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa import commands as isa
from tpusim.ops.base import Array, EmitContext, ImportContext, LoweringContext, OnnxNode, Shape, TopOp, TpuOp

KINDS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceProd")
AXES_AS_INPUT = {"ReduceSum": 13}
"""Opset from which the axes are an input, 18 for the others."""
ATTRIBUTES = ("axes", "keepdims", "mode")


def reduced_shape(x: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape after a reduction. Raises ValueError for axes that x does not have."""
    if not axes or len(set(axes)) != len(axes) or not all(0 <= axis < len(x) for axis in axes):
        raise ValueError(f"distinct axes in [0, {len(x)}) are required, got {list(axes)}")
    if keepdims:
        return tuple(1 if i in axes else size for i, size in enumerate(x))
    return tuple(size for i, size in enumerate(x) if i not in axes)


def _options(op: Operation) -> dict[str, Any]:
    mode, axes, keepdims = (op.attributes[key] for key in ("mode", "axes", "keepdims"))
    assert isinstance(mode, StringAttr) and isinstance(keepdims, IntegerAttr)
    return {"mode": mode.data, "axes": ints(axes), "keepdims": bool(keepdims.value.data)}


def _shape(op: Operation) -> Shape:
    options = _options(op)
    if options["mode"] not in KINDS:
        raise ValueError(f"a mode of {', '.join(KINDS)} is required, got {options['mode']}")
    return reduced_shape(shape_of(op.operands[0]), options["axes"], options["keepdims"])


def _count(op: Operation) -> int:
    """Elements of one sum."""
    x = shape_of(op.operands[0])
    return prod(x[axis] for axis in ints(op.attributes["axes"]))


@irdl_op_definition
class TopReduce(TopOp):
    """`top.Reduce`: mean, sum, maximum, minimum, L1, L2 or product over `axes`."""

    name = "top.Reduce"
    ONNX: ClassVar[tuple[str, ...]] = KINDS

    input = operand_def(TensorType)
    output = result_def(TensorType)
    axes = attr_def(ArrayAttr)
    keepdims = attr_def(BoolAttr)
    mode = attr_def(StringAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX Reduce*: axes as an attribute, from opset 18 (ReduceSum 13) as an input; none means all of them."""
        x = ctx.value(node.inputs[0])
        rank = len(shape_of(x))
        axes, noop = _onnx_axes(ctx, node), node.take("noop_with_empty_axes", 0)
        if not axes and noop:
            return x
        axes = axes or list(range(rank))
        if not all(-rank <= axis < rank for axis in axes):
            raise node.refuse(f"axes in [{-rank}, {rank}) are required, got {axes}")
        attributes = {
            "axes": ints_attr(sorted({axis % rank for axis in axes})), "mode": text(node.op_type),
            "keepdims": flag(bool(node.take("keepdims", 1))),
        }  # fmt: skip
        return ctx.build(cls, [x], attributes, node.outputs[0])

    def infer(self) -> tuple[Shape, ...]:
        """Axes of length 1, or removed."""
        return (_shape(self),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32."""
        return (reduce_float(operands[0], scale=float(np.float32(1 / _count(self))), **_options(self)),)

    def flops(self) -> int:
        """One per element read (DN-27)."""
        return prod(shape_of(self.input))

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Reduce in float in every mode."""
        if ctx.mode(self) == "int8":
            ctx.fallback(self, f"{self.mode.data} has no integer form (numerics.md 12.1)")
        operands = [ctx.operand(self.input, ctx.float_mode(self), self)]
        attributes = {key: self.attributes[key] for key in ATTRIBUTES}
        return ctx.build(TpuReduce, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


def _onnx_axes(ctx: ImportContext, node: OnnxNode) -> list[int]:
    """The axes of a node, empty if it names none."""
    if ctx.opset < AXES_AS_INPUT.get(node.op_type, 18):
        return list(node.take("axes", ()))
    if len(node.inputs) < 2 or not node.inputs[1]:
        return []
    axes = ctx.constant(node.inputs[1])
    if axes is None:
        raise node.refuse(f"constant axes are required, '{node.inputs[1]}' is computed")
    return [int(axis) for axis in axes.reshape(-1)]


@irdl_op_definition
class TpuReduce(TpuOp):
    """`tpu.Reduce`: f32; a mean is the sum times 1/n, which is rounded to the output's type first."""

    name = "tpu.Reduce"

    input = operand_def(TensorType)
    output = result_def(TensorType)
    axes = attr_def(ArrayAttr)
    keepdims = attr_def(BoolAttr)
    mode = attr_def(StringAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """Axes of length 1, or removed."""
        return (_shape(self),)

    @property
    def _scale(self) -> float:
        """1/n in the output's type."""
        kind = storage_dtype(element_of(self.output))
        return float(np.float32(1 / _count(self)).astype(kind))

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32."""
        return (reduce_float(operands[0], scale=self._scale, **_options(self)),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """No local form in this version (layer_group.md 2 allows one axis of a 4-D tensor)."""
        del chip
        return "the reduction needs whole axes"

    def emit(self, ctx: EmitContext) -> None:
        """FN reduce."""
        axes = ",".join(str(axis) for axis in ints(self.axes))
        params: dict[str, float | int | str | bool] = {"mode": self.mode.data, "axes": axes, "scale": self._scale}
        ctx.emit(isa.Fn, function="reduce", inputs=(ctx.input(0),), output=ctx.output(), params=params)
