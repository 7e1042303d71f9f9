"""Interpolation: linear, and the nearest element (numerics 11.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tpusim_kernels.base import Array, f32, kernel, pin
from tpusim_kernels.lazy import jnp
from tpusim_kernels.movement import moved


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


def nearest_index(size_in: int, size_out: int, scale: float, *, rounded: bool, on_host: bool = False) -> np.ndarray:
    """The index of the element that is copied to every output place along one axis, in mode nearest (numerics 11.4).

    scale: input elements per output element, narrowed to f32. The source o*scale (f32) is rounded half up if `rounded`,
    else down. on_host: as a host does that computes for a chip; `rounded` is then ceil((o + 0.5)*scale - 1) in f64.
    """
    places, step = np.arange(size_out), np.float32(scale)
    if on_host and rounded:
        source = np.ceil((places + 0.5) * np.float64(step) - 1)
    else:
        source = np.floor((places.astype(np.float32) * step).astype(np.float64) + 0.5 * rounded)
    return np.clip(source, 0, size_in - 1).astype(np.int32)


def interp_nearest(x: Array, rows: np.ndarray, columns: np.ndarray) -> Array:
    """The rows and columns of these indices, x (n, c, h, w) of any type."""
    return moved(lambda m, x: m.take(m.take(x, rows, axis=2), columns, axis=3), x)


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


class Neighbours(NamedTuple):
    """For every output place along one axis: the indices of both neighbours, and their weights in f32."""

    left: np.ndarray
    right: np.ndarray
    of_left: np.ndarray
    of_right: np.ndarray


def host_neighbours(
    size_in: int, size_out: int, scale: float, *, align_corners: bool, asymmetric: bool = False
) -> Neighbours:
    """Neighbours as the host computes them, in f32: o*(in-1)/(out-1), or (o + 0.5)/(out/in) - 0.5, clamped.

    asymmetric: o/(out/in).

    scale: input elements per output element. With a single output place and scale 1, that place is at 0.
    """
    places, one, half = np.arange(size_out, dtype=np.float32), np.float32(1), np.float32(0.5)
    growth, last = np.float32(size_out) / np.float32(size_in), size_in - 1
    if align_corners:
        source = places * (np.float32(last) / np.float32(max(size_out - 1, 1)))
    elif asymmetric:
        source = places / growth
    else:
        source = places if growth == 1 or (size_out, scale) == (1, 1.0) else (places + half) / growth - half
    source = np.clip(source, np.float32(0), np.float32(last))
    left = source.astype(np.int32)
    right = np.minimum(left + 1, last)
    of_right = source - left.astype(np.float32)
    if align_corners:
        return Neighbours(left, right, one - of_right, of_right)
    of_left, alone = np.abs(source - right.astype(np.float32)), left == right
    return Neighbours(left, right, np.where(alone, half, of_left), np.where(alone, half, of_right))


@kernel(static=("size", "scales", "align_corners", "asymmetric"))
def interp_on_host(
    x: Array, *, size: tuple[int, int], scales: tuple[float, float], align_corners: bool, asymmetric: bool = False
) -> Array:
    """Weigh the four neighbours of every place, in f32 as the host does, x (n, c, h, w).

    With align_corners the columns are interpolated first, then the rows. Otherwise the result is the sum, in order, of
    four products of an element and two weights (U-40).
    """
    x = f32(x)
    rows, columns = (
        host_neighbours(x.shape[axis], out, scale, align_corners=align_corners, asymmetric=asymmetric)
        for axis, out, scale in zip((2, 3), size, scales, strict=True)
    )

    def at(row: np.ndarray, column: np.ndarray) -> Array:
        return x[:, :, jnp.asarray(row)[:, None], jnp.asarray(column)[None, :]]

    def along_w(row: np.ndarray) -> Array:
        of_left, of_right = (jnp.asarray(w).reshape(1, 1, 1, -1) for w in (columns.of_left, columns.of_right))
        return pin(at(row, columns.left) * of_left) + pin(at(row, columns.right) * of_right)

    top, bottom = (jnp.asarray(w).reshape(1, 1, -1, 1) for w in (rows.of_left, rows.of_right))
    if align_corners:
        return pin(top * along_w(rows.left)) + pin(bottom * along_w(rows.right))
    total = None
    for row, weight in ((rows.left, rows.of_left), (rows.right, rows.of_right)):
        for column, other in ((columns.left, columns.of_left), (columns.right, columns.of_right)):
            term = pin(jnp.asarray(np.outer(weight, other))[None, None] * at(row, column))
            total = term if total is None else total + term
    assert total is not None  # the loop has four terms
    return total
