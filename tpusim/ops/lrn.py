"""Local response normalisation: `top.LRN` and `tpu.LRN`, in f32, or in BF16 by tables (numerics.md 12.1)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels import norm as kernels
from tpusim_kernels.prim.floattable import power_table
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, var_operand_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import float_attr, int_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.activation.lut_bf16 import table_weights
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    FloatRule,
    LoweringContext,
    Shape,
    TopOp,
    TpuOp,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import Unary, float_operands

ATTRIBUTES = ("size", "alpha", "beta", "bias")


class LRN(Unary):
    """x / (bias + alpha/size * sum of the squares of the `size` nearest channels)^beta.

    If `size` is even, one channel is left out.
    """

    size = attr_def(IntegerAttr)
    alpha = attr_def(FloatAttr)
    beta = attr_def(FloatAttr)
    bias = attr_def(FloatAttr)

    @property
    def constants(self) -> dict[str, Any]:
        """size, alpha, beta and bias, as the kernel and the command take them."""
        return {
            "size": self.size.value.data, "alpha": self.alpha.value.data, "beta": self.beta.value.data,
            "bias": self.bias.value.data,
        }  # fmt: skip

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The operand's shape, which must be (n, c, h, w)."""
        shape = shape_of(self.input)
        if len(shape) != 4:
            raise ValueError(f"an input (n, c, h, w) is required, got {shape}")
        return (shape,)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.lrn_float(operands[0], **self.constants),)


@irdl_op_definition
class TopLRN(LRN, TopOp):
    """`top.LRN`: local response normalisation over channels."""

    name = "top.LRN"
    SPEC: ClassVar[tuple[str, ...]] = ("12.1",)
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0,
        name: str,
    ) -> SSAValue:  # fmt: skip
        """x: (n, c, h, w). size: channels in the window."""
        if len(shape_of(x)) != 4 or size < 1:
            raise ValueError(f"size and an input (n, c, h, w) are required, got size {size or None} and {shape_of(x)}")
        constants = {"alpha": float_attr(alpha), "beta": float_attr(beta), "bias": float_attr(bias)}
        return builder.build(cls, [x], {"size": int_attr(size), **constants}, name)

    @override
    def flops(self) -> int:
        """One per element of the window (DN-27)."""
        return prod(shape_of(self.output)) * self.size.value.data

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.LRN in float in every mode, by tables on a chip that has them.

        A window of even size is one channel narrower than in ONNX (U-37). Decision: it is computed without tables and
        rounded once.
        """
        attributes = {key: self.attributes[key] for key in ATTRIBUTES}
        operands = float_operands(self, ctx)
        if ctx.chip.hardware.float_tables and self.size.value.data % 2:
            operands += table_weights(ctx, op_name(self), power_table(-self.beta.value.data))
        return ctx.build(TpuLRN, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


@irdl_op_definition
class TpuLRN(LRN, TpuOp):
    """`tpu.LRN`: in f32, or by tables with every step rounded to BF16.

    tables: exponent and mantissa entries of x^-beta on a chip that computes powers by tables, else empty.
    """

    name = "tpu.LRN"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    COPIED_OPERANDS: ClassVar[tuple[int, ...]] = (1, 2)

    input = operand_def(TensorType)  # again, because inherited operands come last
    tables = var_operand_def(TensorType)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        if self.tables:
            return (kernels.lrn_tables(*operands, **self._without_beta()),)
        return super().inference(operands)

    def _without_beta(self) -> dict[str, Any]:
        """The constants that the tables do not contain."""
        return {key: value for key, value in self.constants.items() if key != "beta"}

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local (layer_group.md 2)."""
        del chip
        return "LRN sums over channels, which lie in different lanes"

    @override
    def emit(self, ctx: EmitContext) -> None:
        if self.tables:
            every = tuple(ctx.input(i) for i in range(len(self.operands)))
            function = functions.LrnTables(**self._without_beta())
            ctx.emit(isa.Fn, function=function, inputs=every, output=ctx.output())
            return
        ctx.emit(isa.Fn, function=functions.Lrn(**self.constants), inputs=(ctx.input(0),), output=ctx.output())
