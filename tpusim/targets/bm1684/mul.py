"""Products of tensors: how integers are lowered."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.ops.mul import TopMul, byte_fit
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopMul, IntegerLowering)
class MulByClampedShift(Model[TopMul], IntegerLowering):
    """The best fit whose multiplier has 7 bits; its shift is limited to 0 to 31."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Mul, or why not."""
        return self.op.with_multiplier(ctx, _clamped)


def _clamped(scale: float) -> tuple[int, int] | None:
    fit = byte_fit(scale)
    return (fit[0], min(max(fit[1], 0), 31)) if fit is not None and 0 <= fit[0] <= 127 else None
