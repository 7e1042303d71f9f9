"""Local response normalisation: `top.LRN` and `tpu.LRN`, in f32 on every chip (numerics.md 12.1)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels import norm as kernels
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import float_attr, int_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.ops.base import Array, EmitContext, FloatRule, ImportContext, LoweringContext, OnnxNode, Shape
from tpusim.ops.families import UnaryTop, UnaryTpu

ATTRIBUTES = ("size", "alpha", "beta", "bias")


def lrn_shape(shape: Shape) -> Shape:
    """`shape`. Raises ValueError unless it is (n, c, h, w)."""
    if len(shape) != 4:
        raise ValueError(f"an input (n, c, h, w) is required, got {shape}")
    return shape


def _constants(op: Operation) -> dict[str, Any]:
    found = {key: op.attributes[key] for key in ATTRIBUTES}
    return {key: a.value.data for key, a in found.items() if isinstance(a, IntegerAttr | FloatAttr)}


@irdl_op_definition
class TopLRN(UnaryTop):
    """`top.LRN`: x / (bias + alpha/size * sum of squares of `size` channels around)^beta."""

    name = "top.LRN"
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")
    ONNX: ClassVar[tuple[str, ...]] = ("LRN",)

    size = attr_def(IntegerAttr)
    alpha = attr_def(FloatAttr)
    beta = attr_def(FloatAttr)
    bias = attr_def(FloatAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX LRN of a 4-D tensor."""
        x, size = ctx.value(node.inputs[0]), node.take("size")
        if len(shape_of(x)) != 4 or not size:
            raise node.refuse(f"size and an input (n, c, h, w) are required, got size {size} and {shape_of(x)}")
        defaults = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
        attributes = {key: float_attr(node.take(key, value)) for key, value in defaults.items()}
        return ctx.build(cls, [x], {"size": int_attr(size), **attributes}, node.outputs[0])

    def infer(self) -> tuple[Shape, ...]:
        """The operand's shape."""
        return (lrn_shape(shape_of(self.input)),)

    @property
    def constants(self) -> dict[str, Any]:
        """size, alpha, beta and bias as the kernel and the command take them."""
        return _constants(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32."""
        return (kernels.lrn_float(operands[0], **self.constants),)

    def flops(self) -> int:
        """One per element of the window (DN-27)."""
        return prod(shape_of(self.output)) * self.size.value.data

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.LRN in float in every mode."""
        if ctx.mode(self) == "int8":
            ctx.fallback(self, "LRN has no integer form (numerics.md 12.1)")
        attributes = {key: self.attributes[key] for key in ATTRIBUTES}
        operands = [ctx.operand(self.input, ctx.float_mode(self), self)]
        return ctx.build(TpuLRN, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


@irdl_op_definition
class TpuLRN(UnaryTpu):
    """`tpu.LRN`: f32."""

    name = "tpu.LRN"

    size = attr_def(IntegerAttr)
    alpha = attr_def(FloatAttr)
    beta = attr_def(FloatAttr)
    bias = attr_def(FloatAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The operand's shape."""
        return (lrn_shape(shape_of(self.input)),)

    @property
    def constants(self) -> dict[str, Any]:
        """size, alpha, beta and bias as the kernel and the command take them."""
        return _constants(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32."""
        return (kernels.lrn_float(operands[0], **self.constants),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local on BM chips (layer_group.md 2)."""
        del chip
        return "LRN sums over channels, which lie in different lanes"

    def emit(self, ctx: EmitContext) -> None:
        """FN lrn."""
        ctx.emit(isa.Fn, function="lrn", inputs=(ctx.input(0),), output=ctx.output(), params=self.constants)
