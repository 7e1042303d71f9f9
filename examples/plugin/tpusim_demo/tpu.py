"""The dialect `demo_tpu`: what a chip does."""

from collections.abc import Sequence

import jax.numpy as jnp
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition

from tpusim.isa import commands as isa
from tpusim.ops.framework.base import Array, EmitContext
from tpusim.ops.framework.families import UnaryTpu
from tpusim.ops.interfaces import SharedWindows


@irdl_op_definition
class TpuSquaredRelu(UnaryTpu, SharedWindows):
    """`demo_tpu.SquaredRelu`: two AR commands in f32."""

    name = "demo_tpu.SquaredRelu"

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """As the top op: a maximum is exact, a product rounds once."""
        return (jnp.square(jnp.maximum(operands[0], 0.0)),)

    def emit(self, ctx: EmitContext) -> None:
        """A copy with relu, and its square in the same place."""
        out = ctx.output()
        ctx.emit(isa.Arith, kind="copy", a=ctx.input(0), output=out, relu=True)
        ctx.emit(isa.Arith, kind="mul", a=out, b=out, output=out)


DemoTpu = Dialect("demo_tpu", [TpuSquaredRelu], [])
