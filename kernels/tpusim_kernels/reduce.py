"""Reductions over whole axes in f32 (numerics 11.3)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import jax.numpy as jnp
from jax import lax

from tpusim_kernels.base import Array, divide, f32, kernel
from tpusim_kernels.prim.forms import estimating
from tpusim_kernels.prim.inorder import added_up, squares_added_up


def _multiplied(rows: Array) -> Array:
    return lax.fori_loop(0, len(rows), lambda i, total: total * rows[i], jnp.ones_like(rows[0]))


MODES: dict[str, tuple[Callable[[Array], Array], Callable[..., Array]]] = {
    "ReduceMean": (added_up, lambda x: jnp.sum(x, axis=0)),
    "ReduceSum": (added_up, lambda x: jnp.sum(x, axis=0)),
    "ReduceMax": (lambda x: jnp.max(x, axis=0), lambda x: jnp.max(x, axis=0)),
    "ReduceMin": (lambda x: jnp.min(x, axis=0), lambda x: jnp.min(x, axis=0)),
    "ReduceL1": (lambda x: added_up(jnp.abs(x)), lambda x: jnp.sum(jnp.abs(x), axis=0)),
    "ReduceL2": (lambda x: jnp.sqrt(squares_added_up(x)), lambda x: jnp.sqrt(jnp.sum(x * x, axis=0))),
    "ReduceProd": (_multiplied, lambda x: jnp.prod(x, axis=0)),
}
"""What is done with rows over axis 0: in index order, and, for estimates, in any."""


@kernel(static=("mode", "axes", "keepdims", "scale"))
def reduce_float(x: Array, *, mode: str, axes: tuple[int, ...], keepdims: bool, scale: float | None = None) -> Array:
    """Compute y = reduction of `x` over `axes`, f32, in index order (numerics 11.3).

    mode is ReduceMean, Sum, Max, Min, L1, L2 or Prod. The mean is the sum times `scale`, which is 1/n, rounded to the
    output's type by the caller, or divided by n if there is none. Squares are added up by fused multiply-adds. So
    upstream's interpreter has it (tests/test_as_upstream.py).
    """
    if mode not in MODES:
        raise ValueError(f"a reduction must be one of {', '.join(MODES)}, got {mode!r}")
    axes = tuple(sorted(axis % x.ndim for axis in axes))
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    count = prod(x.shape[axis] for axis in axes)
    rows = jnp.transpose(f32(x), [*axes, *kept]).reshape(count, *(x.shape[axis] for axis in kept))
    in_order, in_any = MODES[mode]
    y = (in_any if estimating() else in_order)(rows)
    if mode == "ReduceMean":
        y = divide(y, jnp.float32(count)) if scale is None else y * jnp.float32(scale)
    return jnp.expand_dims(y, axes) if keepdims else y
