"""Convolution: `top.Conv`, `tpu.Conv2D` and `tpu.Conv3D` (any kernel, stride, dilation, pads, groups; depthwise).

`top.py` has the top op, its float function, its lowering and the patterns for it; `base.py` what it shares with
`top.Deconv`. `tpu.py` (2-D) and `volume.py` (3-D) compute as the chip does, slice and emit commands; `packed.py` has
their base class. `quantize.py` computes integer filters and biases; `coeff.py` packs filter, bias and requant in the
coefficient layout of a chip; `channelwise.py` builds depthwise 1x1 convolutions.
"""

from tpusim.ops.conv.top import TopConv
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.conv.volume import TpuConv3D

__all__ = ["TopConv", "TpuConv2D", "TpuConv3D"]
