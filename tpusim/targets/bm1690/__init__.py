"""BM1690: the 1684X family, but for some rules of layer groups, products and kernels."""

from tpusim.targets.bm1690 import rules
from tpusim.targets.bm1690.target import TARGET

__all__ = ["TARGET", "rules"]
