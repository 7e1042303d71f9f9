"""Bytes that are rescaled."""

from tpusim_kernels.prim.multiplier import small_multiplier
from typing_extensions import override
from xdsl.ir import Operation

from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.rescale import Rescaling
from tpusim.targets.cv18xx.target import TARGET


@TARGET.provide(Rescaling)
class SmallMultipliers(Rescaling):
    """The multiplier follows from thresholds; the shift is to the right (numerics.md 5.3)."""

    @override
    def fit(self, ctx: LoweringContext, op: Operation, scale: float) -> tuple[int, int] | None:
        """8-bit multiplier and right shift; every scale has one."""
        del ctx, op
        return small_multiplier(scale)
