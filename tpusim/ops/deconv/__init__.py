"""Transposed convolution: `top.Deconv`, `tpu.Deconv` (2-D; 1-D as 2-D) and `tpu.Deconv3D`.

`top.py` has the top op, its float function and its lowering. `tpu.py` (2-D) computes as the chip does, slices and emits
a CONV with inserted elements; `volume.py` (3-D) emits a global one; `base.py` has their base class. `geometry.py`
computes which inputs an output needs.
"""

from tpusim.ops.deconv.top import TopDeconv
from tpusim.ops.deconv.tpu import TpuDeconv
from tpusim.ops.deconv.volume import TpuDeconv3D

__all__ = ["TopDeconv", "TpuDeconv", "TpuDeconv3D"]
