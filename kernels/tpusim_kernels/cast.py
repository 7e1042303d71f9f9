"""Casts between f32 and quantised integers on BM chips (numerics 8.1)."""

from __future__ import annotations

from tpusim_kernels.base import Array, ArrayLike, f32, i64, kernel
from tpusim_kernels.prim.flat import in_rows
from tpusim_kernels.prim.rounding import RoundMode, saturate, to_int
from tpusim_kernels.prim.smallfloat import to_bf16, to_f8e5m2, to_f16

_ROUNDED = {"float32": f32, "float16": to_f16, "bfloat16": to_bf16, "float8_e5m2": to_f8e5m2}


@in_rows
@kernel(static=("out_dtype", "through"))
def quantize(x: Array, inv_scale: ArrayLike, zp: ArrayLike, *, out_dtype: str, through: str = "float32") -> Array:
    """Compute q = sat(round-half-away(F(x * inv_scale)) + zp) (numerics 8.1, float -> int).

    x f32, any shape; inv_scale f32 scalar = f32(1/s), the reciprocal taken in double and narrowed by the caller; the
    product is f32; zp is added after the rounding, in integers. Infinities saturate, NaN gives sat(zp).
    through: the type F of a 16-bit input ("float16", "bfloat16"). x and inv_scale then contain values of F, and the
    product is rounded to F before it is rounded to an integer.
    """
    product = _ROUNDED[through](f32(x) * f32(inv_scale))
    return saturate(to_int(product, RoundMode.HALF_AWAY_FROM_ZERO) + i64(zp), out_dtype)


@in_rows
@kernel(static=("through",))
def dequantize(q: Array, scale: ArrayLike, zp: ArrayLike, *, through: str = "float32") -> Array:
    """Compute x = f32(scale) * F(q - zp) in f32 (numerics 8.1, int -> float).

    q any integer dtype, scale and zp scalars. through: the type F of a 16-bit result. 16-bit integers are rounded to F
    before the product; rounding the scale and the product to F is the caller's.
    """
    return f32(scale) * _ROUNDED[through](f32(i64(q) - i64(zp)))


@in_rows
@kernel(static=("narrow",))
def narrow_away(x: Array, *, narrow: str) -> Array:
    """Round f32 `x` to the float type `narrow`, halves away from zero, as BM chips cast (numerics 14, DN-24)."""
    return {"float16": to_f16, "bfloat16": to_bf16, "float8_e5m2": to_f8e5m2}[narrow](f32(x), away=True)
