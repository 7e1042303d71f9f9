"""Convolutions of int8 images by a GPU's library, and the shifted views that other forms of convolutions multiply.

On a GPU XLA gives an int8 convolution to cuDNN if its result is f32; there is none whose result is int32. cuDNN adds in
int32 and converts the sums, so sums of up to `CHUNK` terms are exact. The 3x3 convolutions of ResNet-50 in batches of
128 took 0.3 to 0.8 times as long on an H200 as products of patches.
"""

from __future__ import annotations

from tpusim_kernels.base import Array
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.forms import CHUNK

Pair = tuple[int, int]
ALIGNED = 16
"""Channels of an image are cut at multiples of this: so many bytes are read at once."""
WIDE = 128
"""The channels that cuDNN multiplies at once; an image of fewer is filled up with zeros, which takes as long."""


def views_of(x: Array, kernel: Pair, strides: Pair, dilations: Pair) -> list[Array]:
    """The kh*kw shifted views of padded NHWC `x`, each (n, oh, ow, c), row by row."""
    n, h, w, c = x.shape
    (kh, kw), (sh, sw), (dh, dw) = kernel, strides, dilations
    last_h = (h - dh * (kh - 1) - 1) // sh * sh
    last_w = (w - dw * (kw - 1) - 1) // sw * sw
    require_room(x, kernel, dilations)
    return [
        lax.slice(x, (0, y, z, 0), (n, y + last_h + 1, z + last_w + 1, c), (1, sh, sw, 1))
        for y in range(0, dh * kh, dh)
        for z in range(0, dw * kw, dw)
    ]


def require_room(x: Array, kernel: Pair, dilations: Pair) -> None:
    """Raise ValueError if a window is larger than the padded NHWC image."""
    (_, h, w, _), (kh, kw), (dh, dw) = x.shape, kernel, dilations
    if dh * (kh - 1) >= h or dw * (kw - 1) >= w:
        raise ValueError(f"a {kh}x{kw} window dilated by {dilations} does not fit the padded input of {h}x{w}")


def convolved_by_library(x: Array, w: Array, strides: Pair) -> Array | None:
    """int32 sums of products of a padded NHWC int8 image and an int8 filter (kh, kw, ic, oc), without dilation.

    None where another form has to compute them: where `ALIGNED` channels of a window have more than CHUNK terms, and
    where the result has fewer rows or columns than the filter. XLA takes such a convolution for the gradient of a
    filter, which cuDNN does not compute in int8.
    """
    extents = tuple((size - k) // step + 1 for size, k, step in zip(x.shape[1:3], w.shape[:2], strides, strict=True))
    if w.shape[0] > extents[0] or w.shape[1] > extents[1]:
        return None
    if w.shape[2] < ALIGNED and strides != (1, 1):
        x, w = _without_strides(x, w, strides)
        strides = (1, 1)
    if w.shape[1] * w.shape[2] <= WIDE:
        x, w = _without_columns(x, w, strides[1])
        strides = (strides[0], 1)
    kh, kw, channels, _ = w.shape
    rows = min(CHUNK // (kw * channels), kh)
    step = channels
    if not rows:  # a row of the filter has too many terms
        rows, most = kh, CHUNK // (kh * kw) // ALIGNED * ALIGNED
        if not most:
            return None
        parts = -(-channels // most)
        step = -(-channels // (parts * ALIGNED)) * ALIGNED
    acc = None
    for row in range(0, kh, rows):
        for channel in range(0, channels, step):
            filter = w[row : row + rows, :, channel : channel + step]
            last = row + (extents[0] - 1) * strides[0] + filter.shape[0]
            part = _sums(x[:, row:last, :, channel : channel + step], filter, strides)
            acc = part if acc is None else acc + part
    return acc


def _sums(x: Array, w: Array, strides: Pair) -> Array:
    """int32 sums of at most CHUNK terms."""
    # Without the barrier XLA moves conversions to int32 before the cuts, and then finds no int8 convolution.
    x, w = lax.optimization_barrier((x, w))
    sums = lax.conv_general_dilated(
        x, w, strides, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=jnp.int32
    )
    return sums.astype(jnp.float32).astype(jnp.int32)


def _without_strides(x: Array, w: Array, strides: Pair) -> tuple[Array, Array]:
    """Image and filter of the same convolution without strides: the pixels of one step are channels of one pixel."""
    (n, h, width, channels), (kh, kw, _, oc), (sh, sw) = x.shape, w.shape, strides
    rows, columns = -(-kh // sh), -(-kw // sw)
    high, wide = (h - kh) // sh + rows, (width - kw) // sw + columns
    # A negative number of pads cuts off pixels that no window reads.
    x = lax.pad(x, jnp.int8(0), ((0, 0, 0), (0, high * sh - h, 0), (0, wide * sw - width, 0), (0, 0, 0)))
    w = jnp.pad(w, ((0, rows * sh - kh), (0, columns * sw - kw), (0, 0), (0, 0)))
    x = jnp.transpose(x.reshape(n, high, sh, wide, sw, channels), (0, 1, 3, 2, 4, 5))
    w = jnp.transpose(w.reshape(rows, sh, columns, sw, channels, oc), (0, 2, 1, 3, 4, 5))
    return x.reshape(n, high, wide, -1), w.reshape(rows, columns, -1, oc)


def _without_columns(x: Array, w: Array, stride: int) -> tuple[Array, Array]:
    """Image and filter of the same convolution with one column: the pixels of a window's row are channels."""
    kh, kw, _, oc = w.shape
    return jnp.concatenate(views_of(x, (1, kw), (1, stride), (1, 1)), axis=-1), w.reshape(kh, 1, -1, oc)
