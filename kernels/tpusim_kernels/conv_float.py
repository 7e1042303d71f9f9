"""Two-dimensional convolution in f32, every element a chain over (channel, row, column) of its window (numerics 9.1).

Outside a trace on a CPU, NumPy copies the windows of each group into one matrix, padded to the width of the library's
tiles. Only products, bias and relu are compiled, so that equal extents share one executable whatever the strides and
pads. Inside a trace everything is one graph. Both ways add in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tpusim_kernels.base import Array, along_axis, f32, kernel
from tpusim_kernels.conv import (
    GEOMETRY,
    Pads,
    Pair,
    by_library,
    by_product,
    check_operands,
    nchw,
    nhwc,
    relu_with_limit,
    sum_nhwc,
)
from tpusim_kernels.conv_graph import OrderedFilter, convolution, depthwise, padded
from tpusim_kernels.lazy import is_traced, jax, jnp, lax
from tpusim_kernels.prim.forms import estimating
from tpusim_kernels.prim.inorder import chains, convolution_blocks, dot_in_order, matrix_vector
from tpusim_kernels.prim.library import WIDTH

F32 = NDArray[np.float32]
Parts = tuple[Any, ...]
ALIGNED = 64
"""Bytes."""


def conv2d_float(
    x: Array,
    w: Array | OrderedFilter,
    b: Array | None,
    *,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    groups: int,
    do_relu: bool,
    relu_limit: float = -1.0,
) -> Array:
    """Compute y = relu(conv(x, w) + b) in f32, zero padding.

    x (n, ic, h, w), w (oc, ic/groups, kh, kw) or in the form of `ordered_filter`, b (oc,) or None.

    f32 accumulation in order (U-34, `prim.inorder`), then the bias; relu_limit < 0 means no upper limit. With a
    single window the convolution is a matrix times a vector, which is added in another order
    (`prim.inorder.matrix_vector`). Source: numerics 9.1, ONNX Conv.
    """
    check_operands(x, cast("Array", w), groups)
    out = extents(x.shape, w.shape, strides, pads, dilations)
    if isinstance(w, OrderedFilter) or is_vector(out, len(w), groups) or not _by_parts(x, w, b, groups):
        return _whole(
            x, w, b, strides=strides, pads=pads, dilations=dilations, groups=groups, do_relu=do_relu,
            relu_limit=relu_limit,
        )  # fmt: skip
    image, filters = np.asarray(x, np.float32), np.asarray(w, np.float32)
    n, (oh, ow), k = len(image), out, prod(w.shape[1:])
    columns = windows(image, (w.shape[2], w.shape[3]), strides, pads, dilations).reshape(n, groups, k, -1)
    lefts = _runs(filters.reshape(1, groups, len(w) // groups, k), 3)
    rights = _runs(columns, 2)
    return _finished(lefts, rights, b, shape=(n, len(w), oh, ow), do_relu=do_relu, relu_limit=relu_limit)


def is_vector(out: Pair, channels: int, groups: int) -> bool:
    """Whether a convolution is, for each sample and group, a matrix times a vector; out: (oh, ow)."""
    return out == (1, 1) and channels > groups


def _by_parts(x: Array, w: Array, b: Array | None, groups: int) -> bool:
    """Whether NumPy copies the windows. Not for products of one row, which XLA does not give to its library."""
    traced = any(is_traced(v) for v in (x, w, b))
    return not traced and not estimating() and len(w) > groups and jax.default_backend() == "cpu"


def extents(x: tuple[int, ...], w: tuple[int, ...], strides: Pair, pads: Pads, dilations: Pair) -> Pair:
    """(oh, ow) of shapes x (n, ic, h, w), w (oc, ic/groups, kh, kw). Raises ValueError if no window fits."""
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, w[2:], strict=True)]
    rooms = [x[2] + pads[0] + pads[2], x[3] + pads[1] + pads[3]]
    if any(span > room for span, room in zip(spans, rooms, strict=True)):
        raise ValueError(f"a window of {spans} does not fit the padded input of {rooms}")
    oh, ow = ((room - span) // s + 1 for room, span, s in zip(rooms, spans, strides, strict=True))
    return oh, ow


def windows(x: F32, kernel: Pair, strides: Pair, pads: Pads, dilations: Pair) -> F32:
    """(n, c, kh, kw, positions) of x (n, c, h, w), zero padding; positions are padded to whole tiles of the library."""
    (n, c, h, width), (kh, kw), (sh, sw), (dh, dw) = x.shape, kernel, strides, dilations
    oh, ow = extents(x.shape, (0, 0, *kernel), strides, pads, dilations)
    filled = -(-oh * ow // WIDTH) * WIDTH
    if kernel == strides == (1, 1) and not any(pads) and filled == oh * ow:
        return x.reshape(n, c, 1, 1, filled)
    top, left, bottom, right = pads
    if any(pads):
        padded = np.zeros((n, c, h + top + bottom, width + left + right), np.float32)
        padded[:, :, top : top + h, left : left + width] = x
        x = padded
    columns = aligned((n, c, kh, kw, filled))
    columns[..., oh * ow :] = 0
    taps = columns[..., : oh * ow].reshape(n, c, kh, kw, oh, ow) if filled == oh * ow else None
    for i in range(kh):
        for j in range(kw):
            rows, across = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh), slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)
            tap = x[:, :, rows, across]
            if taps is not None:
                taps[:, :, i, j] = tap
            else:
                columns[:, :, i, j, : oh * ow] = tap.reshape(n, c, oh * ow)
    return columns


def _runs(x: F32, axis: int) -> Parts:
    """The blocks of k, blocks of equal size stacked on a new first axis."""
    parts: list[F32] = []
    start = 0
    for size, equal in groupby(convolution_blocks(x.shape[axis])):
        count = len(list(equal))
        part = x[(slice(None),) * axis + (slice(start, start + count * size),)]
        split = part.reshape(*x.shape[:axis], count, size, *x.shape[axis + 1 :])
        parts.append(_contiguous(np.moveaxis(split, axis, 0)))
        start += count * size
    return tuple(parts)


def _contiguous(x: F32) -> F32:
    if x.flags.c_contiguous and x.ctypes.data % ALIGNED == 0:
        return x
    found = aligned(x.shape)
    found[...] = x
    return found


def aligned(shape: tuple[int, ...]) -> F32:
    """Aligned f32 memory, which JAX reads in place; memory of other alignment would be copied."""
    memory = np.empty(prod(shape) * 4 + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory[start : start + prod(shape) * 4].view(np.float32).reshape(shape)


@kernel(static=("shape", "do_relu", "relu_limit"))
def _finished(
    lefts: Parts, rights: Parts, b: Array | None, *, shape: tuple[int, ...], do_relu: bool, relu_limit: float
) -> Array:
    """Products of blocks, their sums, bias and relu; shape: n, oc, oh, ow of the result.

    lefts: (blocks, 1, groups, oc/groups, k) each, rights: (blocks, n, groups, k, positions) each, f32.
    """
    n, oc, oh, ow = shape
    y = None
    for block in _blocks(lefts, rights):
        y = block if y is None else y + block
    assert y is not None
    y = y.reshape(n, oc, -1)[:, :, : oh * ow].reshape(shape)
    y = y if b is None else y + along_axis(f32(b), y.ndim, 1)
    return relu_with_limit(y, do_relu, relu_limit)


def _blocks(lefts: Sequence[Array], rights: Sequence[Array]) -> Iterator[Array]:
    for left, right in zip(lefts, rights, strict=True):
        yield from chains(left, right)


@kernel(static=(*GEOMETRY, "do_relu", "relu_limit"))
def _whole(
    x: Array,
    w: Array | OrderedFilter,
    b: Array | None,
    *,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    groups: int,
    do_relu: bool,
    relu_limit: float,
) -> Array:
    """`conv2d_float` as one graph."""
    out, x = extents(x.shape, w.shape, strides, pads, dilations), f32(x)
    if isinstance(w, OrderedFilter):
        y = convolution(x, w, strides, pads, dilations, out)
    else:
        y = _sum_in_order(padded(x, pads), f32(w), strides, dilations, groups)
    y = y if b is None else y + along_axis(f32(b), y.ndim, 1)
    return relu_with_limit(y, do_relu, relu_limit)


def _sum_in_order(x: Array, w: Array, strides: Pair, dilations: Pair, groups: int) -> Array:
    """f32 sums in NCHW of a padded NCHW image, term by term over (channel, row, column) of the window."""
    (n, c, _, _), (oc, icg, kh, kw) = x.shape, w.shape
    if estimating() and kh * kw > 1:  # a 1x1 filter is one product, which the library computes faster
        return nchw(sum_nhwc(nhwc(x), w, strides, dilations, groups))
    (sh, sw), (dh, dw) = strides, dilations
    oh, ow = extents(x.shape, w.shape, strides, (0, 0, 0, 0), dilations)
    if groups == oc and icg == 1:
        taps = w.reshape(oc, kh * kw).T
        return nchw(depthwise(nhwc(x), taps, (kh, kw), strides, dilations, (oh, ow)))

    def gather(i: Array, windows: Array) -> Array:
        """One tap of all windows. A loop is one kernel to compile; separate slices would be one each."""
        place = [jnp.int32(0), jnp.int32(0), i // kw * dh, i % kw * dw]
        view = lax.dynamic_slice(x, place, (n, c, (oh - 1) * sh + 1, (ow - 1) * sw + 1))
        tap = lax.slice(view, (0,) * 4, view.shape, (1, 1, sh, sw))
        return lax.dynamic_update_slice_in_dim(windows, tap[:, :, None], i, axis=2)

    windows = (
        lax.fori_loop(jnp.int32(0), jnp.int32(kh * kw), gather, jnp.zeros((n, c, kh * kw, oh, ow), x.dtype))
        if kh * kw > 1
        else x[:, :, ::sh, ::sw]
    )
    windows = windows.reshape(n, groups, c // groups * kh * kw, oh * ow)
    filters = w.reshape(1, groups, oc // groups, icg * kh * kw)
    if is_vector((oh, ow), oc, groups) and not estimating():
        return matrix_vector(filters, jnp.swapaxes(windows, 2, 3)).reshape(n, oc, oh, ow)
    return dot_in_order(filters, windows, convolution_blocks(icg * kh * kw)).reshape(n, oc, oh, ow)


FEW = 64
"""Up to so many windows per call, a matrix product of the windows is faster than XLA's convolution."""
SHALLOW = 32
"""Up to so many elements per window (few input channels, say three) the matrix product is faster as well."""


