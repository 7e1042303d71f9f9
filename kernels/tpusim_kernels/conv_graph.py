"""Convolutions in f32 inside a graph, every element a chain over (channel, row, column) of its window (numerics 9.1).

The filter is brought into the form of its products once, on the host: inside the graph that would happen in every run.
Images are NHWC where a filter has one tap or one channel. In the trace of a whole network the transpositions between
two such convolutions then cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import groupby, islice
from math import prod
from typing import NamedTuple

import numpy as np

from tpusim_kernels.base import Array, pin
from tpusim_kernels.conv import Pads, Pair, nchw, nhwc
from tpusim_kernels.lazy import jax, jnp, lax
from tpusim_kernels.prim.forms import estimating
from tpusim_kernels.prim.inorder import convolution_blocks, ordered_product, total
from tpusim_kernels.prim.library import filled, in_order, keeps_order

WIDE, DEEP = 512, 128
"""From WIDE positions on and beyond DEEP terms, the windows are the columns of a product. Columns are faster to make,
but the result has to be transposed.
"""


class OrderedFilter(NamedTuple):
    """An f32 filter of (oc, ic/groups, kh, kw) in the form of its products (`ordered_filter`).

    blocks: f32 arrays. For one tap (groups, k, oc/groups) each. For several taps (blocks, k, oc), blocks of equal k in
    one array, or (blocks, 1, oc, k) if the library's product reads the left operand upright. For a depthwise filter one
    array (kh*kw, oc). Where `prim.library` requires it, oc is padded with zeros. like: an array without elements that
    keeps the shape, (oc, ic/groups, kh, kw, 0).
    """

    blocks: tuple[Array, ...]
    like: Array

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(oc, ic/groups, kh, kw)."""
        oc, ic, kh, kw, _ = self.like.shape
        return oc, ic, kh, kw

    @property
    def ndim(self) -> int:
        """The number of axes: always 4."""
        return len(self.shape)


def ordered_filter(w: np.ndarray, groups: int, places: int) -> OrderedFilter | np.ndarray:
    """A filter (oc, ic/groups, kh, kw) in the form that `convolution` reads; grouped filters of several taps unchanged.

    places: the number of windows of one call.
    """
    if jax.default_backend() != "cpu" or w.dtype != np.float32 or w.ndim != 4:
        return w
    alone = w.shape[2:] == (1, 1)
    if groups > 1 and w.shape[:2] == (groups, 1):
        return _made([w.reshape(groups, -1).T], w)
    if groups > 1 and not alone:
        return w
    oc, k = len(w) // groups, prod(w.shape[1:])
    runs = [(size, len(list(equal))) for size, equal in groupby(convolution_blocks(k))]
    runs = [(size, 1) for size, count in runs for _ in range(count)] if alone else runs
    across = not alone and _across(places, k)
    asked = ((groups if alone else count, places, size, oc) for size, count in runs)
    wide = oc if not across and all(keeps_order(*extents, upright=True) for extents in asked) else filled(oc)
    columns = np.zeros((groups, k, wide), np.float32)
    columns[:, :, :oc] = w.reshape(groups, oc, k).swapaxes(1, 2)
    ends = np.cumsum([size * count for size, count in runs])[:-1]
    parts = zip(np.split(columns, ends, axis=1), runs, strict=True)
    blocks = (part.reshape(len(part) * count, size, wide) for part, (size, count) in parts)
    return _made([_upright(block, places) if across else block for block in blocks], w)


def _upright(block: np.ndarray, places: int) -> np.ndarray:
    """A left operand (blocks, k, oc) in the layout that its product with `places` columns reads."""
    count, size, oc = block.shape
    form = in_order(count, oc, size, places, upright=False)
    return block if form is None or not form.upright else block.swapaxes(1, 2)[:, None]


def _made(blocks: Sequence[np.ndarray], w: np.ndarray) -> OrderedFilter:
    like = np.zeros((*w.shape, 0), np.float32)
    return OrderedFilter(tuple(map(np.ascontiguousarray, blocks)), like)  # type: ignore[arg-type]


