"""Resizing: `top.Upsample`, `tpu.Upsample` (nearest, whole factors) and `top.Interp`, `tpu.Interp` (linear; 11.4).

`upsample.py` and `interp.py` have the ops; `nearest.py` builds a resize of mode nearest; `indices.py` has the table of
indices by which some chips gather.
"""

from tpusim.ops.resize.interp import TopInterp, TpuInterp
from tpusim.ops.resize.nearest import nearest_source
from tpusim.ops.resize.upsample import TopUpsample, TpuUpsample

__all__ = ["TopInterp", "TopUpsample", "TpuInterp", "TpuUpsample", "nearest_source"]
