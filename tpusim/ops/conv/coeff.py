"""The layout of conv coefficients on the chip (docs/spec/hardware.md 2.3).

A filter row is one output channel: element (ic, k) is at (ic div P)*(kh*kw*P) + k*P + ic mod P; unused places are zero.
Merged INT8 coefficients are one row per lane, [requant | bias | filter]; each block has an entry for every output
channel of the lane.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.ir.packing import PACKED_BITS, pack, unpack
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import View


def filter_row(ic: int, kernel: int, packing: int) -> int:
    """Elements of a packed filter row, one output channel."""
    return align(ic, packing) * kernel


def pack_filter(filter: np.ndarray, packing: int) -> np.ndarray:
    """The filter (oc, ic, kernel axes) as packed rows (oc, K)."""
    oc, ic, *kernel = filter.shape
    taps = prod(kernel)
    padded = np.zeros((oc, align(ic, packing), taps), filter.dtype)
    padded[:, :ic] = filter.reshape(oc, ic, taps)
    blocks = padded.reshape(oc, -1, packing, taps).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(blocks).reshape(oc, -1)


def unpack_filter(rows: np.ndarray, ic: int, kernel: tuple[int, ...], packing: int) -> np.ndarray:
    """The filter (oc, ic, kernel axes) of packed rows (oc, K): the inverse of `pack_filter`."""
    oc = rows.shape[0]
    blocks = rows.reshape(oc, -1, prod(kernel), packing).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(blocks.reshape(oc, -1, *kernel)[:, :ic])


def ungrouped_filter(filter: np.ndarray, groups: int) -> np.ndarray:
    """A grouped filter (oc, ic/groups, kernel axes) as (oc, ic, kernel axes), zeros for channels of other groups."""
    oc, each = filter.shape[:2]
    found = np.zeros((oc, groups, each, *filter.shape[2:]), filter.dtype)
    channels = np.arange(int(oc))
    found[channels, channels // (oc // groups)] = filter
    return found.reshape(oc, groups * each, *filter.shape[2:])


def merge_kernel(filter: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The filter (oc, ic, kh, kw) as (oc, ic * merged, other axes): positions along merged axes become channels."""
    moved = np.moveaxis(filter, [2 + axis for axis in axes], range(2, 2 + len(axes)))
    return moved.reshape(len(filter), -1, *moved.shape[2 + len(axes) :])


def split_kernel(merged: np.ndarray, kernel: tuple[int, ...], axes: Sequence[int]) -> np.ndarray:
    """The filter (oc, ic, kh, kw): the inverse of `merge_kernel`."""
    along, left = [kernel[axis] for axis in axes], [size for axis, size in enumerate(kernel) if axis not in axes]
    apart = merged.reshape(len(merged), -1, *along, *left)
    return np.moveaxis(apart, range(2, 2 + len(axes)), [2 + axis for axis in axes])


def _bytes(rows: np.ndarray) -> np.ndarray:
    """Rows of a matrix as rows of bytes."""
    return np.ascontiguousarray(rows).view(np.uint8)


