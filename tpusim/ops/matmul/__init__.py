"""Matrix product: `top.MatMul` and `tpu.MatMul` (numerics.md 5.4, 7.1, 7.2, 9.2).

`gemm.py` makes the product of BLAS of it; `top.py` infers, computes in float and lowers; `tpu.py` computes as the chip,
slices and emits commands.
"""

from tpusim.ops.matmul.gemm import make_gemm
from tpusim.ops.matmul.top import TopMatMul
from tpusim.ops.matmul.tpu import TpuMatMul

__all__ = ["TopMatMul", "TpuMatMul", "make_gemm"]
