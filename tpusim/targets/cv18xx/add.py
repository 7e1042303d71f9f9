"""Sums with one shift for all operands and an 8-bit multiplier for each (numerics.md 5.3, 9.7)."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ops.add import TopAdd, TpuAdd
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.targets.cv18xx.multipliers import in_common_shift
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopAdd, IntegerLowering)
class AddByCommonShift(Model[TopAdd], IntegerLowering):
    """No operand may be constant."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        return in_common_shift(ctx, self.op, TpuAdd)
