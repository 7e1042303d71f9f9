"""Thresholds, and 8-bit multipliers with a common shift, for the lowerings of this family.

Source: numerics.md 5.3, 5.6, 9.0, 9.6, 9.7.
"""

from collections.abc import Sequence

import numpy as np
from tpusim_kernels.prim.multiplier import shared_small_multiplier, small_multiplier
from xdsl.ir import SSAValue

from tpusim.ir.attrs import ints_attr
from tpusim.ir.types import calibrated_range
from tpusim.ops.framework.base import LoweringContext, OpT
from tpusim.ops.framework.families import ArithmeticTop, built_in_integers, relu_attributes, relu_of

SAME = 1e-5
"""Thresholds with a smaller relative difference count as equal (numerics.md 9.7)."""


def threshold(value: SSAValue) -> float:
    """The largest magnitude of a calibrated value. Raises ValueError for any other."""
    found = calibrated_range(value)
    if found is None:
        raise ValueError("a calibrated value is required")
    return max(abs(found[0]), abs(found[1]))


def why_no_small_multipliers(ctx: LoweringContext, values: Sequence[SSAValue]) -> str | None:
    """Why an op of several tensors has no integer form with 8-bit multipliers; None if it has one."""
    for value in values:
        if ctx.array(value) is not None:
            return "an operand is constant (numerics.md 12.1)"
        if ctx.quant(value) is None:
            return "an operand is not calibrated"
    return None


def common_shift(ratios: Sequence[float]) -> tuple[tuple[int, ...], int]:
    """(multipliers, common right shift) of the ratios s_i/s_out, each narrowed to f32 first.

    A ratio above 127 has shift 0 and wraps in int8 (U-52, numerics.md 9.5): 200 becomes -56.
    """
    multipliers, shift = shared_small_multiplier(np.array(ratios, np.float32), wraps=True)
    return tuple(int(m) for m in multipliers), shift


def ratio(x: SSAValue, y: SSAValue) -> float:
    """The ratio of two thresholds, th_x/th_y."""
    return threshold(x) / threshold(y)


def positive_side(x: SSAValue, y: SSAValue) -> tuple[int, int]:
    """(m, r) of LeakyRelu and PRelu for values that are not negative; (1, 0) if the thresholds are equal."""
    a, b = threshold(x), threshold(y)
    return (1, 0) if abs(a - b) < SAME * min(a, b) else small_multiplier(a / b)


def in_common_shift(ctx: LoweringContext, op: ArithmeticTop, cls: OpT) -> SSAValue | str:
    """`cls` with 8-bit multipliers and one shift for all operands of `op`, or why not."""
    out, why = ctx.quant(op.output), why_no_small_multipliers(ctx, op.inputs)
    if out is None:
        return "the output is not calibrated"
    if why is not None:
        return why
    scales = [quant.scale for v in op.inputs if (quant := ctx.quant(v)) is not None]
    multipliers, shift = common_shift([s / out.scale for s in scales])
    attributes = relu_attributes(relu_of(op)) | {"multipliers": ints_attr(multipliers)}
    attributes["rshifts"] = ints_attr([shift])
    operands = [ctx.operand(v, "int8", op) for v in op.inputs]
    return built_in_integers(op, ctx, cls, operands, attributes)
