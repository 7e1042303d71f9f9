"""Activation scales and zero points (numerics 2.2): host side, NumPy and Python doubles."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

PART = 1 << 16
"""Elements that are rounded at a time."""


def round_half_away(x: ArrayLike) -> NDArray[np.floating]:
    """Round to the nearest integer, halves away from zero, exactly; the float dtype is kept (integers become f64).

    trunc and the subtraction are exact, so 0.49999999999999994 gives 0 (floor(x + 0.5) would give 1).
    """
    x = np.asarray(x)
    x = x if np.issubdtype(x.dtype, np.floating) else x.astype(np.float64)
    whole = np.trunc(x)
    with np.errstate(invalid="ignore"):
        return whole + np.copysign(np.abs(x - whole) >= 0.5, x).astype(x.dtype)


def saturate_np(x: ArrayLike, dtype: str) -> NDArray[np.integer]:
    """Clamp integral values (integers or floats) to the range of integer type `dtype`; NaN gives 0 (DN-19)."""
    info = np.iinfo(dtype)
    x = np.asarray(x)
    if np.issubdtype(x.dtype, np.floating):
        x = np.where(np.isnan(x), x.dtype.type(0), x).astype(np.float64)
    return np.clip(x, info.min, info.max).astype(dtype)


def quantised(x: NDArray[np.floating], scale: ArrayLike, dtype: str, bits: int = 8) -> NDArray[np.integer]:
    """sat(round-half-away(x / scale)) in f64; scale: one number, or one for each entry of the first axis.

    dtype: int8 or uint8, of which the results use the range of `bits` bits.
    Computed in parts to limit memory: a filter of 100 million weights would take 800 MB in f64, several times.
    """
    scales = np.asarray(scale, np.float64).reshape(-1, 1)
    rows = x.reshape(len(scales), -1) if len(scales) > 1 else x.reshape(-1, 1)
    found = np.empty(rows.shape, dtype)
    step, ends = max(PART // max(rows.shape[1], 1), 1), storage_range(bits, np.dtype(dtype).kind == "i")
    for start in range(0, len(rows), step):
        by = scales[start : start + step] if len(scales) > 1 else scales
        found[start : start + step] = _saturated_half_away(rows[start : start + step] / by, *ends)
    return found.reshape(x.shape)


def _saturated_half_away(x: NDArray[np.float64], low: int, high: int) -> NDArray[np.float64]:
    """`round_half_away` within a range as floats, in few passes; NaN gives 0 (DN-19). The argument is overwritten."""
    whole = np.trunc(x)  # trunc keeps the sign, also of zero
    with np.errstate(invalid="ignore"):
        np.abs(np.subtract(x, whole, out=x), out=x)
    whole += np.copysign(x >= 0.5, whole)
    np.clip(whole, low, high, out=whole)
    whole[np.isnan(whole)] = 0
    return whole


def narrow_product(values: ArrayLike, factor: float) -> NDArray[np.float32]:
    """f32(values) * f32(factor) in f32: how constants are scaled whose factor is a C++ `float` (U-49)."""
    return np.asarray(values, np.float32) * np.float32(factor)


def storage_range(bits: int, signed: bool) -> tuple[int, int]:
    """(qmin, qmax) of a `bits` wide stored integer: -128..127 or 0..255 for 8 bits."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def symmetric_scale(vmin: float, vmax: float, bits: int = 8) -> tuple[float, int, bool]:
    """(scale, zero point = 0, signed) of a calibrated range (numerics 2.2).

    signed iff vmin < 0; th = max(|vmax|, |vmin|); scale = th / (2^(bits-1) - 1) when signed, th / (2^bits - 1)
    otherwise.
    """
    signed = vmin < 0
    threshold = max(abs(vmax), abs(vmin))
    return threshold / storage_range(bits, signed)[1], 0, signed


def asymmetric_scale(vmin: float, vmax: float, bits: int = 8) -> tuple[float, int, bool]:
    """(scale, zero point, signed) of a calibrated range in asymmetric mode (numerics 2.2), all in double.

    s = (vmax - vmin)/(qmax - qmin); z* = qmin - vmin/s, rounded half away. Outside [qmin, qmax] the zero point sticks
    to the end and the scale is recomputed from the far end of the range.
    """
    if not vmax > vmin:
        raise ValueError(f"an asymmetric scale needs min < max, got min {vmin}, max {vmax}")
    signed = vmin < 0
    qmin, qmax = storage_range(bits, signed)
    scale = (vmax - vmin) / (qmax - qmin)
    exact = qmin - vmin / scale
    zero = int(math.copysign(math.floor(abs(exact) + 0.5), exact)) if abs(exact) < 2**52 else int(exact)
    if exact < qmin:
        return vmax / (qmax - qmin), qmin, signed
    if exact > qmax:
        return vmin / (qmin - qmax), qmax, signed
    return scale, zero, signed
