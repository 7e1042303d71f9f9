"""A view as a few strided boxes of bytes, so that memory is read and written without per-element work.

The offsets of n, c, h and w add up (hardware.md 2.1, 2.5). Two axes are split in two: channels into (row, lane), batch
items into (word, byte group in the word). A start lane or a partly used last row or word adds a box and
never lengthens one: a box covers only bytes of the view.
"""

from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.ir.packing import PER_BYTE
from tpusim.isa.layout import element_bytes, gmem_strides, lmem_strides
from tpusim.isa.region import View, byte_view, is_packed, itemsize, pair_axis

Index = tuple[slice | EllipsisType, ...]


@dataclass(frozen=True)
class Block:
    """One box: `shape` elements at byte `offset` with byte `strides`.

    It holds tensor[index], with the batch and channel axes split in two.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    index: Index

    def last(self) -> int:
        """Byte offset of the box's last element."""
        return self.offset + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class _Part:
    """A range of one tensor axis, stored as a box of two memory axes."""

    index: slice
    sizes: tuple[int, int]
    start: tuple[int, int]


def _split(count: int, width: int, first: int = 0) -> list[_Part]:
    """Cut 0..count-1 into boxes of (outer, inner < width); item i lies at outer, inner = divmod(first + i, width)."""
    parts: list[_Part] = []
    done = 0
    if first > 0:
        done = min(count, width - first)
        parts.append(_Part(slice(0, done), (1, done), (0, first)))
    outer = len(parts)
    full = (count - done) // width
    if full > 0:
        parts.append(_Part(slice(done, done + full * width), (full, width), (outer, 0)))
        done += full * width
    if done < count:
        parts.append(_Part(slice(done, count), (1, count - done), (outer + full, 0)))
    return parts


def _laned(view: View, chip: ChipSpec, lane_bytes: int) -> list[Block]:
    unit, size = element_bytes(view), itemsize(view.dtype)
    pitch = lane_bytes if view.memory == "lmem" else view.lane_pitch
    n, c, h, w = view.shape
    word_stride, row_stride, h_stride, w_stride = (stride * unit for stride in lmem_strides(view, chip))
    return [
        Block(
            offset=view.address
            + batch.start[0] * word_stride
            + batch.start[1] * size
            + channel.start[0] * row_stride
            + channel.start[1] * pitch,
            shape=(*batch.sizes, *channel.sizes, h, w),
            strides=(word_stride, size, row_stride, pitch, h_stride, w_stride),
            index=(batch.index, channel.index),
        )
        for batch in _split(n, view.interleave)
        for channel in _split(c, chip.lanes, view.lane)
    ]


def _unlaned(view: View) -> list[Block]:
    unit, size = element_bytes(view), itemsize(view.dtype)
    strides = tuple(stride * unit for stride in gmem_strides(view))
    axis = view.batch_axis
    if view.interleave == 1 or axis >= len(view.shape):
        return [Block(view.address, view.shape, strides, (...,))]
    before, after = tuple(slice(None) for _ in range(axis)), axis + 1
    return [
        Block(
            offset=view.address + batch.start[0] * strides[axis] + batch.start[1] * size,
            shape=(*view.shape[:axis], *batch.sizes, *view.shape[after:]),
            strides=(*strides[:axis], strides[axis], size, *strides[after:]),
            index=(*before, batch.index),
        )
        for batch in _split(view.shape[axis], view.interleave)
    ]


@lru_cache(1 << 16)
def blocks(view: View, chip: ChipSpec, lane_bytes: int | None = None) -> tuple[Block, ...]:
    """The boxes of `view`; offsets are absolute in GMEM, and lane * lane bytes + address in LMEM. Empty: no box.

    For 4-bit elements the boxes are of bytes. lane_bytes: the chip's by default; fewer for a memory that stores only
    the first bytes of every lane. The result is cached, because every check and the memory ask for one view.
    """
    if 0 in view.shape:
        return ()
    view = byte_view(view)
    if not view.laned:
        return tuple(_unlaned(view))
    return tuple(_laned(view, chip, chip.lmem_bytes if lane_bytes is None else lane_bytes))


def offsets(view: View, chip: ChipSpec) -> np.ndarray:
    """Byte offset of every element of `view`, int64 in the view's shape; counted as in `blocks`."""
    stored = byte_view(view)
    found = np.zeros(stored.shape, np.int64)
    for block in blocks(stored, chip):
        axes = np.ogrid[tuple(slice(size) for size in block.shape)]
        at = sum((axis * stride for axis, stride in zip(axes, block.strides, strict=True)), np.int64(block.offset))
        found[block.index] = np.broadcast_to(at, block.shape).reshape(found[block.index].shape)
    if not is_packed(view.dtype):
        return found
    axis = pair_axis(view)
    return np.repeat(found, PER_BYTE, axis)[(slice(None),) * axis + (slice(view.shape[axis]),)]


def contiguous_runs(block: Block, element: int, gap: int) -> tuple[int, int]:
    """(number, bytes) of the contiguous runs of a box, its axes walked from the smallest stride up.

    Runs that start at most `gap` bytes apart count as one: the same burst fetches them.
    """
    run, count = element, 1
    for stride, size in sorted(zip(block.strides, block.shape, strict=True)):
        if size == 1:
            continue
        if count == 1 and stride <= max(run, gap):
            run += (size - 1) * stride
        else:
            count *= size
    return count, run
