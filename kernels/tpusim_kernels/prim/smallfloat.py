"""Roundings to F16 and BF16 (numerics 8.2): f32 arrays in, f32 arrays holding the rounded values out.

All of it is integer arithmetic on the bits: XLA is allowed to drop a pair of casts such as f32 -> bf16 -> f32, and its
reduce_precision flushes the subnormals of the target, so neither says what the chip does.
"""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tpusim_kernels.base import Array, ArrayLike, f32, kernel

SIGN, MAGNITUDE, INFINITY = 0x80000000, 0x7FFFFFFF, 0x7F800000


def _u32(value: int) -> Array:
    return jnp.asarray(value, jnp.uint32)


def _bits(x: ArrayLike) -> Array:
    return lax.bitcast_convert_type(f32(x), jnp.uint32)


def _value(bits: Array) -> Array:
    return lax.bitcast_convert_type(bits, jnp.float32)


def _nearest_even(bits: Array, drop: Array | int) -> Array:
    """Round away the low `drop` >= 1 bits of an unsigned integer, ties to even; the dropped bits become zero."""
    drop = jnp.asarray(drop, jnp.uint32)
    one = _u32(1)
    below_half = (one << (drop - one)) - one
    return ((bits + below_half + ((bits >> drop) & one)) >> drop) << drop


@kernel(inline=True)
def to_f16(x: ArrayLike) -> Array:
    """Round f32 `x` to IEEE half precision (numerics 8.2), returned as f32 of the same shape.

    Round half to even; overflow (>= 65520) to infinity; half subnormals are kept, f32 subnormals become signed zero;
    any NaN becomes the pattern 0xFFC00000.
    """
    bits = _bits(x)
    sign, magnitude = bits & _u32(SIGN), bits & _u32(MAGNITUDE)
    normal = _nearest_even(magnitude, 13)
    normal = jnp.where(normal >= _u32(0x47800000), _u32(INFINITY), normal)
    # Below 2^-14 the unit is 2^-24: shift the 24-bit significand to that unit, round, and convert back (exact).
    exponent = magnitude >> 23
    significand = (magnitude & _u32(0x7FFFFF)) | _u32(0x800000)
    drop = jnp.clip(_u32(126) - exponent, _u32(1), _u32(26))
    units = _nearest_even(significand, drop) >> drop
    subnormal = _bits(units.astype(jnp.float32) * jnp.float32(2.0**-24))
    out = jnp.where(magnitude < _u32(0x38800000), subnormal, normal) | sign
    return _value(jnp.where(magnitude > _u32(INFINITY), _u32(0xFFC00000), out))


@kernel(inline=True)
def to_bf16(x: ArrayLike) -> Array:
    """Round f32 `x` to BF16 as BM chips do (numerics 8.2), returned as f32 of the same shape.

    Round half to even; overflow to infinity, infinities kept; NaN becomes 0x7FFF; f32 subnormals become signed zero
    except fractions 0x7f8000..0x7fffff, which become the smallest normal with the sign.
    """
    bits = _bits(x)
    sign, magnitude = bits & _u32(SIGN), bits & _u32(MAGNITUDE)
    out = _nearest_even(magnitude, 16)
    out = jnp.where(magnitude < _u32(0x7F8000), _u32(0), out)
    out = jnp.where(magnitude < _u32(0x800000), jnp.minimum(out, _u32(0x800000)), out) | sign
    return _value(jnp.where(magnitude > _u32(INFINITY), _u32(0x7FFF0000), out))


def widened(x: Array) -> Array:
    """A float16 or bfloat16 array as f32 (exact); any other array unchanged."""
    return x.astype(np.float32) if x.dtype in (np.float16, ml_dtypes.bfloat16) else x


def narrowed(x: Array, dtype: np.dtype) -> Array:
    """An f32 array rounded once to float16 or bfloat16 (numerics 8.2); unchanged for any other dtype."""
    if dtype == np.float16:
        return to_f16(x).astype(dtype)
    if dtype == ml_dtypes.bfloat16:
        return to_bf16(x).astype(dtype)
    return x


@kernel(inline=True)
def to_bf16_cv18xx(x: ArrayLike) -> Array:
    """Round f32 `x` to BF16 as CV18xx does (numerics 8.2): half to even on the upper 16 bits, returned as f32.

    Whatever then has the exponent of an infinity or a NaN becomes 0x7f7f, the positive largest finite value.
    """
    bits = _bits(x)
    out = _nearest_even(bits, 16)
    return _value(jnp.where((out & _u32(INFINITY)) == _u32(INFINITY), _u32(0x7F7F0000), out))


@kernel(inline=True)
def truncate_bf16(x: ArrayLike) -> Array:
    """Keep the upper 16 bits of f32 `x` (numerics 8.2, CV18xx is_tpu = false), returned as f32."""
    return _value(_bits(x) & _u32(0xFFFF0000))
