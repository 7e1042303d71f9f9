"""Reductions over whole axes in f32 (numerics 11.3)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tpusim_kernels.base import Array, divide, f32, kernel
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.inorder import float_sum, float_sum_of_squares


def _multiplied(rows: Array) -> Array:
    return lax.fori_loop(0, len(rows), lambda i, total: total * rows[i], jnp.ones_like(rows[0]))


MODES: dict[str, Callable[[Array], Array]] = {
    "ReduceMean": float_sum,
    "ReduceSum": float_sum,
    "ReduceMax": lambda rows: jnp.max(rows, axis=0),
    "ReduceMin": lambda rows: jnp.min(rows, axis=0),
    "ReduceL1": lambda rows: float_sum(jnp.abs(rows)),
    "ReduceL2": lambda rows: jnp.sqrt(float_sum_of_squares(rows)),
    "ReduceProd": _multiplied,
}
"""The reduction over axis 0 of each mode."""


@kernel(static=("mode", "axes", "keepdims", "scale"))
def reduce_float(x: Array, *, mode: str, axes: tuple[int, ...], keepdims: bool, scale: float | None = None) -> Array:
    """Compute y = reduction of `x` over `axes`, f32, in index order (numerics 11.3).

    mode is ReduceMean, Sum, Max, Min, L1, L2 or Prod. The mean is the sum times `scale` (1/n, rounded to the output's
    type by the caller), or the sum divided by n if `scale` is None. Squares are added by fused multiply-adds (U-36,
    tests/test_as_upstream.py).
    """
    if mode not in MODES:
        raise ValueError(f"a reduction must be one of {', '.join(MODES)}, got {mode!r}")
    axes = tuple(sorted(axis % x.ndim for axis in axes))
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    count = prod(x.shape[axis] for axis in axes)
    rows = jnp.transpose(f32(x), [*axes, *kept]).reshape(count, *(x.shape[axis] for axis in kept))
    y = MODES[mode](rows)
    if mode == "ReduceMean":
        y = divide(y, jnp.float32(count)) if scale is None else y * jnp.float32(scale)
    return jnp.expand_dims(y, axes) if keepdims else y
