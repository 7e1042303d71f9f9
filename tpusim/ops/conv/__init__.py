"""Convolution: `top.Conv`, `tpu.Conv2D` and `tpu.Conv3D` (any kernel, stride, dilation, pads, groups; depthwise).

`top.py` is made, infers, computes in float, folds a following Scale and lowers; `tpu.py` (2-D) and `volume.py` (3-D)
compute as the chip, slice and emit commands. `quantize.py` makes integer filters and biases; `coeff.py` packs filter,
bias and requant parameters into the chip's coefficient layout; `packed.py` is what ops with separate coefficients
have in common.
"""

from tpusim.ops.conv.top import TopConv
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.conv.volume import TpuConv3D

__all__ = ["TopConv", "TpuConv2D", "TpuConv3D"]
