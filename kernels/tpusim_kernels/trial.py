"""Estimated distances between a result and its quantised form for many thresholds in one call, for searches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpusim_kernels.base import Array, ArrayLike, f32
from tpusim_kernels.lazy import jnp, lax

PARTS = 16
"""An array is cut into so many parts, which are added elementwise: XLA adds a single row term by term."""
FEW = 1 << 11
"""Up to so many elements are added term by term."""


def rounded(x: Array, scale: ArrayLike) -> Array:
    """The product x * scale rounded half to even and clamped to -128..127, as integers in f32."""
    return jnp.clip(jnp.round(x * f32(scale)), np.float32(-128), np.float32(127))


def squares(difference: Callable[[Array], Array], scales: Array) -> Array:
    """The sum of squares of difference(scale) for each of scales (n,): f32 (n,), added in any order."""
    return lax.map(lambda scale: _sum_of_squares(difference(scale)), scales)


def _sum_of_squares(x: Array) -> Array:
    flat = f32(x).reshape(-1)
    flat = flat * flat
    while flat.size > FEW:
        flat = jnp.pad(flat, (0, -flat.size % PARTS))
        first, *others = jnp.split(flat, PARTS)
        flat = sum(others, first)
    return jnp.sum(flat)
