"""How much a float convolution's result changes when its image is rounded to INT8: estimates, for searches.

A rounded image is integers times one step, so its convolution is sums of int8 products, which the library has ten times
as fast as f32. A filter in f32 is three int8 filters of falling weight, to within half a step of 1 / 8,000,000 of the
channel's largest value: no worse than the rounding of f32 sums.

A linear 1x1 filter w that makes more channels than it takes needs neither: its result changes by w e, e being the error
of the rounding, and with r' r = w' w, r being triangular, r e is as long and has fewer channels.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from tpusim_kernels.base import Array, along_axis, f32, kernel
from tpusim_kernels.conv import GEOMETRY, Pads, Pair, convolved, filter_of, relu_with_limit
from tpusim_kernels.trial import rounded, squares

BASE = 254
"""What one part weighs of the part before it: every integer is a multiple of it plus one of -127 to 127."""
LARGEST = (127 * BASE + 126) * BASE
"""The largest filter element in steps; all three parts of it fit int8."""
NOTHING = 1e-10
"""Of the mean square: makes a singular matrix one that can be factored, and changes no f32."""


class Parts(NamedTuple):
    """A filter in three parts. values: as `conv.Filter` has them, 3*oc channels; steps: f32 (oc,)."""

    values: Array | np.ndarray
    steps: Array | np.ndarray


def parts_of(w: np.ndarray) -> Parts:
    """The parts of a finite f32 filter (oc, ic, kh, kw)."""
    largest = np.abs(w).max(axis=(1, 2, 3), keepdims=True)
    steps = np.maximum(largest / np.float32(LARGEST), np.finfo(np.float32).smallest_normal)
    rest, found = np.rint(w / steps), list[np.ndarray]()
    for _ in range(2):
        above = np.rint(rest / np.float32(BASE))
        found.insert(0, (rest - above * np.float32(BASE)).astype(np.int8))
        rest = above
    whole = np.concatenate([rest.astype(np.int8), *found])
    return Parts(np.asarray(filter_of(whole, 1)[0]), steps.reshape(-1))


@kernel(static=(*GEOMETRY, "do_relu", "relu_limit"))
def conv2d_trial(
    x: Array,
    scales: Array,
    parts: Parts,
    b: Array | None,
    wanted: Array,
    *,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    groups: int,
    do_relu: bool,
    relu_limit: float = -1.0,
) -> Array:
    """Compute the sum of squares of wanted - relu(conv(q / scale, w) + b) for each scale, q = rounded(x * scale).

    x (n, h, w, ic), scales f32 (m,), b (oc,) or None, wanted (n, oh, ow, oc); groups: 1. The sums are f32 (m,).
    """
    top, left, bottom, right = pads

    def difference(scale: Array) -> Array:
        q = rounded(x, scale).astype(jnp.int8)
        q = lax.pad(q, jnp.int8(0), ((0, 0, 0), (top, bottom, 0), (left, right, 0), (0, 0, 0)))
        high, middle, low = jnp.split(f32(convolved(q, parts.values, strides, dilations, groups)), 3, axis=3)
        y = ((high * BASE + middle) * BASE + low) * along_axis(parts.steps / scale, 4, 3)
        y = y if b is None else y + along_axis(f32(b), 4, 3)
        return wanted - relu_with_limit(y, do_relu, relu_limit)

    return squares(difference, scales)


def factor_of(w: np.ndarray) -> np.ndarray:
    """R' in f32, (ic, ic) with |r e| = |w e| for every e but for rounding, of a filter (oc, ic, 1, 1)."""
    rows = w.reshape(w.shape[:2]).astype(np.float64)
    squares = rows.T @ rows
    squares[np.diag_indices_from(squares)] += NOTHING * squares.trace() / len(squares) + np.finfo(np.float64).tiny
    return np.linalg.cholesky(squares).astype(np.float32)


@kernel(static=("strides",))
def linear_trial(x: Array, scales: Array, factor: Array, *, strides: Pair) -> Array:
    """Compute the sum of squares of (x - q / scale) @ factor for each scale, q = rounded(x * scale).

    It is that of the difference of a linear 1x1 convolution's results. x (n, h, w, ic), scales f32 (m,), factor as
    `factor_of` gives it. The sums are f32 (m,).
    """
    x = x[:, :: strides[0], :: strides[1]]
    return squares(lambda scale: jnp.matmul(x - rounded(x, scale) / scale, factor), scales)
