"""Functions by BF16 lookup tables (numerics 10): every step rounded, results independent of XLA fusion."""

from __future__ import annotations

from tpusim_kernels.base import Array, f32, kernel
from tpusim_kernels.gradient import not_differentiable
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.bf16 import bf16_add, bf16_mul, stored_bf16
from tpusim_kernels.prim.smallfloat import to_finite_bf16


def _entry(table: Array, index: Array) -> Array:
    return f32(table).reshape(-1).at[index].get(mode="promise_in_bounds")


def _constant(value: float) -> Array:
    """BF16(value) as an f32 scalar."""
    return jnp.float32(float(stored_bf16(value)))


@kernel(static=("low", "high"))
def lut_slope(x: Array, table: Array, slope: Array, *, low: float, high: float) -> Array:
    """Compute y = base[j] + (t - j)*slope[j] with t the position of `x` in [low, high] in steps of 1/256 (numerics 10).

    x f32 holding BF16 values, any shape; table (the bases) and slope 256 entries, BF16 values.
    t = bf16_mul(bf16_add(x, -offset), BF16(256/(high - low))), offset = BF16((low + high)/2);
    j = to_int8(t, TOWARDS_ZERO), saturated; y = bf16_add(base[j & 255], bf16_mul(BF16(t - j), slope[j & 255])).
    """
    scale, offset = _constant(256.0 / (high - low)), _constant((low + high) / 2.0)
    t = bf16_mul(bf16_add(f32(x), -offset), scale)
    j = jnp.clip(t, jnp.float32(-128), jnp.float32(127)).astype(jnp.int32)  # the conversion truncates
    index = j & 255
    rest = to_finite_bf16(t - j.astype(jnp.float32))
    return bf16_add(_entry(table, index), bf16_mul(rest, _entry(slope, index)))


def _by_exponent() -> Exception:
    return TypeError(
        "lut_mantissa: has no derivative, a table by exponent and mantissa is flat between its entries; differentiate "
        "the network in f32"
    )


@kernel(static=("log",))
def lut_mantissa(x: Array, table: Array, mantissa: Array, *, log: bool) -> Array:
    """Compute y = bf16_mul(table[exponent of x], mantissa[low byte of x]), or their bf16_add for `log` (numerics 10).

    x f32 holding BF16 values, any shape; table and mantissa 256 entries, BF16 values. Entry of the exponent: 0 for
    x = 0, floor(log2 x) + 63 for x > 0, floor(log2 |x|) + 191 for x < 0. Decision: a zero exponent (subnormals) counts
    as x = 0, exponents beyond the table's -62..64 take its first or last one (upstream reads past the table there).
    """
    x = not_differentiable(f32(x), _by_exponent)
    bits = lax.bitcast_convert_type(x, jnp.uint32).astype(jnp.int64)
    exponent = (bits >> 23) & 255
    inside = jnp.clip(exponent - 64, 1, 127) + ((bits >> 31) << 7)
    index = jnp.where(exponent == 0, 0, inside)
    combine = bf16_add if log else bf16_mul
    return combine(_entry(table, index), _entry(mantissa, (bits >> 16) & 255))
