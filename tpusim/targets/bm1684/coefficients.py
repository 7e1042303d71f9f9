"""Coefficients of products with one right shift per tensor and no multiplier (numerics.md 5.4)."""

import numpy as np
from tpusim_kernels.prim.multiplier import product_shift
from tpusim_kernels.prim.scale import narrow_product, round_half_away, saturate_np
from xdsl.ir import Attribute

from tpusim.ir.attrs import ints_attr
from tpusim.ir.modes import requant_mode

SATURATED_BIAS_RATIO = 0.03
"""The shift is lowered while more than this share of the biases saturates (numerics.md 5.4)."""


def shift_coefficients(
    w: np.ndarray, bias: np.ndarray | None, s_in: float, s_out: float
) -> tuple[np.ndarray, np.ndarray | None, int] | None:
    """(int8 filter, int16 bias or None, right shift) of a convolution.

    W8 = sat8(round-half-away(W * f32(2^r * s_in/s_out))), the product in f32; None if the shift would be negative
    (numerics.md 5.4).
    """
    r = product_shift(float(np.abs(w).max()), s_in, s_out)
    if r < 0:
        return None
    r, stored = shift_and_bias(r, bias, s_out)
    return saturate_np(round_half_away(narrow_product(w, 2.0**r * s_in / s_out)), "int8"), stored, r


def shift_and_bias(r: int, bias: np.ndarray | None, s_out: float) -> tuple[int, np.ndarray | None]:
    """(shift, int16 biases): r is lowered while more than 3 % of round-half-away(b * f32(2^r/s_out)) saturate (5.4)."""
    if bias is None:
        return r, None
    while True:
        wide = round_half_away(narrow_product(bias, 2.0**r / s_out))
        stored = saturate_np(wide, "int16")
        if r == 0 or np.mean(wide != stored) <= SATURATED_BIAS_RATIO:
            return r, stored
        r -= 1


def shift_attributes(r: int) -> dict[str, Attribute]:
    """Requant attributes: one right shift for the whole tensor."""
    return {"multiplier": ints_attr([1]), "rshift": ints_attr([r]), "quant_mode": requant_mode("OnlyShift")}
