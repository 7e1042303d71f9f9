"""Activation functions: element-wise ops of one operand (numerics.md 9.7, 9.8, 10).

`top.py` has the functions of the top dialect and their lowering; `without_table.py` those without an INT8 form;
`slope.py` LeakyRelu and PRelu; `tpu.py` the ops of a chip; `lut_bf16.py` BF16 functions by tables.
"""

from tpusim.ops.activation.lut_bf16 import TpuLutBF16
from tpusim.ops.activation.slope import TopLeakyRelu, TopPRelu, TpuLeakyRelu, TpuPRelu
from tpusim.ops.activation.top import (
    TopAbs,
    TopCeil,
    TopCos,
    TopCosh,
    TopElu,
    TopErf,
    TopExp,
    TopFloor,
    TopGELU,
    TopLog,
    TopMish,
    TopPow,
    TopReciprocal,
    TopRound,
    TopSigmoid,
    TopSign,
    TopSiLU,
    TopSin,
    TopSinh,
    TopSoftplus,
    TopSoftsign,
    TopSqrt,
    TopTanh,
)
from tpusim.ops.activation.tpu import TpuActive, TpuLut, TpuReciprocal
from tpusim.ops.activation.without_table import (
    TopArccos,
    TopArcsin,
    TopArctan,
    TopArctanh,
    TopTan,
    TopTrunc,
)

__all__ = [
    "TopAbs", "TopArccos", "TopArcsin", "TopArctan", "TopArctanh", "TopCosh", "TopSinh", "TopTan", "TopTrunc",
    "TopCeil", "TopCos", "TopElu", "TopErf", "TopExp", "TopFloor", "TopGELU",
    "TopLeakyRelu", "TopLog", "TopMish", "TopPRelu", "TopPow", "TopReciprocal", "TopRound", "TopSiLU",
    "TopSigmoid", "TopSign", "TopSin", "TopSoftplus", "TopSoftsign", "TopSqrt", "TopTanh", "TpuActive", "TpuLeakyRelu",
    "TpuLut", "TpuLutBF16", "TpuPRelu", "TpuReciprocal",
]  # fmt: skip
