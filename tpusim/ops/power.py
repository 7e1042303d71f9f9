"""Powers and remainders of two tensors: `top.Pow3`, `top.Mod` (numerics.md 12.1). A constant exponent is `top.Pow`."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from tpusim_kernels.power import power, remainder
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def

from tpusim.ir.attrs import flag
from tpusim.ir.types import shape_of
from tpusim.isa import functions
from tpusim.ops.framework.base import Array, Builder, FloatRule, Holds, OpT, Shape, ShapedOp
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import arithmetic_holds, broadcast_shape
from tpusim.ops.framework.macro import MacroTop, MacroTpu


class Pair(ShapedOp):
    """An op on two tensors that broadcast."""

    input = operand_def(TensorType)
    other = operand_def(TensorType)
    output = result_def(TensorType)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (broadcast_shape([shape_of(v) for v in self.operands]),)


class PairTop(Pair, MacroTop):
    """An op on two tensors that broadcast, computed in f32."""

    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")

    @override
    def result_holds(self) -> Holds:
        return arithmetic_holds(self.operands)

    @override
    def flops(self) -> int:
        """One per element (DN-27)."""
        return prod(shape_of(self.output))


class Pow3(Pair):
    """The first tensor to the power of the second, in double, rounded once."""

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (power(*operands),)


@irdl_op_definition
class TpuPow3(Pow3, MacroTpu):
    """`tpu.Pow3`: the first tensor to the power of the second. TPU-MLIR lowers `top.Pow3` to Exp(y * Log(x)).

    That is NaN for a negative x, which has a power in ONNX if y is a whole number.
    """

    name = "tpu.Pow3"

    @override
    def function(self) -> functions.Function:
        return functions.Power()


@irdl_op_definition
class TopPow3(Pow3, PairTop):
    """`top.Pow3`: the first tensor to the power of the second."""

    name = "top.Pow3"
    TPU: ClassVar[OpT] = TpuPow3

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, exponent: SSAValue, *, name: str) -> SSAValue:
        """Append the op; the two tensors broadcast."""
        return builder.build(cls, [x, exponent], {}, name)


class Mod(Pair):
    """The remainder with the sign of the divisor, or with `fmod` of the dividend, in f32.

    It is exact where quotient and operands are whole.
    """

    fmod = attr_def(BoolAttr)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (remainder(*operands, fmod=bool(self.fmod.value.data)),)


@irdl_op_definition
class TpuMod(Mod, MacroTpu):
    """`tpu.Mod`: the remainder of a division. TPU-MLIR lowers `top.Mod` to x - y * Floor(x / y).

    That has the sign of the divisor, also where `fmod` asks for the sign of the dividend.
    """

    name = "tpu.Mod"

    @override
    def function(self) -> functions.Function:
        return functions.Remainder(bool(self.fmod.value.data))


@irdl_op_definition
class TopMod(Mod, PairTop):
    """`top.Mod`: the remainder of a division."""

    name = "top.Mod"
    TPU: ClassVar[OpT] = TpuMod

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, divisor: SSAValue, *, fmod: bool = False, name: str) -> SSAValue:
        """Append the op; the two tensors broadcast."""
        return builder.build(cls, [x, divisor], {"fmod": flag(fmod)}, name)
