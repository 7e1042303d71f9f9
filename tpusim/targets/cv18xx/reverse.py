"""Mirrored axes of any type."""

from typing import ClassVar

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ops.framework.base import FloatRule, LoweringContext
from tpusim.ops.interfaces import FloatTypes, Lowering
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.reverse import TopReverse, TpuReverse
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopReverse, Lowering)
class MirrorsIntegers(Model[TopReverse], Lowering):
    """The family mirrors bytes too."""

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return lower_same_scale(self.op, ctx, TpuReverse, dict(self.op.attributes))


@TARGET.attach(TopReverse, FloatTypes)
class MirrorsFloats(Model[TopReverse], FloatTypes):
    """The family mirrors floats of 16 bits as they are."""

    FLOAT: ClassVar[FloatRule] = FloatRule()
