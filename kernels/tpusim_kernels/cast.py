"""Casts between f32 and quantised integers on BM chips (numerics 8.1)."""

from __future__ import annotations

from tpusim_kernels.base import Array, ArrayLike, f32, i64, kernel
from tpusim_kernels.prim.rounding import RoundMode, saturate, to_int
from tpusim_kernels.prim.smallfloat import to_bf16


@kernel(static=("out_dtype", "through_bf16"))
def quantize(x: Array, inv_scale: ArrayLike, zp: ArrayLike, *, out_dtype: str, through_bf16: bool = False) -> Array:
    """Compute q = sat(round-half-away(x * inv_scale) + zp) (numerics 8.1, float -> int, expressed type F32).

    x f32, any shape; inv_scale f32 scalar = f32(1/s), the reciprocal taken in double and narrowed by the caller; the
    product is f32; zp is added after the rounding, in integers. Infinities saturate, NaN gives sat(zp).
    through_bf16 (a BF16 input): x and inv_scale hold BF16 values, and the product is rounded to BF16 before it is
    rounded to an integer.
    """
    product = f32(x) * f32(inv_scale)
    product = to_bf16(product) if through_bf16 else product
    return saturate(to_int(product, RoundMode.HALF_AWAY_FROM_ZERO) + i64(zp), out_dtype)


@kernel()
def dequantize(q: Array, scale: ArrayLike, zp: ArrayLike) -> Array:
    """Compute x = f32(scale) * f32(q - zp) in f32 (numerics 8.1, int -> F32).

    q any integer dtype, scale and zp scalars.
    """
    return f32(scale) * f32(i64(q) - i64(zp))
