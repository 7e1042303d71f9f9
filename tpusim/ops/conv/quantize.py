"""Quantised coefficients of convolutions: filter scales, integer filters, biases and shifts (numerics.md 5.4, 7)."""

from warnings import warn

import numpy as np
from tpusim_kernels.prim.multiplier import (
    bm1684_conv_shift,
    cv18xx_qdm,
    cv18xx_quantize_bias,
    cv18xx_quantize_filter,
)
from tpusim_kernels.prim.scale import narrow_product, quantised, round_half_away, saturate_np
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim.compat import Quirk
from tpusim.errors import ModeWarning, option
from tpusim.ir.attrs import ints_attr, op_name
from tpusim.ir.modes import requant_mode
from tpusim.ir.once import once
from tpusim.ops.base import LoweringContext
from tpusim.ops.small_multiplier import threshold

SATURATED_BIAS_RATIO = 0.03
"""Share of saturated biases above which the BM1684 shift is lowered (numerics.md 5.4)."""


@once
def filter_is_signed(w: np.ndarray, bias: np.ndarray | None) -> bool:
    """A filter is signed if a weight is negative or the op has a bias (numerics.md 7.1)."""
    return bool((w < 0).any()) or bias is not None


def filter_scales(w: np.ndarray, signed: bool) -> np.ndarray:
    """Per output channel max(max|W_c|/qmax, 1e-5) in f32, widened to f64; qmax 127 or 255 (numerics.md 7.1)."""
    rows = w.reshape(w.shape[0], -1)
    largest: np.ndarray = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    quotient = largest.astype(np.float32) / np.float32(127 if signed else 255)
    return np.maximum(quotient, np.float32(1e-5)).astype(np.float64)


@once
def quantised_filter(w: np.ndarray, scales: np.ndarray, signed: bool) -> np.ndarray:
    """The filter in integers, sat(round-half-away(W/s_w)) (numerics.md 7.1)."""
    return quantised(w, scales, "int8" if signed else "uint8")


def int32_bias(
    op: Operation, ctx: LoweringContext, bias: np.ndarray | None, filter: np.ndarray, scale: np.ndarray, z_in: int
) -> np.ndarray | None:
    """round-half-away(b/(s_w*s_in) - z_in*sum(W_q)) (numerics.md 7.2); None if there is neither bias nor zero point.

    scale is s_w*s_in. With a uint8 filter, which has no bias, the sum is of a buffer of zeros (uint8_filter_zp_zero).
    """
    if bias is None and z_in == 0:
        return None
    offset = z_in * filter.reshape(len(filter), -1).astype(np.int64).sum(axis=1)
    real = np.zeros(len(filter)) if bias is None else bias.astype(np.float64) / scale
    found = saturated_bias(op, bias, round_half_away(real - offset))
    return (
        found if filter.dtype == np.int8 else ctx.quirked(op, Quirk.UINT8_FILTER_ZP_ZERO, np.zeros_like(found), found)
    )


def saturated_bias(op: Operation, bias: np.ndarray | None, exact: np.ndarray) -> np.ndarray:
    """The bias in int32, with a ModeWarning where it saturates. bias: as floats; exact: in steps of the sums."""
    found = saturate_np(exact, "int32")
    if not np.array_equal(exact, found):
        _warn_of_bias(op, bias, float(np.abs(exact).max()))
    return found


def _warn_of_bias(op: Operation, bias: np.ndarray | None, steps: float) -> None:
    """Tell of a bias that int32 cannot hold: BM1684X saturates the sum, BM1688 wraps (closed simulators)."""
    largest = 0.0 if bias is None else float(np.abs(bias).max())
    name = op_name(op).removesuffix("_4d")
    told = (
        f"op '{name}': its bias of {largest:g} is {steps:.3g} steps of its integers, more than int32 holds; the sum "
        f"overflows, on some chips to the other sign. List it in {option('qtable')} as a float ({name}:F16), "
        "or if it is a mask, "
        "use one that is smaller (-100)"
    )
    warn(ModeWarning(told), stacklevel=4)


def shift_coefficients(
    w: np.ndarray, bias: np.ndarray | None, s_in: float, s_out: float
) -> tuple[np.ndarray, np.ndarray | None, int] | None:
    """(int8 filter, int16 bias or None, right shift) of a chip without multipliers, one shift per tensor.

    W8 = sat8(round-half-away(W * f32(2^r * s_in/s_out))), the product in f32; None if the shift would be negative
    (numerics.md 5.4).
    """
    r = bm1684_conv_shift(float(np.abs(w).max()), s_in, s_out)
    if r < 0:
        return None
    r, stored = shift_and_bias(r, bias, s_out)
    return saturate_np(round_half_away(narrow_product(w, 2.0**r * s_in / s_out)), "int8"), stored, r


def shift_and_bias(r: int, bias: np.ndarray | None, s_out: float) -> tuple[int, np.ndarray | None]:
    """Lower r while more than 3 % of the biases sat16(round-half-away(b * f32(2^r/s_out))) saturate (5.4)."""
    if bias is None:
        return r, None
    while True:
        wide = round_half_away(narrow_product(bias, 2.0**r / s_out))
        stored = saturate_np(wide, "int16")
        if r == 0 or np.mean(wide != stored) <= SATURATED_BIAS_RATIO:
            return r, stored
        r -= 1


def qdm_coefficients(
    filter: np.ndarray, bias: np.ndarray | None, th_x: float, th_y: float
) -> tuple[np.ndarray, np.ndarray | None, list[int], list[int]]:
    """CV18xx (numerics.md 5.5): (int8 filter, int32 bias, multipliers, right shifts), one pair per output channel."""
    stored, biases = np.empty(filter.shape, np.int8), None if bias is None else np.empty(len(filter), np.int32)
    fits: list[tuple[int, int]] = []
    for c, rows in enumerate(filter):
        largest = 0.0 if bias is None else float(abs(bias[c]))
        m, r = cv18xx_qdm(float(np.abs(rows).max()), th_x, th_y, max_bias=largest)
        stored[c] = cv18xx_quantize_filter(rows, th_x, th_y, m, r)
        if biases is not None and bias is not None:
            biases[c] = cv18xx_quantize_bias(bias[c], th_y, m, r)
        fits.append((m, r))
    return stored, biases, [m for m, _ in fits], [r for _, r in fits]


def qdm_operands(
    ctx: LoweringContext, name: str, filter: np.ndarray, bias: np.ndarray | None, x: SSAValue, y: SSAValue
) -> tuple[list[SSAValue], dict[str, Attribute]]:
    """(filter and bias operands, requant attributes) of a convolution on CV18xx between the top values x and y."""
    stored, int_bias, m, r = qdm_coefficients(filter, bias, threshold(x), threshold(y))
    operands = [
        ctx.weight(name + "_int8", stored),
        ctx.none() if int_bias is None else ctx.weight(name + "_bias_int32", int_bias),
    ]
    return operands, {"multiplier": ints_attr(m), "rshift": ints_attr(r), "quant_mode": requant_mode("QDM")}
