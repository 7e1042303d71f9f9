"""A family of chips that extends a shipped one, and a chip of it: `tpusim run NETWORK --chip demo1688`."""

from pathlib import Path

from xdsl.ir import SSAValue

from tpusim.interfaces import Model, Target
from tpusim.ir.attrs import op_name
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import relu_attributes
from tpusim.ops.interfaces import FloatLowering, GroupRules
from tpusim.ops.mul import TpuMul
from tpusim.ops.relu import TpuRelu
from tpusim.targets.bm1684x import TARGET as BM1684X

TARGET = Target("demo", extends=BM1684X)
DEMO1688 = Path(__file__).with_name("demo1688.toml")


@TARGET.provide(GroupRules)
class DemoGroups(GroupRules):
    """Layer groups are searched greedily."""

    SEARCH = "1"


@TARGET.attach("demo.SquaredRelu", FloatLowering)
class ReluAndProduct(Model, FloatLowering):
    """A squared relu as two ops that every chip has."""

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Relu, then tpu.Mul of its result with itself."""
        op, element, shape = self.op, ctx.float_type(self.op), shape_of(self.op.output)
        x = ctx.operand(op.input, ctx.float_mode(op), op)
        relu = ctx.build(TpuRelu, [x], relu_attributes(), element, shape, f"{op_name(op)}_relu")
        return ctx.build(TpuMul, [relu, relu], relu_attributes(), element, shape, op_name(op))
