"""Pads, and Pads that the compiler inserts before convolutions."""

import numpy as np
from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import ChipRewrites, LoweredRewrites, Lowering
from tpusim.ops.pad import TopPad, TpuPad
from tpusim.ops.patterns.wide_pads import PadsOfSides
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopPad, ChipRewrites)
class PadsOfWideSides(Model[TopPad], ChipRewrites):
    """Padding above the limit of a command becomes a Pad (codegen.md DC-09)."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A Pad takes all padding of such a side."""
        del weights, chip
        return (PadsOfSides(TopPad),)


@TARGET.attach(TpuPad, LoweredRewrites)
class NoPadsInSteps(Model[TpuPad], LoweredRewrites):
    """Wide sides are padded before the lowering."""

    @classmethod
    @override
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        del weights, chip
        return ()


@TARGET.attach(TopPad, Lowering)
class PadHalfUp(Model[TopPad], Lowering):
    """The padding value is rounded half up instead of half away from zero (numerics.md 9.0)."""

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Pad on the stored bytes."""
        return self.op.lower_rounded(ctx, lambda value: np.floor(value + 0.5))
