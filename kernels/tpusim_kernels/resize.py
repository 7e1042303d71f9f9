"""Linear interpolation (numerics 11.4)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tpusim_kernels.base import Array, f32, kernel, pin


def linear_source(size_in: int, size_out: int, scale: float, *, align_corners: bool) -> tuple[np.ndarray, np.ndarray]:
    """(index, distance f32) of the left neighbour of every output place along one axis (numerics 11.4).

    scale: input elements per output element, narrowed to f32. The source is o*scale if align_corners, else
    (o + 0.5)*scale - 0.5, clamped to [0, size_in - 1], every step in f32.
    """
    places, step, half = np.arange(size_out, dtype=np.float32), np.float32(scale), np.float32(0.5)
    source = places * step if align_corners else (places + half) * step - half
    source = np.clip(source, np.float32(0), np.float32(size_in - 1))
    index = np.floor(source).astype(np.int32)
    return index, source - index.astype(np.float32)


def _along(x: Array, index: np.ndarray, distance: np.ndarray, axis: int) -> Array:
    left = jnp.take(x, jnp.asarray(index), axis=axis, mode="clip")
    right = jnp.take(x, jnp.asarray(np.minimum(index + 1, x.shape[axis] - 1)), axis=axis, mode="clip")
    shape = [1] * x.ndim
    shape[axis] = len(distance)
    d = jnp.broadcast_to(jnp.asarray(distance).reshape(shape), left.shape)
    return left + pin(d * (right - left))  # two roundings, not a fused multiply-add


@kernel(static=("size", "scales", "align_corners"))
def interp_linear(x: Array, *, size: tuple[int, int], scales: tuple[float, float], align_corners: bool) -> Array:
    """Compute a + d*(b - a) between neighbouring rows, then columns, in f32, x (n, c, h, w) (numerics 11.4)."""
    x = f32(x)
    for axis, out, scale in zip((2, 3), size, scales, strict=True):
        x = _along(x, *linear_source(x.shape[axis], out, scale, align_corners=align_corners), axis)
    return x
