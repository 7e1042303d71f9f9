"""Passes from a top module to a tpu module with its weights as the chip reads them."""

from dataclasses import dataclass

from typing_extensions import override

from tpusim.errors import ConfigError
from tpusim.ir.module import Model, State, update_function_type
from tpusim.lowering import Conversion, ConversionConfig, optimize_for_chip, reorder_weights, require_lowering
from tpusim.passes.base import TOP, Pass, detached
from tpusim.passes.codecs import CHIP, MODE
from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class ProcessorAssign(ConversionConfig, Pass):
    """Begin a lowering for a chip and mode, which the passes after it in the pipeline carry out step by step."""

    name = "processor-assign"
    requires = TOP
    reads_only = True
    codecs = {"chip": CHIP, "mode": MODE}

    @override
    def check_options(self, ctx: PassContext) -> None:
        require_lowering(self)

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        ctx.conversion = Conversion(model, self)
        return model


@dataclass(frozen=True)
class _Step(Pass):
    """A step of a lowering that `processor-assign` has begun."""

    continues = True

    def begun(self, ctx: PassContext) -> Conversion:
        """The lowering. Raises ConfigError if none was begun in this pipeline."""
        if ctx.conversion is None:
            raise ConfigError(
                f"pass {self.name}: it is a step of a lowering, processor-assign is required before it in the same "
                "pipeline; convert-top-to-tpu runs all steps"
            )
        return ctx.conversion


@dataclass(frozen=True)
class ProcessorTopOptimize(_Step):
    """Rewrite a top module by the patterns that ops have for its chip."""

    name = "processor-top-optimize"
    requires = TOP

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        self.begun(ctx).rewrite_top()
        update_function_type(model)  # a result that is returned may have another type now
        return model


@dataclass(frozen=True)
class ChooseFormats(_Step):
    """Give every op its number format, and mark the ops that integers would ruin."""

    name = "choose-formats"
    requires = TOP

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        self.begun(ctx).choose_formats()
        return model


@dataclass(frozen=True)
class PropagateRanges(_Step):
    """Let the ranges of tensors follow the ops."""

    name = "propagate-ranges"
    requires = TOP

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        self.begun(ctx).propagate()
        return model


@dataclass(frozen=True)
class ConvertOps(_Step):
    """Lower every op in program order, with casts where types differ."""

    name = "convert-ops"
    requires = TOP
    produces = State.LOWERED
    exact = False

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        conversion = self.begun(ctx)
        found = conversion.convert()
        conversion.top = detached(model)  # its ranges are read once more, after the tpu module has taken its place
        ctx.fallbacks.extend(conversion.fallbacks)
        return found


@dataclass(frozen=True)
class FoldChannelSwaps(_Step):
    """Fold swaps of an image's channels into the convolutions that read it."""

    name = "fold-channel-swaps"
    requires = frozenset({State.LOWERED})

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        self.begun(ctx).fold_swaps(model)
        return model


@dataclass(frozen=True)
class StripIoQuant(_Step):
    """Let the inputs be stored integers, without casts, if the lowering was asked for that."""

    name = "strip-io-quant"
    requires = frozenset({State.LOWERED})
    exact = False

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        self.begun(ctx).strip_casts(model)
        return model


@dataclass(frozen=True)
class FuseTpuOps(_Step):
    """Fuse tpu ops as the chip's lowering does."""

    name = "fuse-tpu-ops"
    requires = frozenset({State.LOWERED})
    exact = False

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        self.begun(ctx).fuse(model)
        return model


@dataclass(frozen=True)
class CheckScales(_Step):
    """Mark scales of a quantised network that are not kept, and warn of accumulators that can overflow."""

    name = "check-scales"
    requires = frozenset({State.LOWERED})

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        self.begun(ctx).check(model)
        return model


STEPS = (
    ProcessorTopOptimize(), ChooseFormats(), PropagateRanges(), ConvertOps(), FoldChannelSwaps(), StripIoQuant(),
    FuseTpuOps(), CheckScales(),
)  # fmt: skip
"""The steps of a lowering after `processor-assign`, in their order."""


@dataclass(frozen=True)
class ConvertTopToTpu(ConversionConfig, Pass):
    """Lower a top module for a chip and mode, in the steps of STEPS; frames are fused before (`fuse-preprocess`)."""

    name = "convert-top-to-tpu"
    requires = TOP
    produces = State.LOWERED
    exact = False
    codecs = {"chip": CHIP, "mode": MODE}

    @property
    @override
    def composite(self) -> bool:
        return True

    @override
    def check_options(self, ctx: PassContext) -> None:
        require_lowering(self)

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        ctx.run((ProcessorAssign.from_config(self), *STEPS), model.module)
        ctx.conversion = None
        return ctx.model(model.module)


@dataclass(frozen=True)
class ProcessorTpuOptimize(Pass):
    """Rewrite a lowered module by the patterns that ops have for its chip, before layer groups are formed."""

    name = "processor-tpu-optimize"
    requires = frozenset({State.LOWERED})

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return optimize_for_chip(model)


@dataclass(frozen=True)
class WeightReorder(Pass):
    """Put constants into the layouts that the chip reads; done already in a module in state TPU_REORDERED."""

    name = "weight-reorder"
    requires = frozenset({State.LOWERED, State.REORDERED})
    produces = State.REORDERED

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return model if model.state == State.REORDERED else reorder_weights(model)
