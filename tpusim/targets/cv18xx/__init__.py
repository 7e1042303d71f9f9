"""CV18xx: CV180x, CV181x, CV182x and CV183x. Symmetric ranges, QDM requantisation, floats in BF16, tables."""

from tpusim.targets.cv18xx import conv, groups, local, matmul, pad
from tpusim.targets.cv18xx.target import TARGET

__all__ = ["TARGET", "conv", "groups", "local", "matmul", "pad"]
