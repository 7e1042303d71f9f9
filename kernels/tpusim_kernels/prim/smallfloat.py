"""Roundings to F16, BF16 and F8 (numerics 8.2, 8.3): f32 arrays in, f32 arrays holding the rounded values out.

All of it is integer arithmetic on the bits: XLA is allowed to drop a pair of casts such as f32 -> bf16 -> f32, and its
reduce_precision flushes the subnormals of the target, so neither says what the chip does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import ml_dtypes
import numpy as np

from tpusim_kernels.base import Array, ArrayLike, divide, f32, kernel
from tpusim_kernels.gradient import straight_through
from tpusim_kernels.lazy import is_traced, jnp, lax
from tpusim_kernels.prim.flat import in_rows
from tpusim_kernels.prim.forms import is_plain

SIGN, MAGNITUDE, INFINITY = 0x80000000, 0x7FFFFFFF, 0x7F800000


def _u32(value: int) -> Array:
    return jnp.asarray(value, jnp.uint32)


def _bits(x: ArrayLike) -> Array:
    return lax.bitcast_convert_type(f32(x), jnp.uint32)


def _value(bits: Array) -> Array:
    return lax.bitcast_convert_type(bits, jnp.float32)


def rounded(rule: Callable[[Array], Array], x: ArrayLike) -> Array:
    """f32 `x` rounded by `rule`, a function of its bits; in plain expressions the derivative is 1."""

    def of(v: Array) -> Array:
        return _value(rule(_bits(v)))

    return straight_through(of, f32(x)) if is_plain() else of(f32(x))


def _nearest(bits: Array, drop: Array | int, *, away: bool = False) -> Array:
    """Round away the low `drop` >= 1 bits of an unsigned integer; the dropped bits become zero.

    Ties to even, or (`away`) up, which for a magnitude is away from zero.
    """
    drop = jnp.asarray(drop, jnp.uint32)
    one = _u32(1)
    below_half = (one << (drop - one)) - one
    tie = one if away else (bits >> drop) & one
    return ((bits + below_half + tie) >> drop) << drop


def _with_subnormals(magnitude: Array, fraction_bits: int, lowest: int, *, away: bool = False) -> Array:
    """The bits of an f32 magnitude rounded to `fraction_bits`, subnormals below 2^lowest; no upper limit.

    Below 2^lowest the unit is 2^(lowest - fraction_bits): the 24-bit significand is shifted to that unit, rounded, and
    converted back (exact). f32 subnormals become zero.
    """
    exponent = magnitude >> 23
    significand = (magnitude & _u32(0x7FFFFF)) | _u32(0x800000)
    drop = jnp.clip(_u32(127 + lowest + 23 - fraction_bits) - exponent, _u32(1), _u32(26))
    units = _nearest(significand, drop, away=away) >> drop
    subnormal = _bits(units.astype(jnp.float32) * jnp.float32(2.0 ** (lowest - fraction_bits)))
    normal = _nearest(magnitude, 23 - fraction_bits, away=away)
    return jnp.where(magnitude < _u32((127 + lowest) << 23), subnormal, normal)


@kernel(static=("away",), inline=True)
def to_f16(x: ArrayLike, *, away: bool = False) -> Array:
    """Round f32 `x` to IEEE half precision (numerics 8.2), returned as f32 of the same shape.

    Round half to even, or half away from zero (`away`: the second entry point, for the constant of the F8 MulConst);
    overflow (>= 65520) to infinity; half subnormals are kept, f32 subnormals become signed zero; any NaN becomes the
    pattern 0xFFC00000.
    """

    def half(bits: Array) -> Array:
        sign, magnitude = bits & _u32(SIGN), bits & _u32(MAGNITUDE)
        out = _with_subnormals(magnitude, 10, -14, away=away)
        out = jnp.where(out >= _u32(0x47800000), _u32(INFINITY), out) | sign
        return jnp.where(magnitude > _u32(INFINITY), _u32(0xFFC00000), out)

    return rounded(half, x)


@kernel(static=("step", "saturating"), inline=True)
def to_f8e4m3(x: ArrayLike, *, step: float = 1.0, saturating: bool = True) -> Array:
    """Round f32(x/step) to F8 E4M3 (numerics 8.3), returned as f32 of the same shape.

    Round half to even; unit 2^-9 below 2^-6; beyond 448 (infinities too) to 448 with the sign, or, not saturating, to
    NaN; NaN stays. f32 subnormals become signed zero. The quotient is in double, narrowed once (U-60).
    """

    def e4m3(bits: Array) -> Array:
        sign, magnitude = bits & _u32(SIGN), bits & _u32(MAGNITUDE)
        out = _with_subnormals(magnitude, 3, -6)
        largest, nan = _bits(jnp.float32(448)), _u32(MAGNITUDE)
        out = jnp.where(out > largest, largest if saturating else nan, out)
        return jnp.where(magnitude > _u32(INFINITY), nan, out) | sign

    return rounded(e4m3, _stepped(x, step))


@kernel(static=("step", "away"), inline=True)
def to_f8e5m2(x: ArrayLike, *, step: float = 1.0, away: bool = False) -> Array:
    """Round f32(x/step) to F8 E5M2 (numerics 8.3), returned as f32 of the same shape.

    Round half to even, or half away from zero (`away`: the chip's casts); unit 2^-16 below 2^-14; never saturates:
    what rounds beyond 57344 becomes infinity; NaN stays.
    f32 subnormals become signed zero. The quotient is in double, narrowed once (U-60).
    """

    def e5m2(bits: Array) -> Array:
        sign, magnitude = bits & _u32(SIGN), bits & _u32(MAGNITUDE)
        out = _with_subnormals(magnitude, 2, -14, away=away)
        out = jnp.where(out > _bits(jnp.float32(57344)), _u32(INFINITY), out)
        return jnp.where(magnitude > _u32(INFINITY), _u32(MAGNITUDE), out) | sign

    return rounded(e5m2, _stepped(x, step))


def _stepped(x: ArrayLike, step: float) -> Array:
    """x/step in double, narrowed to f32."""
    x = f32(x)
    return x if step == 1.0 else divide(x.astype(jnp.float64), jnp.float64(step)).astype(jnp.float32)


@kernel(static=("away",), inline=True)
def to_bf16(x: ArrayLike, *, away: bool = False) -> Array:
    """Round f32 `x` to BF16 as BM chips do (numerics 8.2), returned as f32 of the same shape.

    Round half to even, or half away from zero (`away`: the chip's casts); overflow to infinity, infinities kept; NaN
    becomes 0x7FFF; f32 subnormals become signed zero except fractions 0x7f8000..0x7fffff, which become the smallest
    normal with the sign.
    """

    def bf16(bits: Array) -> Array:
        sign, magnitude = bits & _u32(SIGN), bits & _u32(MAGNITUDE)
        out = _nearest(magnitude, 16, away=away)
        out = jnp.where(magnitude < _u32(0x7F8000), _u32(0), out)
        out = jnp.where(magnitude < _u32(0x800000), jnp.minimum(out, _u32(0x800000)), out) | sign
        return jnp.where(magnitude > _u32(INFINITY), _u32(0x7FFF0000), out)

    return rounded(bf16, x)


NARROW = {np.dtype(t).name for t in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)}
"""Names of the floats in which tensors are stored and no op computes."""


def widened(x: Array) -> Array:
    """An array of a narrow float as f32 (exact); any other array unchanged.

    NumPy widens an array that is at hand, so that nothing is compiled for its shape.
    """
    if np.dtype(x.dtype).name not in NARROW:
        return x
    return x.astype(np.float32) if is_traced(x) else cast("Array", np.asarray(x).astype(np.float32))


def narrowed(x: Array, dtype: np.dtype, *, finite: bool = False) -> Array:
    """An f32 array rounded once to a narrow float (numerics 8.2, 8.3); unchanged for any other dtype.

    finite: BF16 without infinities (`to_finite_bf16`).
    """
    return _narrow(x, dtype=dtype.name, finite=finite) if dtype.name in NARROW else x


LARGEST_BF16 = (2 - 2.0**-7) * 2.0**127


def within_bf16(x: ArrayLike) -> np.ndarray:
    """A constant limited to the finite numbers of BF16 with its sign, which `to_finite_bf16` would lose (8.2)."""
    return np.clip(np.asarray(x, np.float32), np.float32(-LARGEST_BF16), np.float32(LARGEST_BF16))


@in_rows
@kernel(static=("dtype", "finite"))
def _narrow(x: Array, *, dtype: str, finite: bool) -> Array:
    """Rounding and conversion as one function, which is compiled once per size of a row."""
    if dtype == "float16":
        return to_f16(x).astype(jnp.float16)
    if dtype == "float8_e5m2":
        return to_f8e5m2(x).astype(jnp.float8_e5m2)
    return (to_finite_bf16 if finite else to_bf16)(x).astype(jnp.bfloat16)


@kernel(inline=True)
def to_finite_bf16(x: ArrayLike) -> Array:
    """Round f32 `x` to finite BF16 (numerics 8.2): half to even on the upper 16 bits, returned as f32.

    Whatever then has the exponent of an infinity or a NaN becomes 0x7f7f, the positive largest finite value.
    """

    def finite_bf16(bits: Array) -> Array:
        out = _nearest(bits, 16)
        return jnp.where((out & _u32(INFINITY)) == _u32(INFINITY), _u32(0x7F7F0000), out)

    return rounded(finite_bf16, x)


@kernel(inline=True)
def truncate_bf16(x: ArrayLike) -> Array:
    """Keep the upper 16 bits of f32 `x` (numerics 8.2, is_tpu = false), returned as f32."""
    return rounded(lambda bits: bits & _u32(0xFFFF0000), x)
