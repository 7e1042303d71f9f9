"""How far a result is from another for each of many thresholds, in one call: estimates, for searches."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from tpusim_kernels.base import Array, ArrayLike, f32

PARTS = 16
"""Parts of an array that are added up in one step, element by element: XLA adds up one row term by term."""
FEW = 1 << 11
"""Elements that are added up term by term."""


def rounded(x: Array, scale: ArrayLike) -> Array:
    """The integers (in f32) that x * scale is rounded to, half to even, kept in -128 to 127."""
    return jnp.clip(jnp.round(x * f32(scale)), np.float32(-128), np.float32(127))


def squares(difference: Callable[[Array], Array], scales: Array) -> Array:
    """The sum of squares of what `difference` gives for each of scales (n,): f32 (n,), added in any order."""
    return lax.map(lambda scale: _sum_of_squares(difference(scale)), scales)


def _sum_of_squares(x: Array) -> Array:
    flat = f32(x).reshape(-1)
    flat = flat * flat
    while flat.size > FEW:
        flat = jnp.pad(flat, (0, -flat.size % PARTS))
        first, *others = jnp.split(flat, PARTS)
        flat = sum(others, first)
    return jnp.sum(flat)
