"""Rotary positions: pairs of elements of a head, turned by an angle (numerics 11.2)."""

from __future__ import annotations

from tpusim_kernels.base import Array, f32, kernel, pin
from tpusim_kernels.lazy import jnp
from tpusim_kernels.prim.bydepth import narrowing


def _turned(x: Array, *, interleaved: bool) -> Array:
    """Each pair (a, b) as (-b, a). Pairs are neighbours if `interleaved`, else elements of the two halves."""
    if interleaved:
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        return jnp.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(x.shape)
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([-high, low], axis=-1)


@kernel(static=("interleaved", "narrow"))
def rope(x: Array, sin: Array, cos: Array, *, interleaved: bool, narrow: str = "") -> Array:
    """Compute x*cos + turned(x)*sin over the last axis, in f32.

    sin and cos broadcast to x. narrow: `float16` or `bfloat16`, the type to which the chip rounds both products and
    the sum; "": no rounding.
    """
    rounded = narrowing(narrow) if narrow else pin
    x, sin, cos = f32(x), f32(sin), f32(cos)
    return rounded(rounded(x * cos) + rounded(_turned(x, interleaved=interleaved) * sin))
