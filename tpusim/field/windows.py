"""Sums over sliding windows in the field: convolutions, and the elements that a pool sees."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from tpusim.field.arithmetic import Elements, Field, narrowed, odd_numbers, parts, product, summed

_VOLUME = 3
"""Axes of the kernel of a volume."""
_SEEN = 1 << 21
"""Most elements that windows see at once where their sums are computed."""


@dataclass(frozen=True)
class Sliding:
    """A window over the axes after the channels; an entry per axis, `pads` are all befores, then all afters."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...] = ()
    inserts: tuple[int, ...] = ()

    def positions(self) -> Iterator[tuple[int, ...]]:
        """The positions of the kernel in order."""
        yield from np.ndindex(*self.kernel)

    def steps(self) -> tuple[int, ...]:
        """The dilations, 1 by default."""
        return self.dilations or (1,) * len(self.kernel)


def padded(image: np.ndarray, window: Sliding, value: float) -> np.ndarray:
    """The image (n, c, ...) with `value` in pads and where elements are inserted."""
    axes, inserts = len(window.kernel), window.inserts or (0,) * len(window.kernel)
    if not any(window.pads) and not any(inserts):
        return image
    sizes = [(size - 1) * (more + 1) + 1 for size, more in zip(image.shape[2:], inserts, strict=True)]
    before, after = window.pads[:axes], window.pads[axes:]
    shape = [b + size + a for b, size, a in zip(before, sizes, after, strict=True)]
    out = np.full((*image.shape[:2], *shape), value, image.dtype)
    places = [slice(b, b + s, m + 1) for b, s, m in zip(before, sizes, inserts, strict=True)]
    out[(slice(None), slice(None), *places)] = image
    return out


def seen(image: np.ndarray, window: Sliding, at: tuple[int, ...], size: tuple[int, ...]) -> np.ndarray:
    """What position `at` of the kernel meets for each of `size` results: a view of the padded image."""
    places = [
        slice(i * step, i * step + (count - 1) * stride + 1, stride)
        for i, step, count, stride in zip(at, window.steps(), size, window.strides, strict=True)
    ]
    return image[(slice(None), slice(None), *places)]


def convolved(
    field: Field, image: Elements, filter: Elements, window: Sliding, groups: int, size: tuple[int, ...], pad: int
) -> Elements:
    """Sums of products (n, oc, *size) of an image (n, ic, ...) and a filter (oc, ic / groups, taps); pad: an element.

    Every channel has its taps in the order of the kernel's positions. With `field.algebra` a sum is the field's. Else
    it is an uninterpreted function of what the window sees and of the filter, both in order, and 0 where nothing but
    zeros is seen; a volume's is the sum of the sums of its planes, each with its part of the kernel.
    """
    wide = padded(image, window, pad)
    if field.algebra:
        return _sums(wide, filter, window, groups, size)
    field.hashed = True
    depths = window.kernel[0] if len(window.kernel) == _VOLUME else 1
    taps, positions = filter.shape[2] // depths, list(window.positions())
    planes = [slice(depth * taps, (depth + 1) * taps) for depth in range(depths)]
    return summed(_plane(field, wide, filter[:, :, part], positions[part], window, groups, size) for part in planes)


def _sums(image: Elements, filter: Elements, window: Sliding, groups: int, size: tuple[int, ...]) -> Elements:
    """The sums of products of a padded image, some rows of them at once."""
    n, oc, each = image.shape[0], len(filter), filter.shape[1]
    rows = filter.swapaxes(1, 2).reshape(groups, oc // groups, -1)
    found = np.empty((n, oc, *size), np.int64)
    at_once = max(1, _SEEN // (n * groups * rows.shape[-1] * prod(size[1:])))
    for start in range(0, size[0], at_once):
        part = slice(start * window.strides[0], None)
        some = (min(at_once, size[0] - start), *size[1:])
        met = [seen(image[:, :, part], window, at, some) for at in window.positions()]
        columns = np.stack([x.reshape(n, groups, each, -1) for x in met], 2)
        sums = product(rows, columns.reshape(n, groups, rows.shape[-1], -1))
        found[:, :, start : start + some[0]] = sums.reshape(n, oc, *some)
    return found


def _plane(
    field: Field, image: Elements, filter: Elements, at: list[tuple[int, ...]], window: Sliding, groups: int,
    size: tuple[int, ...],
) -> Elements:  # fmt: skip
    """The hashes of some positions of the kernel, over the padded image.

    The upper bits of sums and products with random odd numbers modulo 2**64: those of different windows, or filters,
    are equal with a chance of two of 2**50 (Dietzfelbinger 1996).
    """
    (n, _, *extents), (oc, each, taps) = image.shape, filter.shape
    factors = field.factors(taps, each)
    rows = odd_numbers(np.einsum("oit,ti->o", filter.view(np.uint64), factors)).reshape(1, groups, oc // groups, 1)
    hashes = np.zeros((n, groups, *size), np.uint64)
    for tap, place in enumerate(at):
        if len(at) == 1 and each > 1:  # other elements are seen by no position
            met = seen(image, window, place, size).reshape(n, groups, each, -1)
            hashes += np.einsum("ngip,i->ngp", met.view(np.uint64), factors[tap]).reshape(hashes.shape)
            continue
        met = image.reshape(n, groups, each, -1).view(np.uint64)
        sums = np.einsum("ngip,i->ngp", met, factors[tap]).reshape(n, groups, *extents)
        hashes += seen(sums, window, place, size)
    seen_by, found = hashes.reshape(n, groups, 1, -1), np.empty((n, groups, oc // groups, prod(size)), np.uint64)
    seen_by, rows = np.broadcast_arrays(seen_by, rows)
    for index in parts(found.shape):
        narrowed(np.multiply(seen_by[index], rows[index], out=found[index]))
    return found.view(np.int64).reshape(n, oc, *size)
