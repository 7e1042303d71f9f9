"""Per-channel multiply-add: `top.BatchNorm` (inference), `top.Scale` and `tpu.Scale` (numerics.md 9.4).

`batchnorm.py` folds a BatchNorm into the Conv before it, or turns it into a Scale. `top.py` has the Scale: its float
function, its lowering, and the patterns that form Scales from Mul and Add and fold them into the op before. `tpu.py`
computes as the chip does and emits commands.
"""

from tpusim.ops.norm.batchnorm import TopBatchNorm
from tpusim.ops.norm.top import TopScale
from tpusim.ops.norm.tpu import TpuScale

__all__ = ["TopBatchNorm", "TopScale", "TpuScale"]
