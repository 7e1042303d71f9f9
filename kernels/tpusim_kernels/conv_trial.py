"""How much a float convolution's result changes when its image is rounded to INT8: estimates, for searches.

A rounded image is integers times one step, so its convolution is sums of int8 products, which the library computes
several times as fast as f32. The filter is rounded to int8 too, both for the rounded image and for the original image,
which is split into three int8 images of falling weight. Rounding the filter changes all differences between the two
results by about the same factor, the filter's relative error.

A linear 1x1 filter w with more output than input channels needs no rounded filter: its result changes by w e, where e
is the rounding error. With r triangular and r' r = w' w, r e has the same norm and fewer channels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tpusim_kernels.base import Array, along_axis, f32, kernel
from tpusim_kernels.conv import GEOMETRY, Pads, Pair, convolved, filter_of, relu_with_limit
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.trial import rounded, squares

BASE = 254
"""The ratio of the weights of two successive images: every integer is a multiple of it plus -127 to 127."""
LARGEST = (127 * BASE + 126) * BASE
"""The largest element in steps such that all three parts fit int8. With two parts, an outlier would leave the other
elements too few steps.
"""
NOTHING = 1e-10
"""Fraction of the mean square that is added to the diagonal: a singular matrix can then be factored, and no f32 result
changes.
"""


class RoundedFilter(NamedTuple):
    """A filter rounded by output channel. values: int8 as `conv.Filter` has them; steps: f32 (oc,)."""

    values: Array | np.ndarray
    steps: Array | np.ndarray


def rounded_filter(w: np.ndarray) -> tuple[RoundedFilter, float]:
    """A finite f32 filter (oc, ic, kh, kw) in int8, and its relative rounding error in the 2-norm, 0 to 1."""
    largest = np.abs(w).max(axis=(1, 2, 3), keepdims=True)
    steps = np.maximum(largest / np.float32(127), np.finfo(np.float32).smallest_normal)
    whole = np.rint(w / steps)
    norm = float(np.linalg.norm(w))
    error = float(np.linalg.norm(w - whole * steps)) / norm if norm else 0.0
    return RoundedFilter(np.asarray(filter_of(whole.astype(np.int8), 1)[0]), steps.reshape(-1)), error


@kernel(static=(*GEOMETRY, "do_relu", "relu_limit"))
def conv2d_trial(
    x: Array,
    scales: Array,
    w: RoundedFilter,
    b: Array | None,
    *,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    groups: int,
    do_relu: bool,
    relu_limit: float = -1.0,
) -> Array:
    """Compute the sum of squares of y(x) - y(q / scale) for each scale, y being relu(conv(., w) + b).

    q = rounded(x * scale); x (n, h, w, ic), scales f32 (m,), b (oc,) or None; groups: 1. The sums are f32 (m,).
    """
    top, left, bottom, right = pads

    def result(images: list[Array], step: Array) -> Array:
        """The convolution's result for images of falling weight, each f32 integers of -128 to 127."""
        q = jnp.concatenate(images).astype(jnp.int8)
        q = lax.pad(q, jnp.int8(0), ((0, 0, 0), (top, bottom, 0), (left, right, 0), (0, 0, 0)))
        y, *lower = jnp.split(f32(convolved(q, w.values, strides, dilations, groups)), len(images))
        for part in lower:
            y = y * BASE + part
        y = y * along_axis(w.steps * step, 4, 3)
        y = y if b is None else y + along_axis(f32(b), 4, 3)
        return relu_with_limit(y, do_relu, relu_limit)

    step = jnp.maximum(jnp.max(jnp.abs(x)) / LARGEST, np.finfo(np.float32).smallest_normal)
    whole = jnp.round(x / step)
    high = jnp.round(whole / (BASE * BASE))
    rest = whole - high * (BASE * BASE)
    middle = jnp.round(rest / BASE)
    wanted = result([high, middle, rest - middle * BASE], step)
    return squares(lambda scale: wanted - result([rounded(x, scale)], 1 / scale), scales)


def factor_of(w: np.ndarray) -> np.ndarray:
    """Transposed factor r of a filter w (oc, ic, 1, 1): f32 (ic, ic), |r e| = |w e| for every e up to rounding."""
    rows = w.reshape(w.shape[:2]).astype(np.float64)
    squares = rows.T @ rows
    squares[np.diag_indices_from(squares)] += NOTHING * squares.trace() / len(squares) + np.finfo(np.float64).tiny
    return np.linalg.cholesky(squares).astype(np.float32)


@kernel(static=("strides",))
def linear_trial(x: Array, scales: Array, factor: Array, *, strides: Pair) -> Array:
    """Compute the sum of squares of (x - q / scale) @ factor for each scale, q = rounded(x * scale).

    This equals the sum of squares of a linear 1x1 convolution's error. x (n, h, w, ic), scales f32 (m,), factor from
    `factor_of`. The sums are f32 (m,).
    """
    x = x[:, :: strides[0], :: strides[1]]
    return squares(lambda scale: jnp.matmul(x - rounded(x, scale) / scale, factor), scales)
