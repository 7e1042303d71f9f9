"""Reductions over whole axes in f32 (numerics 11.3)."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from tpusim_kernels.base import Array, f32, kernel

MODES: dict[str, Callable[..., Array]] = {
    "ReduceMean": jnp.sum,
    "ReduceSum": jnp.sum,
    "ReduceMax": jnp.max,
    "ReduceMin": jnp.min,
    "ReduceL1": lambda x, axis, keepdims: jnp.sum(jnp.abs(x), axis=axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=keepdims)),
    "ReduceProd": jnp.prod,
}


@kernel(static=("mode", "axes", "keepdims", "scale"))
def reduce_float(x: Array, *, mode: str, axes: tuple[int, ...], keepdims: bool, scale: float = 1.0) -> Array:
    """Compute y = reduction of `x` over `axes`, f32; the mean is the sum times `scale` (numerics 11.3).

    mode is ReduceMean, Sum, Max, Min, L1, L2 or Prod; scale is 1/n, rounded to the output's type by the caller. Sums
    are in XLA's order, not in index order: a float result is bounded, not exact.
    """
    if mode not in MODES:
        raise ValueError(f"a reduction must be one of {', '.join(MODES)}, got {mode!r}")
    y = MODES[mode](f32(x), axis=axes, keepdims=keepdims)
    return y * jnp.float32(scale) if mode == "ReduceMean" else y
