"""A complete user-defined number format: weights of 4 bits per output channel, activations of 8, for matrix products.

A value and a lowering method; everything else of tpusim takes them as they are, and nothing is registered.
"""

from math import prod

import numpy as np
from tpusim_kernels.prim.multiplier import common_shift
from xdsl.ir import Attribute, SSAValue

from tpusim import NumberFormat
from tpusim.ir.attrs import flag, ints_attr, op_name
from tpusim.ir.quantisation import quantised_weight
from tpusim.ir.types import UniformType
from tpusim.ops.framework.base import LoweringContext, is_none
from tpusim.ops.matmul.top import TopMatMul


def lower_w4(op: TopMatMul, ctx: LoweringContext) -> SSAValue | str:
    """Bytes times a matrix of 4 bits with a scale per column: a multiplier per column, one shift for all."""
    x, y, w = ctx.quant(op.input), ctx.quant(op.output), ctx.array(op.right)
    if x is None or y is None or w is None or x.zero_point or prod(w.shape[:-2]) > 1 or not is_none(op.bias):
        return "one constant matrix, no bias and ranges without zero point are required"
    stored, params = quantised_weight(w, ctx.format(op).weight_bits, axis=w.ndim - 1)
    fit = common_shift(np.array(params.scales) * x.scale / y.scale)
    if fit is None:
        return "the columns have no common shift"
    matrix = ctx.weight(f"{op_name(op)}_int4", stored, UniformType.of_params(params))
    multipliers, rshift = fit
    requant: dict[str, Attribute] = {
        "multipliers": ints_attr(multipliers), "rshifts": ints_attr([rshift]), "fuse_rq": flag(True)
    }  # fmt: skip
    operands = [ctx.operand(op.input, "int8", op), matrix, ctx.none()]
    return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), requant)


W4A8 = NumberFormat(
    "w4a8", "w4", weight="i4", granularity="channel", fallback=("integer", "float"), unit="int8",
    methods={"top.MatMul": lower_w4},
)  # fmt: skip
