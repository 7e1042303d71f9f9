"""Layer groups, products and kernels of the library."""

from tpusim.ops.interfaces import GroupRules, KernelLibrary, ProductRules
from tpusim.targets.bm1690.target import TARGET


@TARGET.provide(GroupRules)
class Bm1690Groups(GroupRules):
    """Windows make progress, and only the 1684X family cuts elsewhere (layer_group.md 4, 7.1 to 7.3)."""

    UNCUT_ROW_BYTES = 256
    REPEATS_WINDOWS = False
    GROUPED_MARGINS = False
    WHOLE_UPSAMPLE = True


@TARGET.provide(ProductRules)
class Products(ProductRules):
    """8-bit results alone, and one multiplier per matrix."""

    WIDE_RESULTS = False
    COLUMN_MULTIPLIERS = False


@TARGET.provide(KernelLibrary)
class Library(KernelLibrary):
    """Kernels for whole layers alone."""

    LONE_CASTS = False
    PERMUTES_BY_MATRICES = False
    UPSAMPLES_BY_INDICES = False
