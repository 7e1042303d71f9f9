"""Resizing: `top.Upsample`, `tpu.Upsample` (nearest, whole factors) and `top.Interp`, `tpu.Interp` (linear; 11.4).

`upsample.py` and `interp.py` have the ops, and what a chip without them has in their place; `nearest.py` is which
elements a resize of mode nearest copies.
"""

from tpusim.ops.resize.interp import TopInterp, TpuInterp
from tpusim.ops.resize.nearest import nearest_source
from tpusim.ops.resize.upsample import TopUpsample, TpuUpsample

__all__ = ["TopInterp", "TopUpsample", "TpuInterp", "TpuUpsample", "nearest_source"]
