"""BM1684: right shifts without multipliers, bytes in words of 4 along the batch (4N), float in f32 only."""

from tpusim.targets.bm1684 import conv, groups, local, matmul, pad, work_areas
from tpusim.targets.bm1684.target import TARGET

__all__ = ["TARGET", "conv", "groups", "local", "matmul", "pad", "work_areas"]
