"""Whether two views share a byte, exactly, from their strides alone.

Both views are unions of boxes: offset + sum of index * stride. Two boxes meet if the difference of their offsets is a
sum of differences of indices, each within its bounds; axes are tried from the largest stride down; for usual
tensors the remaining axes leave only one or two candidates for the difference.
"""

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa.blocks import Block, blocks, offsets
from tpusim.isa.region import View, itemsize

_MOST_TRIALS = 10_000
"""Trials after which strides count as strange, and bytes are enumerated instead."""

Axis = tuple[int, int, int]
"""Stride, and the largest index of each box."""


class _Strange(Exception):
    """Strides with too many sums to try."""


def common_byte(one: View, other: View, chip: ChipSpec) -> int | None:
    """A byte that both views of one memory share, as an offset of `isa.blocks`; None if they share none."""
    try:
        for first in blocks(one, chip):
            for second in blocks(other, chip):
                found = _Search(_axes(first, itemsize(one.dtype), second, itemsize(other.dtype))).meet(
                    second.offset - first.offset
                )
                if found is not None:
                    return first.offset + found
    except _Strange:
        shared = np.intersect1d(_bytes(one, chip), _bytes(other, chip))
        return int(shared[0]) if shared.size else None
    return None


def _bytes(view: View, chip: ChipSpec) -> np.ndarray:
    return (offsets(view, chip).reshape(-1, 1) + np.arange(itemsize(view.dtype))).reshape(-1)


def _axes(first: Block, first_bytes: int, second: Block, second_bytes: int) -> list[Axis]:
    """The strides of both boxes, the largest first; axes of one stride make one axis."""
    reach: dict[int, list[int]] = {1: [first_bytes - 1, second_bytes - 1]}
    for side, block in enumerate((first, second)):
        for size, stride in zip(block.shape, block.strides, strict=True):
            if size > 1 and stride > 0:
                reach.setdefault(stride, [0, 0])[side] += size - 1
    return [(stride, reach[stride][0], reach[stride][1]) for stride in sorted(reach, reverse=True)]


class _Search:
    """Searches indices of the first box minus indices of the second that sum to a given distance."""

    def __init__(self, axes: list[Axis]) -> None:
        self._axes = axes
        self._trials = 0
        below, above = 0, 0
        self._rest: list[tuple[int, int]] = []
        """Per axis: the lowest and highest sum of the axes after it."""
        for stride, most, least in reversed(axes):
            self._rest.append((below, above))
            below, above = below - least * stride, above + most * stride
        self._rest.reverse()

    def meet(self, distance: int, at: int = 0) -> int | None:
        """Bytes from the first box's start to a byte that both boxes share. Raises _Strange."""
        if at == len(self._axes):
            return 0 if distance == 0 else None
        self._trials += 1
        if self._trials > _MOST_TRIALS:
            raise _Strange
        (stride, most, least), (below, above) = self._axes[at], self._rest[at]
        lowest, highest = max(-((above - distance) // stride), -least), min((distance - below) // stride, most)
        for difference in range(lowest, highest + 1):
            found = self.meet(distance - difference * stride, at + 1)
            if found is not None:
                return found + max(difference, 0) * stride
        return None
