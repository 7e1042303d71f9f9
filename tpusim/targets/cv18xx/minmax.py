"""The maximum or minimum of tensors; they keep their scales, and the op scales them (numerics.md 9.0, 9.7)."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.ops.minmax import ExtremeTop
from tpusim.targets.cv18xx.multipliers import in_common_shift
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(ExtremeTop, IntegerLowering)
class ExtremeByCommonShift(Model[ExtremeTop], IntegerLowering):
    """No operand may be constant."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        return in_common_shift(ctx, self.op, self.op.TPU)
