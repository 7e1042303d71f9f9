"""Rounding primitives (numerics 4.1 to 4.3): float to integer, rounding right shift, saturation."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tpusim_kernels.base import Array, ArrayLike, i64, kernel
from tpusim_kernels.lazy import jnp, lax


class RoundMode(IntEnum):
    """Rounding modes with the codes of numerics 4.1 (the dialect attribute has other codes)."""

    HALF_AWAY_FROM_ZERO = 0
    HALF_UP = 1
    HALF_DOWN = 2
    HALF_TO_EVEN = 3
    HALF_TO_ODD = 4
    HALF_TOWARDS_ZERO = 5
    TOWARDS_ZERO = 6
    AWAY_FROM_ZERO = 7
    UP = 8
    DOWN = 9


UNIMPLEMENTED = (RoundMode.HALF_TO_ODD, RoundMode.HALF_TOWARDS_ZERO, RoundMode.AWAY_FROM_ZERO)


def _refuse(mode: RoundMode) -> ValueError:
    return ValueError(f"rounding mode {RoundMode(mode).name} is declared upstream but has no definition (DN-07)")


@kernel(static=("mode",), inline=True)
def to_int(v: Array, mode: RoundMode) -> Array:
    """Round float `v` to int64 (numerics 4.1).

    HALF_UP is floor(v + 0.5) and HALF_DOWN ceil(v - 0.5) on the exact value of `v`: they are computed as
    (floor(2v) + 1) >> 1 and its mirror, so there is no float addition that could round or be merged with a product in
    `v`. HALF_TO_EVEN narrows a double to f32 first (U-59). Range: |v| < 2^62; larger values (and infinities)
    saturate there, NaN gives 0. XLA treats f32 subnormals as zero.
    """
    v = jnp.asarray(v)
    if mode in UNIMPLEMENTED:
        raise _refuse(mode)
    if mode == RoundMode.HALF_TO_EVEN:
        v = lax.reduce_precision(v, 8, 23).astype(jnp.float32) if v.dtype == jnp.float64 else v
        return _clamped(lax.round(v, lax.RoundingMethod.TO_NEAREST_EVEN))
    if mode == RoundMode.HALF_AWAY_FROM_ZERO:
        return _clamped(lax.round(v, lax.RoundingMethod.AWAY_FROM_ZERO))
    two = jnp.asarray(2, v.dtype)
    if mode == RoundMode.HALF_UP:
        return (_clamped(jnp.floor(v * two)) + 1) >> 1
    if mode == RoundMode.HALF_DOWN:
        return -((1 - _clamped(jnp.ceil(v * two))) >> 1)
    rounder = {RoundMode.TOWARDS_ZERO: jnp.trunc, RoundMode.UP: jnp.ceil, RoundMode.DOWN: jnp.floor}[mode]
    return _clamped(rounder(v))


def _clamped(v: Array) -> Array:
    bound = jnp.asarray(2.0**62, v.dtype)
    return lax.clamp(-bound, v, bound).astype(jnp.int64)


@kernel(static=("mode",), inline=True)
def rsr(v: ArrayLike, n: ArrayLike, mode: RoundMode) -> Array:
    """Rounding right shift of int64 `v` by `n` (numerics 4.3): v / 2^n rounded with `mode`.

    `n` is an integer scalar or an array broadcastable to `v`; n = 0 returns v, n < 0 shifts left by -n (bits that leave
    64 are lost), n > 63 acts as 63. Exact for every int64 `v`.
    """
    if mode in UNIMPLEMENTED:
        raise _refuse(mode)
    v, n = jnp.asarray(i64(v)), jnp.asarray(i64(n))
    left, right = jnp.maximum(-n, 0), jnp.clip(n, 0, 63)
    v, right = jnp.broadcast_arrays(v << left, right)
    floor = v >> right
    if mode == RoundMode.DOWN:
        return floor
    half_bit = jnp.where(right > 0, (v >> jnp.maximum(right - 1, 0)) & 1, 0)
    if mode == RoundMode.HALF_UP:
        return floor + half_bit
    return floor + _round_up(v, right, floor, half_bit, mode).astype(jnp.int64)


def _round_up(v: Array, n: Array, floor: Array, half_bit: Array, mode: RoundMode) -> Array:
    """Whether the floored quotient is raised by one; all comparisons are on the low n bits `frac`."""
    one = jnp.asarray(1, jnp.int64)
    frac = v & ((one << n) - one)
    if mode == RoundMode.UP:
        return frac != 0
    if mode == RoundMode.TOWARDS_ZERO:
        return (v < 0) & (frac != 0)
    at_half = half_bit == 1  # frac >= half
    below = jnp.where(n > 0, (one << jnp.maximum(n - one, 0)) - one, 0)
    above_half = at_half & ((frac & below) != 0)  # frac > half
    if mode == RoundMode.HALF_AWAY_FROM_ZERO:
        return jnp.where(v >= 0, at_half, above_half)
    if mode == RoundMode.HALF_DOWN:
        return above_half
    return above_half | (at_half & ((floor & 1) == 1))  # HALF_TO_EVEN


@kernel(static=("dtype",), inline=True)
def saturate(v_int: ArrayLike, dtype: str) -> Array:
    """Clamp integers to the range of the integer type `dtype` and store them in it (numerics 4.2)."""
    info = np.iinfo(dtype)
    v = jnp.asarray(v_int)
    held = jnp.iinfo(v.dtype)
    v = v if held.min <= info.min and info.max <= held.max else i64(v)
    return jnp.clip(v, jnp.asarray(info.min, v.dtype), jnp.asarray(info.max, v.dtype)).astype(dtype)
