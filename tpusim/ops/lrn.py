"""Local response normalisation: `top.LRN` and `tpu.LRN`, in f32, or in BF16 by tables (numerics.md 12.1)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels import norm as kernels
from tpusim_kernels.prim.floattable import power_table
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def, var_operand_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, float_attr, int_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.activation.lut_bf16 import table_weights
from tpusim.ops.framework.base import Array, Builder, EmitContext, FloatRule, LoweringContext, Shape, TpuOp
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import UnaryTop

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
    """`top.LRN`: x / (bias + alpha/size * sum of squares of `size` channels around, one fewer if it is even)^beta."""

    name = "top.LRN"
    SPEC: ClassVar[tuple[str, ...]] = ("12.1",)
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")

    size = attr_def(IntegerAttr)
    alpha = attr_def(FloatAttr)
    beta = attr_def(FloatAttr)
    bias = attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0,
        name: str,
    ) -> SSAValue:  # fmt: skip
        """size: channels in the window; x (n, c, h, w)."""
        if len(shape_of(x)) != 4 or size < 1:
            raise ValueError(f"size and an input (n, c, h, w) are required, got size {size or None} and {shape_of(x)}")
        constants = {"alpha": float_attr(alpha), "beta": float_attr(beta), "bias": float_attr(bias)}
        return builder.build(cls, [x], {"size": int_attr(size), **constants}, name)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's shape."""
        return (lrn_shape(shape_of(self.input)),)

    @property
    def constants(self) -> dict[str, Any]:
        """size, alpha, beta and bias as the kernel and the command take them."""
        return _constants(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in f32."""
        return (kernels.lrn_float(operands[0], **self.constants),)

    def flops(self) -> int:
        """One per element of the window (DN-27)."""
        return prod(shape_of(self.output)) * self.size.value.data

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.LRN in float in every mode, by tables where the chip has them.

        Decision: a window of an even size is computed in float and rounded once. Everywhere it is one channel narrower
        than ONNX says (U-37).
        """
        attributes = {key: self.attributes[key] for key in ATTRIBUTES}
        operands = [ctx.operand(self.input, ctx.float_mode(self), self)]
        if ctx.chip.float_tables and self.size.value.data % 2:
            operands += table_weights(ctx, op_name(self), power_table(-self.beta.value.data))
        return ctx.build(TpuLRN, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


@irdl_op_definition
class TpuLRN(TpuOp):
    """`tpu.LRN`: f32, or every step rounded to BF16.

    tables: exponent and mantissa entries of x^-beta, on a chip that finds the power by table; else none.
    """

    name = "tpu.LRN"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    input = operand_def(TensorType)
    tables = var_operand_def(TensorType)
    output = result_def(TensorType)
    group_info = opt_attr_def(LayerGroupAttr)
    size = attr_def(IntegerAttr)
    alpha = attr_def(FloatAttr)
    beta = attr_def(FloatAttr)
    bias = attr_def(FloatAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's shape."""
        return (lrn_shape(shape_of(self.input)),)

    @property
    def constants(self) -> dict[str, Any]:
        """size, alpha, beta and bias as the kernel and the command take them."""
        return _constants(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """By tables, else in f32."""
        if self.tables:
            return (kernels.lrn_tables(*operands, **self._without_beta()),)
        return (kernels.lrn_float(operands[0], **self.constants),)

    def _without_beta(self) -> dict[str, Any]:
        """The constants that are not in the tables."""
        return {key: value for key, value in self.constants.items() if key != "beta"}

    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local on BM chips (layer_group.md 2), and in this version on no other."""
        del chip
        return "LRN sums over channels, which lie in different lanes"

    def emit(self, ctx: EmitContext) -> None:
        """Emit one FN command: `lrn_tables` where the op has tables, else `lrn`."""
        if self.tables:
            every = tuple(ctx.input(i) for i in range(len(self.operands)))
            function = functions.LrnTables(**self._without_beta())
            ctx.emit(isa.Fn, function=function, inputs=every, output=ctx.output())
            return
        ctx.emit(isa.Fn, function=functions.Lrn(**self.constants), inputs=(ctx.input(0),), output=ctx.output())
