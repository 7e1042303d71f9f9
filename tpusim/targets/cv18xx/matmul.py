"""Matrix products."""

from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.weights import WeightStore
from tpusim.ops.interfaces import ChipRewrites, LoweredRewrites
from tpusim.ops.matmul.heads import PermuteIntoMatMul
from tpusim.ops.matmul.patches import PatchesAsProduct, WidePatchesAsProduct
from tpusim.ops.matmul.top import TopMatMul
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopMatMul, ChipRewrites)
class ProductsOfHeads(Model[TopMatMul], ChipRewrites):
    """Batched products read and write (b, rows, heads, columns) too."""

    @classmethod
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Permutes of heads that nobody else reads are the product's; wide windows without overlap are products."""
        patches = PatchesAsProduct(weights, TopMatMul, chip.forms.patch_products)
        return PermuteIntoMatMul(TopMatMul), WidePatchesAsProduct(weights, TopMatMul), patches


@TARGET.attach(TpuMatMul, LoweredRewrites)
class NoPermutes(Model[TpuMatMul], LoweredRewrites):
    """Heads are in products before the lowering."""

    @classmethod
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """No pattern at all."""
        del weights, chip
        return ()
