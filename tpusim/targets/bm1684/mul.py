"""Products of tensors in integers."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.ops.mul import TopMul, byte_fit
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopMul, IntegerLowering)
class MulByClampedShift(Model[TopMul], IntegerLowering):
    """The 8-bit best fit, if its multiplier is not negative; the shift is clamped to 0..31."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        return self.op.with_multiplier(ctx, _clamped)


def _clamped(scale: float) -> tuple[int, int] | None:
    fit = byte_fit(scale)
    return (fit[0], min(max(fit[1], 0), 31)) if fit is not None and 0 <= fit[0] <= 127 else None
