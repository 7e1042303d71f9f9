"""The table by which `tpu.Upsample` gathers in local memory: the source element of each place of a slice."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, product
from typing import ClassVar

import numpy as np

from tpusim.isa.layout import ceil_div
from tpusim.ops.framework.logical import Window, Windows


@dataclass(frozen=True)
class IndexTable:
    """For each place of a slice of the result, the place of its source in the operand's slice.

    Places are counted row by row; the entry of place p is in lane p mod lanes. The parts for the slices follow each
    other along h or, if only columns are cut, along w. Decision: if both rows and columns are cut, each row of slices
    has a part with one column per slice.
    """

    operand: ClassVar[int] = 1

    factors: tuple[int, int]
    lanes: int

    def reaches(self, h: Windows, w: Windows) -> bool:
        """Whether 16 bits can index all elements of the operand's plane that a slice of the result needs."""
        rows, columns = (
            max(_sources(window, factor)[1] for window in windows)
            for windows, factor in zip((h, w), self.factors, strict=True)
        )
        return rows * columns <= 1 << 16

    def windows(self, h: Windows, w: Windows) -> tuple[Windows, Windows]:
        """The windows of the table along h and w, one for each window of the result."""
        if len(h) == 1 and len(w) > 1:
            return ((0, 1),), _in_turn(ceil_div(h[0][1] * columns, self.lanes) for _, columns in w)
        widest = max(columns for _, columns in w)
        rows = _in_turn(ceil_div(count * widest, self.lanes) for _, count in h)
        return rows, tuple((i, 1) for i in range(len(w)))

    def data(self, h: Windows, w: Windows) -> np.ndarray:
        """The table (1, lanes, h, w) for the windows of the result: u16 in the bits of i16; unused entries are 0."""
        rows, columns = self.windows(h, w)
        table = np.zeros((1, self.lanes, sum(rows[-1]), sum(columns[-1])), np.uint16)
        for (window, (top, height)), (other, (left, width)) in product(
            zip(h, rows, strict=True), zip(w, columns, strict=True)
        ):
            part = np.zeros(height * width * self.lanes, np.uint16)
            places = self._places(window, other)
            part[: places.size] = places
            table[0, :, top : top + height, left : left + width] = part.reshape(height, width, self.lanes).transpose(
                2, 0, 1
            )
        return table.view(np.int16)

    def _places(self, h: Window, w: Window) -> np.ndarray:
        """The source element in the operand's slice for every place of one slice of the result."""
        (rows, _), (columns, width) = (_sources(*pair) for pair in zip((h, w), self.factors, strict=True))
        return (rows[:, None] * width + columns).reshape(-1)


def _sources(window: Window, factor: int) -> tuple[np.ndarray, int]:
    """(source index in the operand's slice for each index in the result's slice, length of the operand's slice)."""
    sources = (window[0] + np.arange(window[1])) // factor - window[0] // factor
    return sources, int(sources[-1]) + 1


def _in_turn(sizes: Iterator[int]) -> Windows:
    """Adjacent windows of these sizes."""
    ends = list(accumulate(sizes))
    return tuple(zip((0, *ends), (end - start for start, end in zip((0, *ends), ends, strict=False)), strict=False))
