"""Two-dimensional transposed convolution in f32, in the order of sums of oneDNN (U-34, 9.1).

The geometry is that of `deconv`: a convolution of stride 1 with the filter turned over the image with zeros inserted.
A phase is the set of result places that are a multiple of the stride apart. All windows of a phase multiply the same
taps with elements and the other taps with inserted zeros. So every phase is a matrix product without zeros, and phases
with equally many taps are one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import gcd
from typing import NamedTuple

import numpy as np

from tpusim_kernels.base import Array, f32, kernel, pin
from tpusim_kernels.conv import Pads, Pair, check_operands, finished_float, sum_nhwc
from tpusim_kernels.deconv import GEOMETRY, turned, widened
from tpusim_kernels.lazy import jax, jnp
from tpusim_kernels.prim.forms import estimating
from tpusim_kernels.prim.inorder import added_up, convolution_blocks, dot_in_order

VECTOR = 16
"""Channels per vector of oneDNN; used with one group, or if a group's channels are a multiple of it."""
ALONE = 256
"""Channels that oneDNN adds at a time if filter and stride are 1x1."""


class Phase(NamedTuple):
    """The result places `start`, `start` + stride, ... of an axis.

    taps: the taps of the turned filter that multiply elements in this phase, `Axis.step` apart. meets: for each tap the
    index of the element that it multiplies at `start`; a negative index is padding.
    """

    start: int
    taps: tuple[int, ...]
    meets: tuple[int, ...]


