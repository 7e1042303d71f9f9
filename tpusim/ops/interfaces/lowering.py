"""Questions of the lowering to ops: the forms in integers and in float, and the rewrites of a chip."""

from typing import ClassVar

from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.contexts import LoweringContext


class Lowering:
    """The op as ops of a chip."""

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """Build the tpu ops of this op for the context's chip; returns the value of the result."""
        raise NotImplementedError


class IntegerLowering:
    """The op in quantised integers."""

    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """The value of the result, or why this op has no integer form; by default it has none."""
        del ctx
        return "this op has no integer form (numerics.md 12.1)"


class FloatLowering:
    """The op in the float type of `ctx.float_mode`."""

    def lower_float(self, ctx: LoweringContext) -> SSAValue | str:
        """The value of the result, or why this op has no such form."""
        raise NotImplementedError


class QuirkRewrite(RewritePattern):
    """A rewrite that reproduces a quirk, for a chip or of a canonical module; it is left out if the quirk is off."""

    QUIRK: ClassVar[Quirk]


class ChipRewrites:
    """Rewrites of the calibrated top module for a chip, before it is lowered."""

    @classmethod
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The patterns; they may read and add weights."""
        raise NotImplementedError


class FusingRewrites:
    """Rewrites at the end of the lowering: several ops become one op of the chip; the results may change."""

    @classmethod
    def fusing_patterns(cls, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The patterns for the tpu module."""
        raise NotImplementedError


class LoweredRewrites:
    """Rewrites of the lowered module before weights are reordered (processor-tpu-optimize)."""

    @classmethod
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The patterns; they may read and add weights."""
        raise NotImplementedError
