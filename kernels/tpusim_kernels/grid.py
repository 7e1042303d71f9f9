"""Sampling of images and volumes at computed places."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from tpusim_kernels.base import Array, kernel
from tpusim_kernels.lazy import jnp
from tpusim_kernels.prim.forms import is_plain

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")
CUBIC = -0.75


class Taps(NamedTuple):
    """Neighbours along one axis: indices inside it and weights."""

    indices: list[Array]
    weights: list[Array]


@kernel(static=("mode", "padding", "align_corners"))
def grid_sample(x: Array, grid: Array, *, mode: str, padding: str, align_corners: bool) -> Array:
    """Sample x (n, c, *extents) at the places of grid (n, *out, d): (n, c, *out), f32 from double.

    A place holds a coordinate in [-1, 1] per axis, the last axis first. -1 and 1 are the centres of the outermost
    elements with align_corners, else their outer edges. ONNX GridSample.
    """
    if mode not in MODES or padding not in PADDINGS:
        raise ValueError(f"a mode of {MODES} and a padding of {PADDINGS} are required, got {mode!r} and {padding!r}")
    n, c, *extents = x.shape
    real = jnp.float32 if is_plain() else jnp.float64  # the derivative of a gather is a scatter, which JAX has in f32
    places = [grid[..., len(extents) - 1 - k].reshape(n, -1).astype(real) for k in range(len(extents))]
    taps = [_taps(g, size, mode, padding, align_corners) for g, size in zip(places, extents, strict=True)]
    flat, total = x.reshape(n, c, -1).astype(real), jnp.zeros((n, c, places[0].shape[1]), real)
    for chosen in product(*(range(len(t.indices)) for t in taps)):
        index, weight = jnp.zeros_like(taps[0].indices[0]), jnp.ones_like(places[0])
        for size, tap, number in zip(extents, taps, chosen, strict=True):
            index, weight = index * size + tap.indices[number], weight * tap.weights[number]
        total = total + jnp.take_along_axis(flat, index[:, None], axis=2, mode="clip") * weight[:, None]
    return total.reshape(n, c, *grid.shape[1:-1]).astype(jnp.float32)


def _taps(g: Array, size: int, mode: str, padding: str, align_corners: bool) -> Taps:
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    at = (g + 1) / 2 * (size - 1) if align_corners else ((g + 1) * size - 1) / 2
    at = jnp.round(at) if mode == "nearest" else at
    outside = (at < low) | (at > high)
    if padding == "border":
        at = jnp.where(outside, jnp.clip(at, 0, size - 1), at)
    elif padding == "reflection":
        at = jnp.where(outside, _reflected(at, low, high), at)
    first = jnp.floor(at)
    weights = _weights(at - first, mode)
    start = -1 if mode == "cubic" else 0
    indices = [first + start + i for i in range(len(weights))]
    if padding == "zeros":
        weights = [jnp.where((i >= 0) & (i < size), w, 0.0) for i, w in zip(indices, weights, strict=True)]
    elif padding == "reflection":
        indices = [jnp.trunc(_reflected(i, low, high)) for i in indices]
    return Taps([jnp.clip(i, 0, size - 1).astype(jnp.int32) for i in indices], weights)


def _weights(f: Array, mode: str) -> list[Array]:
    if mode == "nearest":
        return [jnp.ones_like(f)]
    if mode == "linear":
        return [1 - f, f]
    a = CUBIC
    near, far = lambda t: ((a + 2) * t - (a + 3)) * t * t + 1, lambda t: ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return [far(f + 1), near(f), near(1 - f), far(2 - f)]


def _reflected(at: Array, low: float, high: float) -> Array:
    """Coordinates reflected at two ends, as often as needed."""
    span = high - low
    if span == 0:
        return jnp.full_like(at, low)
    away = jnp.where(at < low, low - at, at - high)
    turns = jnp.floor(away / span)
    rest, even = away - turns * span, turns % 2 == 0
    back = jnp.where(at < low, jnp.where(even, low + rest, high - rest), jnp.where(even, high - rest, low + rest))
    return jnp.where((at < low) | (at > high), back, at)


__all__ = ["MODES", "PADDINGS", "grid_sample"]
