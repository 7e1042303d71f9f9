"""Convolution: `top.Conv` and `tpu.Conv2D` (any kernel, stride, dilation, pads, groups; depthwise).

`top.py` reads ONNX, infers, computes in float, folds a following Scale and lowers; `tpu.py` computes as the chip,
slices and emits commands; `coeff.py` packs filter, bias and requant parameters into the chip's coefficient layout.
"""

from tpusim.ops.conv.top import TopConv
from tpusim.ops.conv.tpu import TpuConv2D

__all__ = ["TopConv", "TpuConv2D"]
