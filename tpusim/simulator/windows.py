"""Sliding windows of convolution and pooling over padded images and volumes."""

from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """Kernel, strides, dilations and inserts, one entry per window axis; pads are all befores, then all afters."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...] = (1, 1)
    inserts: tuple[int, ...] = (0, 0)

    def is_pointwise(self) -> bool:
        """Whether every output pixel sees one input pixel and nothing is padded or inserted."""
        return self.kernel == (1, 1) and not any(self.pads) and not any(self.inserts)

    def plane(self) -> "Window":
        """The two-dimensional window of one depth of a volume."""
        (_, top, left, _, bottom, right) = self.pads
        rest = self.kernel[1:], self.strides[1:], (top, left, bottom, right), self.dilations[1:]
        return Window(*rest, self.inserts[1:])


def padded(image: np.ndarray, window: Window, value: float, dtype: np.dtype) -> np.ndarray:
    """`image` (n, c, spatial axes) as `dtype`, with `value` in the window's pads and where elements are inserted."""
    axes = len(window.kernel)
    if not any(window.pads) and not any(window.inserts):
        return image.astype(dtype, copy=False)
    shape, places = list(image.shape[:2]), [slice(None), slice(None)]
    for i, size in enumerate(image.shape[2:]):
        before, after, step = window.pads[i], window.pads[axes + i], window.inserts[i] + 1
        widened = (size - 1) * step + 1
        shape.append(before + widened + after)
        places.append(slice(before, before + widened, step))
    out = np.full(shape, value, dtype)
    out[tuple(places)] = image
    return out


def tap(image: np.ndarray, window: Window, at: tuple[int, ...], size: tuple[int, ...]) -> np.ndarray:
    """The element that kernel position `at` contributes to each of `size` outputs: a view of the padded image."""
    places = [slice(None), slice(None)]
    for position, dilation, count, stride in zip(at, window.dilations, size, window.strides, strict=True):
        start = position * dilation
        places.append(slice(start, start + (count - 1) * stride + 1, stride))
    return image[tuple(places)]


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
