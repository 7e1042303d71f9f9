"""Models and rules that BM1684 and CV18xx share: the target `SHARED`, which both extend; BM1690 has some of them."""

from typing_extensions import override
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model, Target
from tpusim.ir.weights import WeightStore
from tpusim.ops.activation.top import TopGELU
from tpusim.ops.interfaces import ChipRewrites, KernelLibrary, LocalGen, ProductRules, RangeRule, Ranges, WindowRules
from tpusim.ops.pixelnorm import PixelNormBetweenPermutes, TopPixelNorm
from tpusim.ops.rmsnorm import RMSNormApart, TopRMSNorm
from tpusim.ops.view import TopReshape, TopSqueeze, TopUnsqueeze, TpuReshape, ViewTop, why_other_view
from tpusim.ops.where import TopWhere

SHARED = Target("bm1684 and cv18xx")


@SHARED.provide(WindowRules)
class Windows(WindowRules):
    """Wide strides and dilations have no local form."""

    GATHERS_WIDE = False


@SHARED.provide(ProductRules)
class Products(ProductRules):
    """Integer products have 8-bit results and one multiplier per matrix."""

    WIDE_RESULTS = False
    COLUMN_MULTIPLIERS = False


@SHARED.provide(KernelLibrary)
class Library(KernelLibrary):
    """The library has kernels for whole layers only."""

    LONE_CASTS = False
    PERMUTES_BY_MATRICES = False
    GLOBAL_BUFFERS = False
    UPSAMPLES_BY_INDICES = False


@SHARED.attach(TpuReshape, LocalGen)
class Views(Model[TpuReshape], LocalGen):
    """Only the reshapes around windows over rows have a local form (U-82)."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """A reshape is global unless it adds or drops a fourth axis of extent 1."""
        return why_other_view(self.op, chip) or self.op.why_global(chip)


@SHARED.attach(TopGELU, ChipRewrites)
class NoQuickGelu(Model[TopGELU], ChipRewrites):
    """The sigmoid form of GELU stays in its parts."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        del weights, chip
        return ()


@SHARED.attach(TopWhere, ChipRewrites)
class BranchesBroadcast(Model[TopWhere], ChipRewrites):
    """Branches of a Where stay as they are."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        del weights, chip
        return ()


@SHARED.attach(TopRMSNorm, ChipRewrites)
class NoRMSNorm(Model[TopRMSNorm], ChipRewrites):
    """These families have no tpu.RMSNorm."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Squares, their mean, root, reciprocal and products."""
        del weights, chip
        return (RMSNormApart(),)


@SHARED.attach(TopPixelNorm, ChipRewrites)
class NoPixelNorm(Model[TopPixelNorm], ChipRewrites):
    """These families have no tpu.PixelNorm. TPU-MLIR stops on BM1684."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A LayerNorm over the last axis, between Permutes."""
        del chip
        return (PixelNormBetweenPermutes(weights),)


@SHARED.attach(TopSqueeze, Ranges)
@SHARED.attach(TopUnsqueeze, Ranges)
class ViewsAsReshapes(Model[ViewTop], Ranges):
    """TPU-MLIR makes a Reshape of the view before ranges are propagated (U-117)."""

    @override
    def range_rule(self) -> RangeRule:
        return TopReshape.RANGE
