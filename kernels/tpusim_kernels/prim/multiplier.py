"""Multiplier and shift derivation (numerics 5), host side: Python and NumPy, used once per op at lowering."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tpusim_kernels.prim.scale import narrow_product, round_half_away, saturate_np

I64 = NDArray[np.int64]


class NoMultiplierError(ValueError):
    """A scale is too large for every multiplier and shift."""


def _best_fit(scales: ArrayLike, limit: int, first: int, last: int) -> tuple[I64, I64, NDArray[np.bool_]]:
    """For each scale the smallest n in first..last with the least f32 error: (m, r, whether any m is below limit)."""
    n = np.arange(first, last + 1)
    with np.errstate(over="ignore", invalid="ignore"):  # a scale beyond f32 becomes infinite, and nothing fits it
        wide = np.atleast_1d(np.asarray(scales, np.float64)).astype(np.float32).astype(np.float64)
        m = round_half_away(np.ldexp(wide[:, None], n[None, :]))
        error = np.abs(np.ldexp(m, -n[None, :]) - wide[:, None]).astype(np.float32)
    error = np.where(np.abs(m) < limit, error, np.float32(np.inf))
    best = np.argmin(error, axis=1)  # the first of equals
    rows = np.arange(len(wide))
    found = np.isfinite(error[rows, best])
    return np.where(found, m[rows, best], 0).astype(np.int64), n[best].astype(np.int64), found


def _limit(bits: int) -> int:
    return (1 << 31) - 1 if bits == 32 else 127


def best_fit_array(scales: ArrayLike, bits: int = 32) -> tuple[I64, I64]:
    """`best_fit` of a vector of scales: int64 arrays (m, r) of its shape (numerics 5.1)."""
    m, r, found = _best_fit(scales, _limit(bits), -32, 30)
    if not found.all():
        raise NoMultiplierError(
            f"scale {np.atleast_1d(scales)[~found][0]} has no {bits}-bit multiplier and shift (numerics 5.1)"
        )
    return m, r


def best_fit(scale: float, bits: int = 32) -> tuple[int, int]:
    """(m, r) with m/2^r closest to f32(scale), r in -32..30, |m| < 2^31-1 (32 bits) or 127 (any other): numerics 5.1.

    The smallest r that reaches the smallest f32 error wins; r < 0 is a left shift. Scale 0 gives (0, -32).
    """
    m, r = best_fit_array([scale], bits)
    return int(m[0]), int(r[0])


def common_shift(scales: ArrayLike) -> tuple[I64, int] | None:
    """(m, R) of the columns of a matrix product: best fits brought to one shift R >= 0 (numerics 5.1).

    m_n = fit*2^(R-r_n) with the 32-bit fits, or with 8-bit ones if a product leaves int32; None if one still does.
    Exactly 2^31 is taken, and stored as -2^31 (U-50, numerics 5.6).
    """
    for bits in (32, 8):  # upstream goes down bit by bit; below 32 every limit is 127
        m, r, found = _best_fit(scales, _limit(bits), -32, 30)
        if not found.all():
            continue
        shift = max(int(r.max()), 0)
        fits = [int(a) << (shift - int(b)) for a, b in zip(m, r, strict=True)]
        if max(abs(f) for f in fits) <= 1 << 31:
            return np.array(fits, np.int64).astype(np.int32).astype(np.int64), shift
    return None


def best_fit_positive(scale: float, bits: int = 8) -> tuple[int, int]:
    """As `best_fit` with r in 0..30 (numerics 5.1).

    Raises NoMultiplierError when nothing fits (8 bit: scale > 126.5, DN-08).
    """
    m, r, found = _best_fit([scale], _limit(bits), 0, 30)
    if not found[0]:
        raise NoMultiplierError(f"scale {scale} has no {bits}-bit multiplier with a right shift >= 0 (DN-08)")
    return int(m[0]), int(r[0])


def tflite_multiplier(M: float) -> tuple[int, int]:  # the spec's name
    """(Q, e) with M = Q * 2^(e-31), Q in 2^30..2^31-1 (numerics 5.2 derive); M = 0 gives (0, 0)."""
    if M == 0:
        return 0, 0
    fraction, e = math.frexp(M)
    q = int(round_half_away(fraction * (1 << 31)))
    if q == 1 << 31:
        q, e = q // 2, e + 1
    if e < -31:
        return 0, 0
    if e > 30:
        return (1 << 31) - 1, 30
    return q, e


def _small_shift(q: float) -> int | None:
    """The smallest r >= 0 with q*2^(r+1) >= 127, searched to 62; None if q is too small or zero."""
    return next((r for r in range(63) if math.ldexp(q, r + 1) >= 127), None)


def small_multiplier(q: float) -> tuple[int, int]:
    """(m, r), the smallest r with q*2^(r+1) >= 127 and m = trunc(q*2^r), 63..126 (numerics 5.3); q > 127: (127, 0)."""
    if q > 127:
        return 127, 0
    r = _small_shift(q)
    return (0, 0) if r is None else (int(math.ldexp(q, r)), r)


def shared_small_multiplier(
    qs: Sequence[float] | NDArray[np.floating], *, wraps: bool = False
) -> tuple[NDArray[np.int8], int]:
    """Several multipliers with one shift r, taken from max|q_i| (numerics 5.3): (int8 array trunc(q_i*2^r), r).

    Truncation is towards zero. wraps: what leaves int8 keeps its low eight bits (numerics 9.5), else it saturates.
    """
    q = np.asarray(qs, np.float64)
    r = small_multiplier(float(np.max(np.abs(q))))[1]
    m = np.trunc(np.ldexp(q, r))
    return (m.astype(np.int64) if wraps else saturate_np(m, "int8")).astype(np.int8), r


def product_shift(max_w: float, s_in: float, s_out: float) -> int:
    """The right shift of a product (numerics 5.4): (doublings of f32(max|W|)*s_in/s_out to reach >= 127) - 1.

    More than 32 doublings give 31. Negative (already >= 127) is returned as is: Conv falls back to F32, MatMul takes 0.
    An all-zero filter gives 0 (U-51).
    """
    value, count = float(np.float32(max_w)) * s_in / s_out, 0
    if value <= 0:
        return 0
    while value < 127 and count <= 32:
        value, count = value * 2, count + 1
    return 31 if count > 32 else count - 1


def right_shift_fit(coeff: float, s_in: float, s_out: float) -> tuple[int, int]:
    """(m, r) of calRightShiftNumUseCblas (numerics 5.4): r = min(31, floor(log2(127/(|coeff|*s_in/s_out)))).

    `m` belongs to that r: sat8(round-half-away(coeff * 2^r * s_in/s_out)). r may be negative; an op that clamps it to 0
    recomputes m with `multiplier_of_shift(coeff, 0, s_in, s_out)`. A zero coefficient gives (0, 31).
    """
    ratio = abs(float(np.float32(coeff))) * s_in / s_out
    fraction, exponent = math.frexp(ratio)  # ratio*2^r <= 127 = 127/128 * 2^7, exactly at powers of two as well
    r = 31 if ratio == 0 else min(31, (7 if fraction <= 127 / 128 else 6) - exponent)
    return multiplier_of_shift(coeff, r, s_in, s_out), r


def multiplier_of_shift(coeff: float, r: int, s_in: float, s_out: float) -> int:
    """Compute m = sat8(round-half-away(coeff * 2^r * s_in/s_out)) for a given shift (numerics 5.4).

    coeff and the factor 2^r*s_in/s_out are narrowed to f32, and so is their product (U-49).
    """
    return int(saturate_np(round_half_away(narrow_product(coeff, math.ldexp(1.0, r) * s_in / s_out)), "int8"))


def avgpool_table(k: int) -> tuple[int, int]:
    """(m, r) with m/2^r close to 1/k for k = 1..225, for average pools without a multiplier of their scale (5.4)."""
    if not 1 <= k <= 225:
        raise ValueError(f"the table of average pools covers kernels of 1..225 elements, got {k}")
    r = next(e for e in range(31, -1, -1) if _nearest(1 << e, k) <= 255)
    m = _nearest(1 << r, k)
    while m % 2 == 0 and r > 0:
        m, r = m // 2, r - 1
    return m, r


def _nearest(a: int, b: int) -> int:
    """round-half-up(a / b) of positive integers, exact."""
    return (2 * a + b) // (2 * b)


def qdm_fit(
    max_w: float, th_x: float, th_y: float, *, max_bias: float = 0.0, convolution: bool = True
) -> tuple[int, int]:
    """(m, r) of a QDM requant (numerics 5.5 steps 1 to 3): m in 2^30..2^31-1, r >= 0, scale = m / 2^(31+r).

    q = max_w*th_x/(127*th_y) in f32 (thresholds, not scales); `max_bias` = max|b| of the channel (0 = no bias) may
    raise it; q >= 1 becomes 0.999999. `convolution` is the Conv and Deconv rule: a bias term of 1 or more is not taken.
    An all-zero channel gives (0, 0).
    """
    narrow = np.float32
    q = float(narrow(narrow(max_w) * narrow(th_x)) / narrow(narrow(127) * narrow(th_y)))
    if convolution and q >= 1:
        q = 0.999999
    q_bias = float(narrow(abs(max_bias)) * narrow(127)) / (0x7FFFFFFF * 0.998 * float(narrow(th_y)))
    if q_bias > q and (q_bias < 1 or not convolution):
        q = q_bias
    m, e = tflite_multiplier(0.999999 if q >= 1 else q)
    return m, -e


def qdm_filter(w: ArrayLike, th_x: float, th_y: float, m: int, r: int) -> NDArray[np.int8]:
    """W8 = sat8(RNE(W * f32(f32(th_x/th_y)*2^(31+r)/m))), product in f32 (numerics 5.5 step 4)."""
    return _qdm_constant(w, np.float32(th_x) / np.float32(th_y), m, r, "int8")


def qdm_bias(b: ArrayLike, th_y: float, m: int, r: int) -> NDArray[np.int32]:
    """b32 = sat32(RNE(b * f32(f32(127/th_y)*2^(31+r)/m))), product in f32 (numerics 5.5 step 4)."""
    return _qdm_constant(b, np.float32(127) / np.float32(th_y), m, r, "int32")


def _qdm_constant(values: ArrayLike, ratio: np.float32, m: int, r: int, dtype: str) -> NDArray:
    factor = 0.0 if m == 0 else math.ldexp(float(ratio), 31 + r) / m
    return saturate_np(np.rint(narrow_product(values, factor)), dtype)
