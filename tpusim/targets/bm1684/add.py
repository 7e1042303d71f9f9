"""Sums of tensors in integers."""

import numpy as np
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ops.add import Scaling, TopAdd, byte_limits
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.targets.bm1684.shifts import shift_first
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopAdd, IntegerLowering)
class AddByShifts(Model[TopAdd], IntegerLowering):
    """The shift is chosen before the multiplier; constants are divided by their scale."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Add with the multiplier and shift of numerics.md 5.4 for each operand."""
        return self.op.with_multipliers(ctx, shift_first, _stored)


def _stored(constant: np.ndarray, s_out: float) -> tuple[np.ndarray, Scaling]:
    """Integers round-half-away(c/s) and their scaling; s = max|c|/127 in f64, /255 without negative values (9.3)."""
    dtype, largest, limit = byte_limits(constant)
    scale = largest / limit
    return saturate_np(round_half_away(constant.astype(np.float64) / scale), dtype), shift_first(scale, s_out)