def _across(places: int, k: int) -> bool:
    """Whether windows of k elements are the columns of their product."""
    return places >= WIDE and k > DEEP


def convolution(x: Array, w: OrderedFilter, strides: Pair, pads: Pads, dilations: Pair, out: Pair) -> Array:
    """f32 sums (n, oc, oh, ow) of an image (n, ic, h, w), term by term over (channel, row, column); out: (oh, ow)."""
    kh, kw = w.shape[2:]
    if w.blocks[0].ndim == 2:
        image = lax.optimization_barrier(nhwc(padded(x, pads)))  # otherwise XLA computes the unpadded image again
        return nchw(depthwise(image, w.blocks[0], (kh, kw), strides, dilations, out))

    def sums(x: Array, blocks: tuple[Array, ...]) -> Array:
        if kh * kw == 1:
            return _of_points(padded(x, pads), w._replace(blocks=blocks), strides, out)
        return _of_windows(x, w._replace(blocks=blocks), strides, pads, dilations, out)

    if estimating():  # an estimate may be batched at once, and `custom_vmap` cannot be differentiated
        return sums(x, w.blocks)
    run = jax.custom_batching.custom_vmap(sums)

    @run.def_vmap
    def many(count: int, batched: tuple[bool, tuple[bool, ...]], x: Array, blocks: tuple[Array, ...]):
        del batched  # a filter is the same for all samples
        y = run(x.reshape(-1, *x.shape[2:]), blocks)
        return y.reshape(count, -1, *y.shape[1:]), True

    return run(x, w.blocks)


def padded(x: Array, pads: Pads) -> Array:
    """An image (n, c, h, w) with zeros around it."""
    top, left, bottom, right = pads
    return lax.pad(x, jnp.float32(0), ((0, 0, 0), (0, 0, 0), (top, bottom, 0), (left, right, 0)))


