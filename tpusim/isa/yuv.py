"""Frames in YUV 4:2:0: where brightness and colours lie in memory, and the bytes of an image.

Sources: interface 3.3 (formula, alignment), and frames of TPU-MLIR (U-74, tests/test_frames.py).
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tpusim.isa.layout import align

YuvFormat = Literal["planar", "nv12", "nv21"]


@dataclass(frozen=True)
class YuvPlanes:
    """A plane of brightness, then u and v of every second pixel of every second row: in two planes, or alternating.

    height, width: in pixels, both even. row_bytes: of the first plane. channel_align: planes begin at its multiples.
    """

    format: YuvFormat
    height: int
    width: int
    row_bytes: int
    channel_align: int

    @property
    def color_row(self) -> int:
        """Bytes from one row of colours to the next."""
        return self.row_bytes // 2 if self.format == "planar" else self.row_bytes

    @property
    def places(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(first byte, step between pixels) of u and of v."""
        u = align(self.height * self.row_bytes, self.channel_align)
        if self.format == "planar":
            return (u, 1), (align(u + self.height // 2 * self.color_row, self.channel_align), 1)
        return ((u, 2), (u + 1, 2)) if self.format == "nv12" else ((u + 1, 2), (u, 2))

    @property
    def total(self) -> int:
        """Bytes of a frame."""
        last = max(self.places[0][0], self.places[1][0]) if self.format == "planar" else min(p for p, _ in self.places)
        return align(last + self.height // 2 * self.color_row, self.channel_align)

    def parts(self, frames: Any) -> tuple[Any, Any, Any]:
        """Y (batch, height, width), u, v (batch, height / 2, width / 2) of bytes (batch, total), NumPy's or JAX's."""
        rows = frames[:, : self.height * self.row_bytes].reshape(-1, self.height, self.row_bytes)
        found = [rows[:, :, : self.width]]
        first = min(p for p, _ in self.places)
        for begin, step in self.places:
            base = begin if self.format == "planar" else first
            size = self.height // 2 * self.color_row
            colors = frames[:, base : base + size].reshape(-1, self.height // 2, self.color_row)
            found.append(colors[:, :, begin - base : begin - base + step * (self.width // 2) : step])
        return found[0], found[1], found[2]

    def laid_out(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Bytes (batch, total) of images (batch, 3, height, width) in the order b, g, r; zeros fill up."""
        b, g, r = np.moveaxis(images.astype(np.float64), 1, 0)
        y = 0.2569 * r + 0.5044 * g + 0.0979 * b + 16
        u = -0.1483 * r - 0.2911 * g + 0.4394 * b + 128
        v = 0.4394 * r - 0.3679 * g - 0.0715 * b + 128
        found = np.zeros((len(images), self.total), np.uint8)
        parts = self.parts(found)  # views of it
        for part, values in zip(parts, (y, u[:, ::2, ::2], v[:, ::2, ::2]), strict=True):
            part[...] = np.clip(np.trunc(values), 0, 255).astype(np.uint8)
        return found
