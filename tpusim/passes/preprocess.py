"""How inputs are made of images, as passes: stated on the inputs, and fused into the module."""

from dataclasses import dataclass

from typing_extensions import override

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.images import Preprocess, with_preprocess
from tpusim.ir.module import Model, State
from tpusim.lowering import FrameOptions, LoweringConfig, fuse_preprocess, require_frames
from tpusim.passes.base import TOP, Pass
from tpusim.passes.codecs import CHIP
from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class SetPreprocess(Preprocess, Pass):
    """State on inputs how they are made of images; `fuse-preprocess` lets the module do it.

    inputs: which, by number from 1, (): all. The other options are those of preprocessing.
    """

    name = "set-preprocess"
    requires = frozenset({State.TOP})
    inputs: tuple[int, ...] = ()

    @override
    def check_options(self, ctx: PassContext) -> None:
        self.require_count("inputs", 1)

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return with_preprocess(model, self, self.inputs)


@dataclass(frozen=True)
class FusePreprocess(FrameOptions, Pass):
    """Let inputs that are images take frames of a camera; the lowering makes ops of their preprocessing.

    chip: the chip of the lowering, which decides how frames are aligned. The other options are those of frames.
    """

    name = "fuse-preprocess"
    requires = TOP
    exact = False
    codecs = {"chip": CHIP}
    chip: str | ChipSpec = LoweringConfig.chip

    @override
    def check_options(self, ctx: PassContext) -> None:
        require_frames(self, chips.load(self.chip))

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        fuse_preprocess(model, self, chips.load(self.chip))
        return model