@kernel(static=(*GEOMETRY, "do_relu", "relu_limit"))
def deconv2d_float(
    x: Array,
    w: Array,
    b: Array | None,
    *,
    strides: Pair,
    pads: Pads,
    output_padding: Pair,
    dilations: Pair,
    groups: int,
    do_relu: bool,
    relu_limit: float = -1.0,
) -> Array:
    """Compute y = relu(deconv(x, w) + b) in f32.

    x (n, ic, h, w), w (oc, ic/groups, kh, kw), b (oc,) or None; a relu_limit below 0 means no upper limit. Source:
    numerics 9.1, ONNX ConvTranspose (whose filter is (ic, oc/groups, kh, kw)).

    With one group, or groups whose channels are multiples of 16, the sum is a chain over (row, column, channel) of the
    filter for every 16 channels. Otherwise, and if stride and dilation are both above 1, the products of each tap of
    the turned filter are summed over the channels and then added, row by row.
    """
    x, w = f32(x), f32(w)
    check_operands(x, w, groups)
    if estimating():
        x = widened(x, w, jnp.float32(0), strides, pads, output_padding, dilations)
        return finished_float(sum_nhwc(x, turned(w), (1, 1), dilations, groups), b, do_relu, relu_limit)
    alone = groups == 1 and (*w.shape[2:], *strides) == (1, 1, 1, 1)
    if not alone and _in_vectors(w.shape, strides, dilations, groups):
        total = _by_vectors
    else:
        total = partial(_by_taps, blocks=_of(w.shape[1], ALONE) if alone else convolution_blocks(w.shape[1]))
    axes = [
        Axis(x.shape[2 + i], w.shape[2 + i], strides[i], (pads[i], pads[2 + i]), output_padding[i], dilations[i])
        for i in (0, 1)
    ]
    image = jnp.moveaxis(jnp.pad(x, [(0, 0), (0, 0), *(axis.border for axis in axes)]), 1, 3)
    w, places = turned(w), [axis.places for axis in axes]
    y = jnp.zeros((*strides, len(x), len(w), *places), jnp.float32)
    for down, across in product(*(axis.by_tap_count for axis in axes)):
        if down[0].taps and across[0].taps:
            pairs = list(product(down, across))
            windows = jnp.stack(_windows(image, pairs, axes))
            filters = jnp.stack([_filters(w, *pair, axes) for pair in pairs])
            part = jax.vmap(total)(
                windows.reshape(*windows.shape[:4], groups, -1),
                filters.reshape(len(pairs), groups, len(w) // groups, *filters.shape[2:]),
            )
            at = np.ix_([phase.start for phase in down], [phase.start for phase in across])
            y = y.at[at].set(part.reshape(len(down), len(across), *y.shape[2:]))
    y = jnp.transpose(y, (2, 4, 0, 5, 1, 3)).reshape(len(x), places[0] * strides[0], places[1] * strides[1], len(w))
    return finished_float(y[:, : axes[0].out, : axes[1].out], b, do_relu, relu_limit)


def _in_vectors(w: tuple[int, ...], strides: Pair, dilations: Pair, groups: int) -> bool:
    """Whether oneDNN computes this filter (oc, ic/groups, kh, kw) by vectors of channels; otherwise tap by tap."""
    oc, ic = w[:2]
    in_step = all(stride == 1 or dilation == 1 for stride, dilation in zip(strides, dilations, strict=True))
    return in_step and (groups == 1 or (ic % VECTOR == 0 and oc // groups % VECTOR == 0))


@dataclass(frozen=True)
class Axis:
    """An axis of a transposed convolution of `size` elements."""

    size: int
    kernel: int
    stride: int
    pads: Pair
    output_padding: int
    dilation: int

    @property
    def _reach(self) -> int:
        return (self.kernel - 1) * self.dilation

    @property
    def out(self) -> int:
        """The extent of the result."""
        return (self.size - 1) * self.stride + self._reach + 1 - sum(self.pads) + self.output_padding

    @property
    def places(self) -> int:
        """Places of a phase; the last one may be past the end of the result."""
        return -(-self.out // self.stride)

    @property
    def step(self) -> int:
        """How far apart the taps of a phase are."""
        return self.stride // gcd(self.stride, self.dilation)

    @cached_property
    def phases(self) -> list[Phase]:
        """The phases in order."""
        first, found = self._reach - self.pads[0], []
        for start in range(self.stride):
            taps = tuple(i for i in range(self.kernel) if (start + i * self.dilation - first) % self.stride == 0)
            meets = tuple((start + i * self.dilation - first) // self.stride for i in taps)
            found.append(Phase(start, taps, meets))
        return found

    @property
    def by_tap_count(self) -> list[list[Phase]]:
        """The phases, grouped by their number of taps."""
        counts = dict.fromkeys(len(phase.taps) for phase in self.phases)
        return [[phase for phase in self.phases if len(phase.taps) == count] for count in counts]

    @property
    def border(self) -> Pair:
        """The number of zeros that the taps need before and after the axis."""
        met = [i for phase in self.phases for i in phase.meets]
        return max(0, -min(met)), max(0, max(met) + self.places - self.size)


def _windows(image: Array, pairs: list[tuple[Phase, Phase]], axes: list[Axis]) -> list[Array]:
    """The elements under the taps, (n, taps, places, ic) per pair of phases; image (n, h, w, ic) with borders."""
    views: dict[Pair, Array] = {}

    def view(place: Pair) -> Array:
        if place not in views:
            rows, columns = (
                slice(i + axis.border[0], i + axis.border[0] + axis.places) for i, axis in zip(place, axes, strict=True)
            )
            views[place] = image[:, rows, columns].reshape(len(image), -1, image.shape[3])
        return views[place]

    return [jnp.stack([view(place) for place in product(down.meets, across.meets)], axis=1) for down, across in pairs]


def _filters(w: Array, down: Phase, across: Phase, axes: list[Axis]) -> Array:
    """The taps of a pair of phases, (oc, taps, ic), of a turned filter."""
    part = w[:, :, down.taps[0] :: axes[0].step, across.taps[0] :: axes[1].step]
    return jnp.moveaxis(part.reshape(*part.shape[:2], -1), 2, 1)


def _by_vectors(windows: Array, filters: Array) -> Array:
    """Sums (n, groups, oc, places) of windows (n, taps, places, groups, ic) and filters (groups, oc, taps, ic)."""
    taps, channels = filters.shape[2:]
    whole = channels - channels % VECTOR
    lefts, rights, blocks = [], [], []
    for start, stop, size in ((0, whole, VECTOR), (whole, channels, channels - whole)):
        if start < stop:
            left, right = (x[..., start:stop].reshape(*x.shape[:-1], -1, size) for x in (filters, windows))
            left = jnp.transpose(left[:, :, ::-1], (0, 1, 3, 2, 4))  # back to the filter that is not turned
            right = jnp.transpose(right[:, ::-1], (0, 3, 4, 1, 5, 2))
            lefts.append(left.reshape(1, *left.shape[:2], -1))
            rights.append(right.reshape(*right.shape[:2], -1, right.shape[-1]))
            blocks += [taps * size] * ((stop - start) // size)
    return dot_in_order(_stored(jnp.concatenate(lefts, 3)), _stored(jnp.concatenate(rights, 2)), blocks)


def _stored(x: Array) -> Array:
    """The array stored in its present layout: without the pin XLA merges a transposition into the product."""
    return pin(x.reshape(len(x), -1)).reshape(x.shape)


def _of(channels: int, size: int) -> tuple[int, ...]:
    """The sizes of blocks of at most `size` that add up to `channels`."""
    return tuple(min(size, channels - start) for start in range(0, channels, size))


def _by_taps(windows: Array, filters: Array, *, blocks: tuple[int, ...]) -> Array:
    """As `_by_vectors`: a product per tap, of channels in blocks, added up in the order of the taps."""
    left, right = jnp.transpose(filters, (2, 0, 1, 3))[None], jnp.transpose(windows, (0, 1, 3, 4, 2))
    products = dot_in_order(_stored(left), _stored(right), blocks)
    return added_up(jnp.moveaxis(products, 1, 0))
