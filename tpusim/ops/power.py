"""Powers and remainders of two tensors: `top.Pow3`, `top.Mod` (numerics.md 12.1); a power by a number is `top.Pow`."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from tpusim_kernels.power import power, remainder
from xdsl.dialects.builtin import BoolAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.ir.attrs import LayerGroupAttr, flag
from tpusim.ir.types import shape_of
from tpusim.isa import functions
from tpusim.ops.framework.base import Array, Builder, FloatRule, Holds, OpT, Shape, holds
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import broadcast_shape
from tpusim.ops.framework.macro import MacroTop, MacroTpu
from tpusim.ops.structure import TopWeight

IN_F32 = FloatRule(int8="f32", f16="f32", bf16="f32")


class PairTop(MacroTop):
    """Two tensors, their broadcast; integers of integers."""

    FLOAT: ClassVar[FloatRule] = IN_F32

    input = operand_def(TensorType)
    other = operand_def(TensorType)
    output = result_def(TensorType)

    def infer(self) -> tuple[Shape, ...]:
        """The extents to which the operands broadcast."""
        return (broadcast_shape([shape_of(v) for v in self.operands]),)

    def held(self) -> Holds:
        """Integers stay integers; what else it holds is float."""
        computed = [v for v in self.operands if not isinstance(v.owner, TopWeight)]
        return "integer" if computed and all(holds(v) == "integer" for v in computed) else "real"

    def flops(self) -> int:
        """One per element (DN-27)."""
        return prod(shape_of(self.output))


class PairTpu(MacroTpu):
    """A macro function of two tensors that broadcast."""

    input = operand_def(TensorType)
    other = operand_def(TensorType)
    output = result_def(TensorType)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The extents to which the operands broadcast."""
        return (broadcast_shape([shape_of(v) for v in self.operands]),)


@irdl_op_definition
class TpuPow3(PairTpu):
    """`tpu.Pow3`: in double, rounded once."""

    name = "tpu.Pow3"

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute the function of the top op, with its kernel."""
        return (power(*operands),)

    def function(self) -> functions.Function:
        """The function that raises to a power."""
        return functions.Power()


@irdl_op_definition
class TopPow3(PairTop):
    """`top.Pow3`: the first tensor to the power of the second."""

    name = "top.Pow3"
    TPU: ClassVar[OpT] = TpuPow3

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, exponent: SSAValue, *, name: str) -> SSAValue:
        """Of two tensors that broadcast."""
        return builder.build(cls, [x, exponent], {}, name)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in float64 and round once, to the type of the result."""
        return (power(*operands),)


@irdl_op_definition
class TpuMod(PairTpu):
    """`tpu.Mod`: the remainder in f32."""

    name = "tpu.Mod"

    fmod = attr_def(BoolAttr)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute the function of the top op, with its kernel."""
        return (remainder(*operands, fmod=bool(self.fmod.value.data)),)

    def function(self) -> functions.Function:
        """The function that gives the remainder."""
        return functions.Remainder(bool(self.fmod.value.data))


@irdl_op_definition
class TopMod(PairTop):
    """`top.Mod`: the remainder with the sign of the divisor; with `fmod` with that of the dividend."""

    name = "top.Mod"
    TPU: ClassVar[OpT] = TpuMod

    fmod = attr_def(BoolAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, divisor: SSAValue, *, fmod: bool = False, name: str) -> SSAValue:
        """Of two tensors that broadcast."""
        return builder.build(cls, [x, divisor], {"fmod": flag(fmod)}, name)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Exact where quotient and operands are whole."""
        return (remainder(*operands, fmod=bool(self.fmod.value.data)),)
