"""Instance normalisation as group normalisation."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import int_attr
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import built_in_float
from tpusim.ops.groupnorm import TopInstanceNorm, TpuGroupNorm
from tpusim.ops.interfaces import FloatLowering
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopInstanceNorm, FloatLowering)
class InstanceNormAsGroupNorm(Model[TopInstanceNorm], FloatLowering):
    """Each channel is a group, because BM1684 has no tpu.InstanceNorm."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.GroupNorm with one channel per group."""
        op = self.op
        return built_in_float(op, ctx, TpuGroupNorm, {"num_groups": int_attr(op.groups), "eps": op.eps})
