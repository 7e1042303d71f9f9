"""Activation functions: element-wise ops of one operand (numerics.md 9.7, 9.8, 10).

`top.py` has the functions: import, float form, table or float lowering; `slope.py` LeakyRelu and PRelu; `tpu.py` the
ops of the chip; `lut_bf16.py` BF16 by tables; `fusion.py` the patterns that find SiLU and GELU in their parts.
"""

from tpusim.ops.activation.lut_bf16 import TpuLutBF16
from tpusim.ops.activation.slope import TopLeakyRelu, TopPRelu, TpuLeakyRelu, TpuPRelu
from tpusim.ops.activation.top import (
    TopAbs,
    TopCeil,
    TopCos,
    TopElu,
    TopErf,
    TopExp,
    TopFloor,
    TopGELU,
    TopHardSigmoid,
    TopHardSwish,
    TopLog,
    TopMish,
    TopReciprocal,
    TopRound,
    TopSigmoid,
    TopSign,
    TopSiLU,
    TopSin,
    TopSoftplus,
    TopSoftsign,
    TopSqrt,
    TopTanh,
)
from tpusim.ops.activation.tpu import TpuActive, TpuLut, TpuReciprocal

__all__ = [
    "TopAbs", "TopCeil", "TopCos", "TopElu", "TopErf", "TopExp", "TopFloor", "TopGELU", "TopHardSigmoid",
    "TopHardSwish", "TopLeakyRelu", "TopLog", "TopMish", "TopPRelu", "TopReciprocal", "TopRound", "TopSiLU",
    "TopSigmoid", "TopSign", "TopSin", "TopSoftplus", "TopSoftsign", "TopSqrt", "TopTanh", "TpuActive", "TpuLeakyRelu",
    "TpuLut", "TpuLutBF16", "TpuPRelu", "TpuReciprocal",
]  # fmt: skip
