"""What the lowering asks of top ops: the form of an op in integers and in float, the chip's rewrites, ranges."""

from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.contexts import LoweringContext


class Lowering:
    """The op as ops of a chip."""

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """Build the tpu op(s) for this op on the context's chip; returns the value that stands for the result."""
        raise NotImplementedError


class IntegerLowering:
    """The op in quantised integers."""

    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """The value that stands for the result, or why there is no such form; by default there is none."""
        del ctx
        return "this op has no integer form (numerics.md 12.1)"


class FloatLowering:
    """The op in the float type of `ctx.float_mode`."""

    def lower_float(self, ctx: LoweringContext) -> SSAValue | str:
        """The value that stands for the result."""
        raise NotImplementedError


class ChipRewrites:
    """Rewrites of the calibrated top module for a chip, before it is lowered."""

    @classmethod
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The patterns, which may read and add weights."""
        raise NotImplementedError


class FusingRewrites:
    """Rewrites that end the lowering: ops that the chip has one op for, whose numbers may be others."""

    @classmethod
    def fusing_patterns(cls, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The patterns, on the tpu module."""
        raise NotImplementedError


class LoweredRewrites:
    """Rewrites of the lowered module before weights are reordered (processor-tpu-optimize)."""

    @classmethod
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """The patterns, which may read and add weights."""
        raise NotImplementedError
