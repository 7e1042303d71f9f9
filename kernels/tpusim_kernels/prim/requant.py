"""Requantisation of integer accumulators (numerics 4.4, 5.2, 6)."""

from __future__ import annotations

from tpusim_kernels.base import Array, ArrayLike, f32, i64, kernel
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.rounding import RoundMode, rsr, to_int

REQUANT_MODES = ("multiply_shift", "only_shift", "qdm")


def _scaled(m: Array, r: Array) -> tuple[Array, Array]:
    """(multiplier, right shift >= 0); the left shift of a negative r is applied to the multiplier.

    The multiplier is limited to 2^31: the product then leaves int32 and saturates, as the exact product does.
    """
    left = jnp.clip(-r, 0, 31)
    limit = jnp.asarray(1 << 31, jnp.int64) >> left
    return jnp.where(r < 0, jnp.clip(m, -limit, limit), m) << left, jnp.clip(r, 0, 63)


@kernel(static=("mode",), inline=True)
def multiply_shift(v: ArrayLike, m: ArrayLike, r: ArrayLike, mode: RoundMode = RoundMode.HALF_UP) -> Array:
    """RSR(v*m, r, mode) in int64 (numerics 4.4, MultiplierShift on BM chips).

    `m`, `r` are integers broadcastable to `v`. Exact for int32 operands and r >= 0. r < 0 shifts left: exact while the
    result fits int32, beyond it any value that saturates like the exact one.
    """
    v = i64(v)
    m, right = _scaled(i64(m), i64(r))
    if mode != RoundMode.HALF_UP:
        return rsr(v * m, right, mode)
    # The common case, one multiply-add and one shift per element: floor((v*m + 2^(r-1)) / 2^r). The sum cannot overflow
    # because |v*m| <= 2^62 for 32-bit operands and the rounding term is at most 2^62.
    half = (jnp.asarray(1, jnp.int64) << right) >> 1
    half = jnp.where(right == 63, jnp.asarray(1 << 62, jnp.int64), half)
    return (v * m + half) >> right


@kernel(static=("mode",), inline=True)
def quantized_multiplier_apply(
    v: ArrayLike, q: ArrayLike, e: ArrayLike, mode: RoundMode = RoundMode.HALF_AWAY_FROM_ZERO
) -> Array:
    """Apply a TFLite multiplier q * 2^(e-31) to `v` (numerics 5.2): int64 result within int32.

    v = v << e if e > 0; v = RSR(v*q, 31, HALF_UP); clamp to int32; if e < 0: v = RSR(v, -e, mode).
    """
    v, q, e = i64(v), i64(q), i64(e)
    v = rsr((v << jnp.maximum(e, 0)) * q, 31, RoundMode.HALF_UP)
    v = jnp.clip(v, jnp.asarray(-(1 << 31), jnp.int64), jnp.asarray((1 << 31) - 1, jnp.int64))
    return rsr(v, jnp.maximum(-e, 0), mode)


def requantize(v: Array, m: ArrayLike, r: ArrayLike, requant: str) -> Array:
    """The requant step of Conv and MatMul (numerics 6): int64 accumulators to int64, before z_out and saturation.

    multiply_shift: RSR(v*m, r, HALF_UP). only_shift: RSR(v, r, HALF_UP), `m` ignored. qdm: the multiplier of 5.2
    with e = -r, HALF_UP at 31 bits, then HALF_AWAY_FROM_ZERO.
    """
    if requant == "multiply_shift":
        return multiply_shift(v, m, r, RoundMode.HALF_UP)
    if requant == "only_shift":
        return multiply_shift(v, 1, r, RoundMode.HALF_UP)
    if requant == "qdm":
        return quantized_multiplier_apply(v, m, -i64(r), RoundMode.HALF_AWAY_FROM_ZERO)
    raise ValueError(f"requant must be one of {REQUANT_MODES}, got {requant!r}")


@kernel(inline=True)
def multiply_shift_f32(v: ArrayLike, m: ArrayLike, r: ArrayLike) -> Array:
    """MultiplierShift in f32 (numerics 4.4): to_int(f32(v)*m / 2^r, HALF_UP), the product rounded to f32; int64.

    Add, Sub, Concat, LeakyRelu, PRelu and AvgPool with one common shift use it (numerics 6). r >= 0.
    """
    product = f32(i64(v)) * f32(i64(m))
    scale = lax.bitcast_convert_type(((127 - i64(r)) << 23).astype(jnp.int32), jnp.float32)  # 2^-r, exactly
    return to_int(product * scale, RoundMode.HALF_UP)