def _of_points(x: Array, w: OrderedFilter, strides: Pair, out: Pair) -> Array:
    """`convolution` with a filter of one tap: channels times filter."""
    n, oc, groups = len(x), w.shape[0], len(w.blocks[0])
    rows = nhwc(x[:, :, :: strides[0], :: strides[1]]).reshape(n * out[0] * out[1], groups, -1).transpose(1, 0, 2)
    sums: list[Array] = []
    start = 0
    for block in w.blocks:
        part = lax.slice_in_dim(rows, start, start + block.shape[1], axis=2)
        sums.append(ordered_product(part, block))
        start += block.shape[1]
    columns = reduce(jnp.add, sums)[:, :, : oc // groups]
    return nchw(columns.transpose(1, 0, 2).reshape(n, *out, oc))


def _of_windows(x: Array, w: OrderedFilter, strides: Pair, pads: Pads, dilations: Pair, out: Pair) -> Array:
    """`convolution` with a filter of several taps, one sample after the other."""
    if len(x) > 1:
        one = lax.map(lambda image: _of_windows(image[None], w, strides, pads, dilations, out), x)
        return one[:, 0]
    oc, places, k = w.shape[0], prod(out), prod(w.shape[1:])
    if not _across(places, k):
        rows = _rows(_framed(nhwc(x)[0], pads, (0, 1)), w.shape[2:], strides, dilations, out)
        return nchw(total(_products(rows, w, across=False))[:, :oc].reshape(1, *out, oc))
    columns = _columns(_framed(lax.squeeze(x, (0,)), pads, (1, 2)), w.shape[2:], strides, dilations, out)
    image = total(_products(columns, w, across=True))[:oc].T.reshape(1, 1, *out, oc)
    return nchw(lax.squeeze(image, (0,)))  # no rule of `with_few_transpositions`: the image is stored as NHWC


def _products(windows: Array, w: OrderedFilter, *, across: bool) -> list[Array]:
    """Windows (places, k) times a filter's blocks: (blocks, places, oc); across: (k, places), (blocks, oc, places)."""
    sums: list[Array] = []
    start = 0
    for block in w.blocks:
        upright, count, size = block.ndim > 3, len(block), block.shape[-1 if block.ndim > 3 else 1]
        part = lax.slice_in_dim(windows, start, start + count * size, axis=0 if across else 1)
        if across:
            left = block[:, 0] if upright else block
            sums.append(ordered_product(left, part.reshape(count, size, -1), upright=upright))
        else:
            sums.append(ordered_product(part.reshape(-1, count, size).transpose(1, 0, 2), block))
        start += count * size
    return sums


def _framed(x: Array, pads: Pads, axes: Pair) -> Array:
    """An image padded with zeros by concatenations, whose operands XLA computes only once. axes: (h, w)."""
    top, left, bottom, right = pads
    for axis, before, after in ((axes[1], left, right), (axes[0], top, bottom)):
        sizes = [x.shape[:axis] + (size,) + x.shape[axis + 1 :] for size in (before, after)]
        x = jnp.concatenate([jnp.zeros(sizes[0], x.dtype), x, jnp.zeros(sizes[1], x.dtype)], axis)
    return x


def _columns(x: Array, kernel: Pair, strides: Pair, dilations: Pair, out: Pair) -> Array:
    """The windows (c*kh*kw, places) of a padded image (c, h, w)."""
    for axis in (1, 0):
        taps = _shifted(x, x.ndim - 2 + axis, kernel[axis], strides[axis], dilations[axis], out[axis])
        x = jnp.stack(taps, axis=1)
    return x.reshape(-1, prod(out))


def _rows(x: Array, kernel: Pair, strides: Pair, dilations: Pair, out: Pair) -> Array:
    """The windows (places, c*kh*kw) of a padded image (h, w, c); a transposition of `_columns` would read far apart."""
    for axis in (1, 0):
        taps = _shifted(x, axis, kernel[axis], strides[axis], dilations[axis], out[axis])
        x = pin(jnp.stack(taps, axis=3))
    return x.reshape(prod(out), -1)


def _shifted(x: Array, axis: int, kernel: int, stride: int, dilation: int, out: int) -> list[Array]:
    """For each tap of a kernel, the elements that it multiplies along one axis of an image."""
    span = (out - 1) * stride + 1
    return [lax.slice_in_dim(x, i, i + span, stride, axis) for i in range(0, dilation * kernel, dilation)]


def depthwise(x: Array, taps: Array, kernel: Pair, strides: Pair, dilations: Pair, out: Pair) -> Array:
    """One filter per channel, tap by tap, in one loop; x (n, h, w, c) padded, taps (kh*kw, c); gives (n, oh, ow, c)."""
    places = ((i * dilations[0], j * dilations[1]) for i in range(kernel[0]) for j in range(kernel[1]))
    terms = (_tap(x, place, strides, out) * taps[k].reshape(1, 1, 1, -1) for k, place in enumerate(places))
    return _chained(terms, len(taps))


def _tap(x: Array, place: Pair, strides: Pair, out: Pair) -> Array:
    """The element at a place of every window of x (n, h, w, c)."""
    stop = [at + (size - 1) * step + 1 for at, size, step in zip(place, out, strides, strict=True)]
    return lax.slice(x, (0, *place, 0), (len(x), *stop, x.shape[3]), (1, *strides, 1))


def _chained(terms: Iterable[Array], count: int) -> Array:
    """The sum of products as one chain of fused multiply-adds for each element.

    The first product is pinned, because XLA might otherwise merge it, instead of the second, into the multiply-add.
    Adding zero makes it fma(x, w, 0), which is never -0. Each block of 384 terms is a separate sum.
    """
    zero, left = lax.optimization_barrier(jnp.float32(0)), iter(terms)
    whole = None
    for size in convolution_blocks(count):
        acc = pin(next(left)) + zero
        for term in islice(left, size - 1):
            acc = acc + term
        whole = acc if whole is None else whole + pin(acc)
    assert whole is not None
    return whole
