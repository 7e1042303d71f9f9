"""Colours of frames in YUV, converted with every step rounded to BF16 (numerics 8.1)."""

from __future__ import annotations

from tpusim_kernels.base import Array
from tpusim_kernels.lazy import jnp, lax


def _bf16(x: Array) -> Array:
    return lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)


def yuv_to_bgr(y: Array, u: Array, v: Array) -> Array:
    """Planes b, g, r (n, 3, h, w) uint8 of y (n, h, w), u and v (n, h / 2, w / 2) uint8 (numerics 8.1).

    Constants are the bf16 nearest to 1.164, 2.018, 1.596, 0.813 and 0.391; the first product and every sum are rounded
    to bf16, half to even; so is the integer, which saturates. Products are exact in f32.
    """
    light, blue, red = (jnp.asarray(part).astype(jnp.float32) for part in (y, u, v))
    blue, red = (jnp.repeat(jnp.repeat(part - 128, 2, axis=1), 2, axis=2) for part in (blue, red))
    light = _bf16((light - 16) * 1.1640625)
    green = _bf16(_bf16(light - red * 0.8125) - blue * 0.390625)
    planes = jnp.stack([_bf16(light + blue * 2.015625), green, _bf16(light + red * 1.59375)], axis=1)
    return jnp.clip(jnp.rint(planes), 0, 255).astype(jnp.uint8)
