"""Mirrored axes of integers."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import Lowering
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.reverse import TopReverse, TpuReverse
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopReverse, Lowering)
class MirrorsIntegers(Model[TopReverse], Lowering):
    """The family mirrors bytes too."""

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return lower_same_scale(self.op, ctx, TpuReverse, dict(self.op.attributes))
