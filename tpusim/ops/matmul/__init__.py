"""Matrix product: `top.MatMul` and `tpu.MatMul` (numerics.md 5.4, 7.1, 7.2, 9.2).

`product.py` has what both dialects share; `top.py` the top op, its float function and its lowering; `tpu.py` computes
as the chip does, slices and emits commands. `a16.py` has the product with weights of 4 and 8 bits. `gemm.py` builds the
GEMM of BLAS from these ops.
"""

from tpusim.ops.matmul.a16 import TpuA16MatMul
from tpusim.ops.matmul.gemm import make_gemm
from tpusim.ops.matmul.top import TopMatMul
from tpusim.ops.matmul.tpu import TpuMatMul

__all__ = ["TopMatMul", "TpuA16MatMul", "TpuMatMul", "make_gemm"]