def is_product(x: tuple[int, ...], w: tuple[int, ...], *, strides: Pair, pads: Pads, dilations: Pair) -> bool:
    """Whether `conv2d_estimate` computes shapes x (n, ic, h, w) and w (oc, ic, kh, kw) as one product."""
    if jax.default_backend() != "cpu":
        return False
    if w[2:] == (1, 1) or prod(w[1:]) <= SHALLOW:
        return True
    return x[0] * prod(extents(x, w, strides, pads, dilations)) <= FEW


@kernel(static=(*GEOMETRY, "do_relu", "relu_limit", "product"))
def conv2d_estimate(
    x: Array,
    w: Array,
    b: Array | None,
    *,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    groups: int,
    do_relu: bool,
    relu_limit: float = -1.0,
    product: bool = False,
) -> Array:
    """`conv2d_float` of an NHWC image, summed in the order of XLA's library: faster, and with other low bits.

    x (n, h, w, ic), w (kh, kw, ic/groups, oc), b (oc,) or None, y (n, oh, ow, oc), all f32. product (see `is_product`;
    groups must be 1): w is (oc, kh, kw, ic), the layout in which the library multiplies few rows fastest.
    """
    if product:
        y = by_product(f32(x), f32(w), strides, pads, dilations)
    else:
        y = by_library(f32(x), f32(w), strides, pads, dilations, groups)
    y = y if b is None else y + along_axis(f32(b), y.ndim, 3)
    return relu_with_limit(y, do_relu, relu_limit)
