"""Sums of products of 16-bit floats as the multiplier array of BM chips makes them (numerics 14, DN-24)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpusim_kernels.base import Array
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.smallfloat import to_bf16, to_f16


def narrowing(narrow: str) -> Callable[[Array], Array]:
    """The rounding to `float16` or `bfloat16`, in f32."""
    return to_f16 if narrow == "float16" else to_bf16


def product_by_depth(x: Array, w: Array, depth: int) -> Array:
    """(..., M, K) @ (..., K, N) as the multiplier array adds it up: `depth` products at once, exactly, then in f32.

    The products of two 16-bit floats and their sums are exact in f64 but for the rarest.
    """
    inner = x.shape[-1]
    if inner <= depth:
        return jnp.matmul(x.astype(jnp.float64), w.astype(jnp.float64)).astype(jnp.float32)
    left = jnp.moveaxis(_parts(x, depth, x.ndim - 1), -2, 0)
    right = jnp.moveaxis(_parts(w, depth, w.ndim - 2), -3, 0)

    def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        one, other = (p.astype(jnp.float64) for p in part)
        return total + jnp.matmul(one, other).astype(jnp.float32), None

    shape = (*np.broadcast_shapes(x.shape[:-2], w.shape[:-2]), x.shape[-2], w.shape[-1])
    return lax.scan(add, jnp.zeros(shape, jnp.float32), (left, right))[0]


def _parts(x: Array, depth: int, axis: int) -> Array:
    """The axis as (parts, depth), filled up with zeros."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % depth)
    x = jnp.pad(x, widths)
    return x.reshape(*x.shape[:axis], -1, depth, *x.shape[axis + 1 :])
