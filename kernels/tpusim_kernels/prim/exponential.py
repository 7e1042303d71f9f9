"""The exponential in f32, bit for bit as two libraries compute it (U-38).

Established by comparing bits with `model_runner.py` on a processor with AVX-512 (tests/test_as_upstream.py);
oneDNN chooses its kernel by the processor's features. Results below the smallest normal f32 are zero, as from XLA on a
CPU.
"""

from __future__ import annotations

import numpy as np

from tpusim_kernels.base import Array, pin
from tpusim_kernels.lazy import jnp, lax

PARTS = 32
"""The number of parts into which the C library divides an octave."""
CUBIC = tuple(float.fromhex(c) for c in ("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1"))
"""glibc (2.28 on): 2^r = 1 + c2*r + c1*r^2 + c0*r^3 for |r| <= 1/64."""
QUINTIC = tuple(np.uint32(c).view(np.float32) for c in (0x3C07CFCE, 0x3D2B9D0D, 0x3E2AAD40, 0x3EFFFEE3, 0x3F7FFFFB))
"""oneDNN: e^r for |r| <= ln(2)/2, the highest power first; the constant term is 1."""
LOG2_E, LN_2 = np.float32(np.log2(np.e)), np.float32(np.log(2))
LEAST = np.uint32(0xC2AEAC50).view(np.float32)
"""ln of the smallest normal number; below it oneDNN gives zero."""


def exp_of_libm(x: Array) -> Array:
    """e^x of f32 `x` as glibc's expf: a cubic in double, rounded once."""
    z = x.astype(jnp.float64) * (PARTS * np.log2(np.e))
    whole = lax.round(jnp.clip(z, -200.0 * PARTS, 200.0 * PARTS), lax.RoundingMethod.TO_NEAREST_EVEN)
    r = (z - whole) / PARTS
    y = 1.0 + CUBIC[2] * r + (CUBIC[1] + CUBIC[0] * r) * (r * r)
    steps = whole.astype(jnp.int32)
    octave, part = steps >> 5, steps & (PARTS - 1)
    for bit in range(5):  # 2^(part/32); a table would be looked up element by element
        y = jnp.where(part & (1 << bit), y * 2.0 ** (2.0**bit / PARTS), y)
    power = lax.bitcast_convert_type((octave.astype(jnp.int64) + 1023) << 52, jnp.float64)
    return jnp.where(x < -104.0, 0.0, jnp.where(x > 104.0, jnp.inf, y * power)).astype(jnp.float32)


def exp_of_onednn(x: Array) -> Array:
    """e^x of f32 `x` <= 0 as oneDNN's vector code: a quintic in f32 by fused multiply-adds."""
    near = jnp.maximum(x, LEAST)
    n = jnp.floor(pin(near * LOG2_E) + np.float32(0.5))
    r = near - n * LN_2
    y = jnp.full_like(x, QUINTIC[0])
    for c in (*QUINTIC[1:], np.float32(1)):
        y = y * r + c
    half = lax.bitcast_convert_type((n.astype(jnp.int32) + 126) << 23, jnp.float32)
    return jnp.where(x < LEAST, np.float32(0), y * half * np.float32(2))
