"""Resized uint8 images, as OpenCV's `resize`: bilinear, in 11-bit fixed point.

A position of the result lies between two positions of the source; their weights are rounded to 1/2048 (ties to even).
Rows are interpolated first, then columns. The sixteen low bits of each product with a column's weight are dropped, and
the sum is rounded by two more bits. Half the size in both directions is the rounded mean of four.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpusim.images.decode import Pixels

Ints = NDArray[np.int64]
ONE = 2048
"""A weight of 1 in fixed point (11 bits of fraction)."""


class Taps(NamedTuple):
    """For each position of the result: the two positions of the source, and their weights."""

    first: Ints
    second: Ints
    weight_first: Ints
    weight_second: Ints


def resize(image: Pixels, height: int, width: int) -> Pixels:
    """(h, w) or (h, w, c) uint8 in another size."""
    h, w = image.shape[:2]
    if (h, w) == (height, width):
        return image
    if (h, w) == (2 * height, 2 * width):
        wide = image.astype(np.int64)
        four = wide[::2, ::2] + wide[1::2, ::2] + wide[::2, 1::2] + wide[1::2, 1::2]
        return (four + 2 >> 2).astype(np.uint8)
    columns, rows = _taps(w, width, ends=True), _taps(h, height, ends=False)
    flat = image.reshape(h, w, -1).astype(np.int64)
    left = flat[:, columns.first] * columns.weight_first[:, None]
    across = left + flat[:, columns.second] * columns.weight_second[:, None]
    upper = rows.weight_first[:, None, None] * (across[rows.first] >> 4) >> 16
    lower = rows.weight_second[:, None, None] * (across[rows.second] >> 4) >> 16
    return (upper + lower + 2 >> 2).astype(np.uint8).reshape(height, width, *image.shape[2:])


def _taps(source: int, target: int, *, ends: bool) -> Taps:
    """The taps along an axis. ends: a position outside the source uses its first or last element with full weight."""
    scale = 1.0 / (target / source)
    where = ((np.arange(target) + 0.5) * scale - 0.5).astype(np.float32)
    first = np.floor(where).astype(np.int64)
    part = where - first.astype(np.float32)
    if ends:
        part = np.where((first < 0) | (first >= source - 1), np.float32(0), part)
    weights = (np.rint(share * np.float32(ONE)).astype(np.int64) for share in (np.float32(1) - part, part))
    return Taps(np.clip(first, 0, source - 1), np.clip(first + 1, 0, source - 1), *weights)


def letterbox(image: Pixels, height: int, width: int, *, pad_value: int, centered: bool) -> Pixels:
    """Scale to fit inside the size with the same aspect ratio, and pad with pad_value: centred, or at the top left."""
    h, w = image.shape[:2]
    scale = min(width / w, height / h)
    small = resize(image, max(int(h * scale), 1), max(int(w * scale), 1))
    top, left = ((height - small.shape[0]) // 2, (width - small.shape[1]) // 2) if centered else (0, 0)
    found = np.full((height, width, *image.shape[2:]), pad_value, np.uint8)
    found[top : top + small.shape[0], left : left + small.shape[1]] = small
    return found


def short_side(image: Pixels, height: int, width: int) -> Pixels:
    """Scale to cover the size with the same aspect ratio, and crop to the middle."""
    h, w = image.shape[:2]
    scale = max(width / w, height / h)
    large = resize(image, max(int(h * scale), height), max(int(w * scale), width))
    top, left = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
    return large[top : top + height, left : left + width]


def center_crop(image: Pixels, height: int, width: int) -> Pixels:
    """The middle of an image that is at least so large; halves are rounded down one by one."""
    top, left = image.shape[0] // 2 - height // 2, image.shape[1] // 2 - width // 2
    return image[top : top + height, left : left + width]
