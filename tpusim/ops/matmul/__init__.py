"""Matrix product: `top.MatMul` and `tpu.MatMul` (numerics.md 5.4, 7.1, 7.2, 9.2).

`top.py` reads ONNX, infers, computes in float and lowers; `tpu.py` computes as the chip, slices and emits commands.
"""

from tpusim.ops.matmul.top import TopMatMul
from tpusim.ops.matmul.tpu import TpuMatMul

__all__ = ["TopMatMul", "TpuMatMul"]
