"""Per-channel multiply-add: `top.BatchNorm` (inference), `top.Scale` and `tpu.Scale` (numerics.md 9.4).

`top.py` reads ONNX, computes in float, lowers, makes Scales of BatchNorm, Mul and Add and folds them into what stands
before; `tpu.py` computes as the chip and emits commands.
"""

from tpusim.ops.norm.top import TopBatchNorm, TopScale
from tpusim.ops.norm.tpu import TpuScale

__all__ = ["TopBatchNorm", "TopScale", "TpuScale"]
