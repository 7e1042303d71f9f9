"""Sliding windows of convolution and pooling over padded images."""

from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """Kernel, strides, dilations and pads (top, left, bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int] = (1, 1)

    def is_pointwise(self) -> bool:
        """Whether every output pixel sees one input pixel and nothing is padded."""
        return self.kernel == (1, 1) and not any(self.pads)


def padded(image: np.ndarray, window: Window, value: float, dtype: np.dtype) -> np.ndarray:
    """`image` (n, c, h, w) converted to `dtype`, with the window's pads filled with `value`."""
    top, left, bottom, right = window.pads
    if not any(window.pads):
        return image.astype(dtype, copy=False)
    n, c, h, w = image.shape
    out = np.full((n, c, h + top + bottom, w + left + right), value, dtype)
    out[:, :, top : top + h, left : left + w] = image
    return out


def tap(image: np.ndarray, window: Window, at: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """The pixel that kernel position `at` contributes to each of `size` outputs: a view of the padded image."""
    starts = [position * dilation for position, dilation in zip(at, window.dilations, strict=True)]
    rows, columns = (
        slice(start, start + (count - 1) * stride + 1, stride)
        for start, count, stride in zip(starts, size, window.strides, strict=True)
    )
    return image[:, :, rows, columns]


def patches(image: np.ndarray, window: Window, rows: slice, width: int) -> np.ndarray:
    """im2col of one padded image (c, h, w): (c, kh*kw, rows*width), for the output rows of `rows`."""
    (kh, kw), (sh, sw), (dh, dw) = window.kernel, window.strides, window.dilations
    c_step, h_step, w_step = image.strides
    count = rows.stop - rows.start
    view = np.lib.stride_tricks.as_strided(
        image[:, rows.start * sh :],
        (image.shape[0], kh, kw, count, width),
        (c_step, dh * h_step, dw * w_step, sh * h_step, sw * w_step),
        writeable=False,
    )
    return view.reshape(image.shape[0], kh * kw, count * width)
