"""Coefficients of products that are quantised for a 32-bit multiplier and shift (numerics.md 5.5)."""

import numpy as np
from tpusim_kernels.prim.multiplier import qdm_bias, qdm_filter, qdm_fit
from xdsl.ir import Attribute, SSAValue

from tpusim.ir.attrs import ints_attr
from tpusim.ir.modes import requant_mode
from tpusim.ops.framework.base import LoweringContext
from tpusim.targets.cv18xx.multipliers import threshold


def qdm_coefficients(
    filter: np.ndarray, bias: np.ndarray | None, th_x: float, th_y: float
) -> tuple[np.ndarray, np.ndarray | None, list[int], list[int]]:
    """(int8 filter, int32 bias, multipliers, right shifts), one pair per output channel."""
    stored, biases = np.empty(filter.shape, np.int8), None if bias is None else np.empty(len(filter), np.int32)
    fits: list[tuple[int, int]] = []
    for c, rows in enumerate(filter):
        largest = 0.0 if bias is None else float(abs(bias[c]))
        m, r = qdm_fit(float(np.abs(rows).max()), th_x, th_y, max_bias=largest)
        stored[c] = qdm_filter(rows, th_x, th_y, m, r)
        if biases is not None and bias is not None:
            biases[c] = qdm_bias(bias[c], th_y, m, r)
        fits.append((m, r))
    return stored, biases, [m for m, _ in fits], [r for _, r in fits]


def qdm_operands(
    ctx: LoweringContext, name: str, filter: np.ndarray, bias: np.ndarray | None, x: SSAValue, y: SSAValue
) -> tuple[list[SSAValue], dict[str, Attribute]]:
    """(filter and bias operands, requant attributes) of a convolution between the top values x and y."""
    stored, int_bias, m, r = qdm_coefficients(filter, bias, threshold(x), threshold(y))
    operands = [
        ctx.weight(name + "_int8", stored),
        ctx.none() if int_bias is None else ctx.weight(name + "_bias_int32", int_bias),
    ]
    return operands, {"multiplier": ints_attr(m), "rshift": ints_attr(r), "quant_mode": requant_mode("QDM")}
