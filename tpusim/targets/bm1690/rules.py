"""Layer groups, products and kernels of the library."""

from tpusim.ops.interfaces import GroupRules, KernelLibrary, ProductRules
from tpusim.targets.bm1690.target import TARGET
from tpusim.targets.shared import Library, Products


@TARGET.provide(GroupRules)
class Bm1690Groups(GroupRules):
    """Slices follow stricter rules than in the 1684X family (layer_group.md 4, 7.1 to 7.3)."""

    UNCUT_ROW_BYTES = 256
    REPEATS_WINDOWS = False
    GROUPED_MARGINS = False
    WHOLE_UPSAMPLE = True


TARGET.provide(ProductRules)(Products)
TARGET.provide(KernelLibrary)(Library)
