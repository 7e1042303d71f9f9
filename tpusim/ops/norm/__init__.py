"""Per-channel multiply-add: `top.BatchNorm` (inference), `top.Scale` and `tpu.Scale` (numerics.md 9.4).

`batchnorm.py` folds a BatchNorm into a Conv or makes a Scale of it; `top.py` computes in float, lowers,
makes Scales of Mul and Add and folds them into what stands before; `tpu.py` computes as the chip and emits commands.
"""

from tpusim.ops.norm.batchnorm import TopBatchNorm
from tpusim.ops.norm.top import TopScale
from tpusim.ops.norm.tpu import TpuScale

__all__ = ["TopBatchNorm", "TopScale", "TpuScale"]
