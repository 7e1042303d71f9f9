"""Convolutions and transposed ones, with a QDM multiplier and shift per output channel (numerics.md 5.5)."""

from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import value_name
from tpusim.ir.weights import WeightStore
from tpusim.ops.conv.base import ConvTop
from tpusim.ops.conv.top import TopConv
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.imported_scales import note_imported_scales
from tpusim.ops.interfaces import ChipRewrites, IntegerLowering
from tpusim.targets.cv18xx.dilated import ZerosBetweenTaps
from tpusim.targets.cv18xx.qdm import qdm_operands
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(ConvTop, IntegerLowering)
class ConvByQdm(Model[ConvTop], IntegerLowering):
    """The multiplier is chosen first; filter and bias are quantised to fit it. No volumes."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """The tpu op with an int8 filter, an int32 bias and the requant of each channel."""
        op, constants = self.op, self.op.constants(ctx)
        why = op.why_not_integer(ctx) or op.why_no_volume(ctx)
        if why is not None:
            return why
        assert constants is not None  # required by why_not_integer
        note_imported_scales(op, ctx, op.filter)
        coefficients, requant = qdm_operands(ctx, value_name(op.filter), *constants, op.input, op.output)
        operands = [ctx.operand(op.input, "int8", op), *coefficients]
        return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), requant)


@TARGET.attach(TopConv, ChipRewrites)
class WideDilations(Model[TopConv], ChipRewrites):
    """Dilations above the limit of a command are reduced (codegen.md DC-09)."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A smaller dilation, and a filter with zeros between its taps."""
        del chip
        return (ZerosBetweenTaps(weights, TopConv),)
