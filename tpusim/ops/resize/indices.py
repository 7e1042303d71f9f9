"""The table by which `tpu.Upsample` gathers in local memory: which element goes to each place of a slice."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, product
from typing import ClassVar

import numpy as np

from tpusim.isa.layout import ceil_div
from tpusim.ops.framework.logical import Window, Windows


@dataclass(frozen=True)
class IndexTable:
    """Places of an operand's slice by places of the result's, counted row by row; place p lies in lane p mod lanes.

    The parts for the slices follow each other along h or, where only columns are cut, along w. Decision: where rows and
    columns are cut, a part for a row of slices has one column for each of them.
    """

    operand: ClassVar[int] = 1

    factors: tuple[int, int]
    lanes: int

    def reaches(self, h: Windows, w: Windows) -> bool:
        """Whether 16 bits number every element that a slice of the result needs of the operand's plane."""
        rows, columns = (
            max(_sources(window, factor)[1] for window in windows)
            for windows, factor in zip((h, w), self.factors, strict=True)
        )
        return rows * columns <= 1 << 16

    def windows(self, h: Windows, w: Windows) -> tuple[Windows, Windows]:
        """Its windows along h and w for those of the result, as many along each axis."""
        if len(h) == 1 and len(w) > 1:
            return ((0, 1),), _in_turn(ceil_div(h[0][1] * columns, self.lanes) for _, columns in w)
        widest = max(columns for _, columns in w)
        rows = _in_turn(ceil_div(count * widest, self.lanes) for _, count in h)
        return rows, tuple((i, 1) for i in range(len(w)))

    def data(self, h: Windows, w: Windows) -> np.ndarray:
        """(1, lanes, h, w) i16 for the windows of the result, their bits unsigned; what no place needs is 0."""
        rows, columns = self.windows(h, w)
        found = np.zeros((1, self.lanes, sum(rows[-1]), sum(columns[-1])), np.uint16)
        for (window, (top, height)), (other, (left, width)) in product(
            zip(h, rows, strict=True), zip(w, columns, strict=True)
        ):
            part = np.zeros(height * width * self.lanes, np.uint16)
            places = self._places(window, other)
            part[: places.size] = places
            found[0, :, top : top + height, left : left + width] = part.reshape(height, width, self.lanes).transpose(
                2, 0, 1
            )
        return found.view(np.int16)

    def _places(self, h: Window, w: Window) -> np.ndarray:
        """For every place of one slice of the result the element of the operand's slice that it needs."""
        (rows, _), (columns, width) = (_sources(*pair) for pair in zip((h, w), self.factors, strict=True))
        return (rows[:, None] * width + columns).reshape(-1)


def _sources(window: Window, factor: int) -> tuple[np.ndarray, int]:
    """(index of the operand's element in its slice by index in the result's, elements of the operand's slice)."""
    found = (window[0] + np.arange(window[1])) // factor - window[0] // factor
    return found, int(found[-1]) + 1


def _in_turn(sizes: Iterator[int]) -> Windows:
    """Windows of these sizes, one behind the other."""
    ends = list(accumulate(sizes))
    return tuple(zip((0, *ends), (end - start for start, end in zip((0, *ends), ends, strict=False)), strict=False))
