"""Sums over sliding windows in the field: convolutions, and the elements that a pool sees."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tpusim.field.arithmetic import PRIME, Elements, centred, of_centred

_PATCH_ELEMENTS = 8 << 20
"""Most elements of the patches that are made at once."""


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
    image: Elements, filter: Elements, window: Sliding, groups: int, size: tuple[int, ...], pad: int
) -> Elements:
    """Sums of products (n, oc, *size) of an image (n, ic, ...) and a filter (oc, ic / groups, taps); pad: an element.

    Every channel has its taps in the order of the kernel's positions.
    """
    n, (oc, each, taps) = image.shape[0], filter.shape
    if each == 1 and groups == oc == image.shape[1]:
        return _channelwise(padded(image, window, pad), filter[:, 0], window, size)
    wide = padded(centred(image), window, float(centred(np.array(pad))))
    rows = centred(filter).reshape(groups, oc // groups, each * taps)
    out = np.empty((n, oc, *size), np.int64)
    step = max(1, _PATCH_ELEMENTS // max(1, image.shape[1] * taps * int(np.prod(size[1:]))))
    for item in range(n):
        for first in range(0, size[0], step):
            count = min(step, size[0] - first)
            part = wide[item : item + 1, :, first * window.strides[0] :]
            patches = [seen(part, window, at, (count, *size[1:]))[0] for at in window.positions()]
            columns = np.stack(patches, axis=1) if taps > 1 else patches[0]
            sums = of_centred(rows, columns.reshape(groups, each * taps, -1))
            out[item, :, first : first + count] = sums.reshape(oc, count, *size[1:])
    return out


def _channelwise(image: Elements, filter: Elements, window: Sliding, size: tuple[int, ...]) -> Elements:
    """One filter (taps) per channel; sums of up to 2**19 products fit int64."""
    total = np.zeros((*image.shape[:2], *size), np.int64)
    for tap, at in enumerate(window.positions()):
        total += seen(image, window, at, size) * filter[:, tap].reshape(-1, *(1,) * len(size))
    return total % PRIME
