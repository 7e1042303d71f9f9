"""Differences of tensors in integers, and quotients."""

import numpy as np
from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import constant_operand
from tpusim.ops.interfaces import ChipRewrites, IntegerLowering
from tpusim.ops.sub import TopDiv, TopSub
from tpusim.targets.bm1684.shifts import shift_first
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopSub, IntegerLowering)
class SubByShifts(Model[TopSub], IntegerLowering):
    """The shift is chosen before the multiplier; the scale of a constant follows from its range."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Sub with the multiplier and shift of numerics.md 5.4 for each operand."""
        return self.op.with_multipliers(ctx, shift_first, _stored)


def _stored(constant: np.ndarray, s_out: float) -> tuple[np.ndarray, tuple[int, int]]:
    stored, scale = constant_operand(constant)
    return stored, shift_first(scale, s_out)


@TARGET.attach(TopDiv, ChipRewrites)
class DivStays(Model[TopDiv], ChipRewrites):
    """A quotient by a root stays one."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """BM1684 has no pattern for quotients."""
        del weights, chip
        return ()