@dataclass(frozen=True)
class MergedLayout:
    """The positions of the blocks of merged coefficients in the row of a lane; offsets and sizes are bytes."""

    channels: int
    row_elements: int
    """Elements of a channel's packed filter."""
    requant_words: int
    requant_pitch_words: int
    """int32 words between the requant entries of two channels of a lane."""
    bias_offset: int
    filter_offset: int
    row_bytes: int
    rows: int
    bits: int = 8
    """Bits of an element of the filter; two of 4 bits share a byte."""

    @property
    def filter_bytes(self) -> int:
        """Bytes of a channel's packed filter."""
        return self.row_elements * self.bits // 8

    @staticmethod
    def packed_type(kind: str) -> str:
        """The type of elements of 4 bits in bytes of a type."""
        return "i4" if kind == "i8" else "u4"

    @classmethod
    def of(
        cls, channels: int, row_elements: int, chip: ChipSpec, *, with_bias: bool, depthwise: bool, bits: int = 8
    ) -> "MergedLayout":
        """The layout for `channels` output channels on `chip`. bits: of an element of the filter."""
        groups = ceil_div(channels, chip.lanes)
        words = chip.requant_words
        pitch = chip.eu_bytes // 4 if words == 3 else words
        requant_bytes = ((groups - 1) * pitch + words) * 4
        bias_offset = align(requant_bytes, 4)
        end = bias_offset + groups * 4 if with_bias else requant_bytes
        filter_offset = end if depthwise and with_bias and words == 3 else align(end, chip.eu_bytes)
        row_bytes = filter_offset + groups * (row_elements * bits // 8)
        rows = min(channels, chip.lanes)
        return cls(channels, row_elements, words, pitch, bias_offset, filter_offset, row_bytes, rows, bits)

    def pack(
        self, filter_rows: np.ndarray, bias: np.ndarray | None, multiplier: np.ndarray, rshift: np.ndarray, zero: int
    ) -> np.ndarray:
        """All coefficients as (rows, row_bytes) bytes, in the dtype of the filter."""
        image = np.zeros((self.rows, self.row_bytes), np.uint8)
        requant = np.stack([multiplier, -rshift, np.full_like(multiplier, zero)], axis=1).astype("<i4")
        if self.requant_words == 2:
            low = (-rshift) & 0xFF
            high = (np.full_like(rshift, zero) & 0xFFFF) << 16
            requant = np.stack([multiplier, (low | high).astype(np.uint32).view(np.int32)], axis=1).astype("<i4")
        group, lane = np.divmod(np.arange(self.channels), self.rows)

        def put(offset: int, pitch: int, entries: np.ndarray) -> None:
            image[lane[:, None], offset + group[:, None] * pitch + np.arange(entries.shape[1])] = entries

        put(0, self.requant_pitch_words * 4, _bytes(requant[:, : self.requant_words]))
        if bias is not None:
            put(self.bias_offset, 4, _bytes(bias.astype("<i4")[:, None]))
        packed = pack(filter_rows) if self.bits == PACKED_BITS else _bytes(filter_rows)
        for first in range(0, self.channels, self.rows):
            rows = packed[first : first + self.rows]
            start = self.filter_offset + first // self.rows * self.filter_bytes
            image[: len(rows), start : start + self.filter_bytes] = rows
        return image.view(filter_rows.dtype)

    def unpack(self, image: np.ndarray, *, with_bias: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """(filter rows, bias or None, requant words (channels, words)): the inverse of `pack`."""
        stored, bias, requant = self.bytes_of(image.view(np.uint8), with_bias=with_bias)
        if self.bits == PACKED_BITS:
            rows = unpack(stored, (self.channels, self.row_elements), signed=image.dtype.kind == "i")
        else:
            rows = stored.view(image.dtype)
        return rows, None if bias is None else bias.view("<i4").reshape(-1), requant.view("<i4")

    def bytes_of(self, image: np.ndarray, *, with_bias: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """(filter, bias or None, requant) of an image with an item for each byte, (channels, bytes) each."""

        def block(offset: int, pitch: int, size: int) -> np.ndarray:
            data = np.empty((self.channels, size), image.dtype)
            for first in range(0, self.channels, self.rows):
                start, rows = offset + first // self.rows * pitch, min(self.rows, self.channels - first)
                part = image[:rows, start : start + size]
                if part.shape[1] != size:  # a layout that is none: other bytes of the row
                    part = image[:rows].take(range(start, start + size), 1, mode="clip")
                data[first : first + rows] = part
            return data

        requant = block(0, self.requant_pitch_words * 4, self.requant_words * 4)
        bias = block(self.bias_offset, 4, 4) if with_bias else None
        return block(self.filter_offset, self.filter_bytes, self.filter_bytes), bias, requant

    def views(self, base: View, *, with_bias: bool) -> tuple[View, View | None, View]:
        """(filter, bias or None, requant table) as views of the bytes of `base`, in LMEM or as its image in GMEM."""
        pitch = self.row_bytes if base.memory == "gmem" else 0

        def view(offset: int, width: int, dtype: str, row: int) -> View:
            return View(
                base.memory, base.address + offset, (1, self.channels, 1, width), dtype,  # type: ignore[arg-type]
                "strided", (0, row, width, 1), lane_pitch=pitch,
            )  # fmt: skip

        kind = self.packed_type(base.dtype) if self.bits == PACKED_BITS else base.dtype
        filter = view(self.filter_offset, self.row_elements, kind, self.row_elements)
        bias = view(self.bias_offset, 1, "i32", 1) if with_bias else None
        return filter, bias, view(0, self.requant_words, "i32", self.requant_pitch_words)


def foldable_shape(rows: int, row_elements: int, packing: int) -> tuple[int, int, int, int]:
    """(1, rows, h, w) with h*w = row_elements; h is 1, or in rows above 65535 elements the largest divisor up to P."""
    if row_elements <= 65535:
        return 1, rows, 1, row_elements
    height = max(d for d in range(1, max(packing, 2) + 1) if row_elements % d == 0)
    return 1, rows, height, row_elements // height


# ----------------------------------------------------------------------------------------------- rows of a channel


def pack_channels(bias: np.ndarray | None, multiplier: np.ndarray, rshift: np.ndarray) -> np.ndarray:
    """(1, oc, 1, 9) bytes: int32 bias, int32 multiplier, int8 shift per channel, little endian; 5 without bias."""
    words = [multiplier] if bias is None else [bias, multiplier]
    columns = [np.ascontiguousarray(w.astype("<i4")).view(np.uint8).reshape(-1, 4) for w in words]
    columns.append(rshift.astype(np.int8).view(np.uint8).reshape(-1, 1))
    packed = np.concatenate(columns, axis=1)
    return packed.reshape(1, len(packed), 1, -1)


def unpack_channels(packed: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """(bias or None, multiplier, shift): the inverse of `pack_channels`."""
    rows = np.ascontiguousarray(packed).reshape(packed.shape[1], -1)
    words = np.ascontiguousarray(rows[:, :-1]).view("<i4")
    bias = words[:, 0] if words.shape[1] == 2 else None
    return bias, words[:, -1].astype(np.int64), rows[:, -1].view(np.int8).astype(np.int64)


def bias_planes(bias: np.ndarray) -> np.ndarray:
    """An f32 bias (oc,) as two planes of 16 bits (2, oc, 1, 1): the upper halves, then the lower ones."""
    bits = np.ascontiguousarray(bias, np.float32).view(np.uint32)
    return np.stack([bits >> 16, bits & 0xFFFF]).astype(np.uint16).reshape(2, -1, 1, 1)


def bias_from_planes(planes: np.ndarray) -> np.ndarray:
    """The f32 bias of two planes of 16 bits: the inverse of `bias_planes`."""
    upper, lower = planes.reshape(2, -1).astype(np.uint32)
    return ((upper << 16) | lower).view(np.float32)
