"""Products, float types and kernels of the library."""

from tpusim.ops.framework.contexts import FloatMode
from tpusim.ops.interfaces import FloatRules, KernelLibrary, ProductRules
from tpusim.targets.cv18xx.target import TARGET


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


@TARGET.provide(FloatRules)
class Floats(FloatRules):
    """What has no scale is computed in bf16."""

    FALLBACK: FloatMode = "bf16"
