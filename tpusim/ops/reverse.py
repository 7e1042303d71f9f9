"""Mirrored axes: `top.Reverse` and `tpu.Reverse` (numerics.md 9.0, 12.1)."""

from collections.abc import Sequence
from typing import ClassVar

from tpusim_kernels.movement import moved
from typing_extensions import override
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition

from tpusim.ir.attrs import int_attr
from tpusim.ir.types import shape_of
from tpusim.isa import functions
from tpusim.ops.framework.base import Array, Builder, FloatRule, LoweringContext, RangeRule, TopOp
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import Unary, checked_axis
from tpusim.ops.framework.macro import MacroTpu
from tpusim.ops.rescale import lower_same_scale

MOST_AXES = 4
"""Axes of a tensor that TPU-MLIR's op can mirror."""


class Reverse(Unary):
    """The elements along `axis` in opposite order."""

    axis = attr_def(IntegerAttr)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        axis = self.axis.value.data
        return (moved(lambda m, x: m.flip(x, axis), operands[0]),)


@irdl_op_definition
class TpuReverse(Reverse, MacroTpu):
    """`tpu.Reverse`: the elements along `axis` in opposite order, of the same stored type."""

    name = "tpu.Reverse"

    @override
    def function(self) -> functions.Function:
        return functions.Reverse(self.axis.value.data)


@irdl_op_definition
class TopReverse(Reverse, TopOp):
    """`top.Reverse`: the elements along `axis` in opposite order."""

    name = "top.Reverse"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)
    MOVES: ClassVar[bool] = True
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, axis: int, name: str) -> SSAValue:
        """axis: of at most four; a negative one counts from the end."""
        if len(shape_of(x)) > MOST_AXES:
            raise ValueError(f"at most {MOST_AXES} axes are required, got {shape_of(x)}")
        return builder.build(cls, [x], {"axis": int_attr(checked_axis(axis, shape_of(x)))}, name)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        why = "Reverse has no integer form (numerics.md 12.1)"
        return lower_same_scale(self, ctx, TpuReverse, dict(self.attributes), why)
