"""The dialect `demo`: what a network says."""

from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import irdl_op_definition

from tpusim.ir.attrs import op_name
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import Array, Builder, FloatRule, LoweringContext
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import UnaryTop
from tpusim_demo.tpu import TpuSquaredRelu

IN_F32 = FloatRule(int8="f32", f16="f32", bf16="f32")


@irdl_op_definition
class TopSquaredRelu(UnaryTop):
    """`demo.SquaredRelu`: max(x, 0)^2."""

    name = "demo.SquaredRelu"
    FLOAT: ClassVar[FloatRule] = IN_F32
    SPEC: ClassVar[tuple[str, ...]] = ("12.1",)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, name: str) -> SSAValue:
        """Append the op to a module."""
        return builder.build(cls, [x], {}, name)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """In f32, rounded once by the product."""
        return (jnp.square(jnp.maximum(operands[0], 0.0)),)

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """The op of the chip."""
        operand = ctx.operand(self.input, ctx.float_mode(self), self)
        return ctx.build(TpuSquaredRelu, [operand], {}, ctx.float_type(self), shape_of(self.output), op_name(self))


Demo = Dialect("demo", [TopSquaredRelu], [])
