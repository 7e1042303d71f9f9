"""Matrix products."""

from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.interfaces import ChipRewrites, LoweredRewrites
from tpusim.ops.matmul.inside import PermuteBehindUser
from tpusim.ops.matmul.patches import PatchesAsProduct
from tpusim.ops.matmul.top import TopMatMul
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopMatMul, ChipRewrites)
class ProductsOfPatches(Model[TopMatMul], ChipRewrites):
    """Products read and write rows as they are."""

    @classmethod
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Convolutions of patches."""
        return (PatchesAsProduct(weights, TopMatMul, chip.forms.patch_products),)


@TARGET.attach(TpuMatMul, LoweredRewrites)
class PermutesAfterUsers(Model[TpuMatMul], LoweredRewrites):
    """Permutes of heads stay ops, later in the network."""

    @classmethod
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A Permute by (0, 2, 1, 3) is moved past the op that alone reads it; two in a row cancel."""
        del weights, chip
        return (PermuteBehindUser(),)
