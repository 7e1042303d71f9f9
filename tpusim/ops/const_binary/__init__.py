"""A tensor and a number: MulConst, AddConst, SubConst, MaxConst and MinConst (numerics.md 5.6, 9.0, 9.3).

Mul, Add, Sub, Max and Min with a scalar weight become these ops; a negation is MulConst by -1. In integers `const_val`
is the integer C of numerics.md 9.3, and one rounding right shift follows.

`base.py` has the base class of the top ops, `top.py` the top ops and the rewrites that form them, `tpu.py` the tpu ops.
"""

from tpusim.ops.const_binary.top import TopAddConst, TopMaxConst, TopMinConst, TopMulConst, TopSubConst
from tpusim.ops.const_binary.tpu import TpuAddConst, TpuMaxConst, TpuMinConst, TpuMulConst, TpuSubConst

__all__ = [
    "TopAddConst", "TopMaxConst", "TopMinConst", "TopMulConst", "TopSubConst", "TpuAddConst", "TpuMaxConst",
    "TpuMinConst", "TpuMulConst", "TpuSubConst",
]  # fmt: skip
