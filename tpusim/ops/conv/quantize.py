"""Quantised coefficients of convolutions: filter scales, integer filters and biases (numerics.md 7)."""

from warnings import warn

import numpy as np
from tpusim_kernels.prim.scale import quantised, round_half_away, saturate_np, storage_range
from xdsl.ir import Operation

from tpusim.compat import Quirk
from tpusim.errors import ModeWarning, option
from tpusim.ir.attrs import op_name
from tpusim.ir.once import once
from tpusim.ops.framework.base import LoweringContext


@once
def filter_is_signed(w: np.ndarray, bias: np.ndarray | None) -> bool:
    """Whether a filter is signed: if a weight is negative or the op has a bias (numerics.md 7.1)."""
    return bool((w < 0).any()) or bias is not None


def filter_scales(w: np.ndarray, signed: bool, bits: int = 8) -> np.ndarray:
    """Per output channel max(max|W_c|/qmax, 1e-5) in f32, widened to f64 (numerics.md 7.1).

    qmax: the largest integer of `bits` bits, as 127 or 255 of 8.
    """
    rows = w.reshape(w.shape[0], -1)
    largest: np.ndarray = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    quotient = largest.astype(np.float32) / np.float32(storage_range(bits, signed)[1])
    return np.maximum(quotient, np.float32(1e-5)).astype(np.float64)


@once
def quantised_filter(w: np.ndarray, scales: np.ndarray, signed: bool, bits: int = 8) -> np.ndarray:
    """The filter in integers of `bits` bits, sat(round-half-away(W/s_w)), in bytes (numerics.md 7.1)."""
    return quantised(w, scales, "int8" if signed else "uint8", bits)


def int32_bias(
    op: Operation, ctx: LoweringContext, bias: np.ndarray | None, filter: np.ndarray, scale: np.ndarray, z_in: int
) -> np.ndarray | None:
    """round-half-away(b/(s_w*s_in) - z_in*sum(W_q)) (numerics.md 7.2); None if there is neither bias nor zero point.

    scale: s_w*s_in. By the quirk uint8_filter_zp_zero the sum of a uint8 filter, which has no bias, counts as 0.
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
    """The bias in int32, with a ModeWarning if it saturates. bias: the floats; exact: in units of the accumulator."""
    found = saturate_np(exact, "int32")
    if not np.array_equal(exact, found):
        _warn_of_bias(op, bias, float(np.abs(exact).max()))
    return found


def _warn_of_bias(op: Operation, bias: np.ndarray | None, steps: float) -> None:
    """Warn of a bias beyond int32: some chips saturate the sum, others wrap (closed simulators of TPU-MLIR)."""
    largest = 0.0 if bias is None else float(np.abs(bias).max())
    name = op_name(op).removesuffix("_4d")
    told = (
        f"op '{name}': a bias within int32 is required, got {largest:g}, which is {steps:.3g} units of the sums; "
        f"the sum overflows, on some chips to the other sign. Make the op float in {option('qtable')} ({name}:F16), "
        "or use a smaller number (-100) if it is a mask"
    )
    warn(ModeWarning(told), stacklevel=4)
