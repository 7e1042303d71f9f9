"""Scales: factors and terms per channel, as depthwise 1x1 convolutions (numerics.md 9.4)."""

from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import op_name
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.conv.channelwise import build_channelwise
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import relu_attributes, relu_limit_of, relu_of
from tpusim.ops.interfaces import ChipRewrites, FloatLowering, IntegerLowering
from tpusim.ops.norm.top import FuseScaleIntoConv, TopScale
from tpusim.targets.cv18xx.qdm import qdm_operands
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopScale, ChipRewrites)
class ScaleIntoConv(Model[TopScale], ChipRewrites):
    """A Scale after a convolution is folded into it."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Fold into the Conv before; any other Scale is lowered to a convolution."""
        del chip
        return (FuseScaleIntoConv(weights),)


@TARGET.attach(TopScale, FloatLowering)
class ScaleAsFloatConv(Model[TopScale], FloatLowering):
    """CV18xx has no tpu.Scale."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """A tpu.Conv2D in float; tensors without four axes are reshaped to (n, c, 1, rest)."""
        op, name, shape = self.op, op_name(self.op), shape_of(self.op.output)
        scale, bias = op.constants(ctx)
        x, element = ctx.operand(op.input, ctx.float_mode(op), op), ctx.float_type(op)
        relu = relu_attributes(relu_of(op), relu_limit_of(op))
        coefficients = [
            ctx.float_weight(op, name + "_scale", scale.reshape(-1, 1, 1, 1)), ctx.weight(name + "_bias", bias)
        ]  # fmt: skip
        return build_channelwise(ctx, x, coefficients, relu, element, shape, name)


@TARGET.attach(TopScale, IntegerLowering)
class ScaleAsConv(Model[TopScale], IntegerLowering):
    """CV18xx has no tpu.Scale."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """A tpu.Conv2D with a QDM multiplier and shift per channel."""
        op, name, shape = self.op, op_name(self.op), shape_of(self.op.output)
        scale, bias = op.constants(ctx)
        if ctx.quant(op.input) is None or ctx.quant(op.output) is None:
            return "input or output is not calibrated"
        x, filter = ctx.operand(op.input, "int8", op), scale.reshape(-1, 1, 1, 1)
        coefficients, requant = qdm_operands(ctx, name, filter, bias, op.input, op.output)
        attributes = relu_attributes(relu_of(op), -1.0) | requant
        return build_channelwise(ctx, x, coefficients, attributes, ctx.quantised_type(op.output), shape, name)
