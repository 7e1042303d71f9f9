"""Byte strides of every layout, and the byte range a view covers.

All formulas are those of hardware.md: channel c of a tensor with start lane s lives in lane (s+c) mod NPU, row
(s+c) div NPU (2.1); 4N/2N interleaves 4/B batch items in a 4-byte word (2.5). Offsets of the axes add up, so a view is
a start address plus independent terms of n, c, h and w.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
from tpusim.ir.packing import PER_BYTE, packed_shape
from tpusim.isa.region import DType, Memory, View, byte_shape, byte_view, is_packed, itemsize, pair_axis

_MANY_TILES = 200
"""A product of more tiles than this stores int32 results for one row of lanes only (layer_group.md 9.3)."""


def ceil_div(a: int, b: int) -> int:
    """The quotient a / b rounded up."""
    return -(-a // b)


def align(a: int, b: int) -> int:
    """`a` rounded up to a multiple of `b` (AL of the specification)."""
    return ceil_div(a, b) * b


def channel_stride(h: int, w: int, dtype: DType, chip: ChipSpec, *, aligned: bool) -> int:
    """Cs: elements from one channel row of a lane to the next (hardware.md 2.1)."""
    if is_packed(dtype):
        _, _, h, w = byte_shape(View("lmem", 0, (1, 1, h, w), dtype, "compact"))
        return PER_BYTE * channel_stride(h, w, "u8", chip, aligned=aligned)
    return align(h * w, chip.eu_elements(itemsize(dtype))) if aligned else h * w


def lmem_strides(view: View, chip: ChipSpec) -> tuple[int, int, int, int]:
    """(n, row, h, w) strides of a laned view, in elements (in 4-byte words if interleaved)."""
    if view.layout == "strided":
        n, row, h, w = view.strides or (0, 0, 0, 0)
        return n, row, h, w
    if is_packed(view.dtype):
        n, row, h, w = _element_strides(view, lmem_strides(byte_view(view), chip))
        return n, row, h, w
    _, c, h, w = view.shape
    cs = channel_stride(h, w, view.dtype, chip, aligned=view.layout == "aligned")
    return ceil_div(view.lane + c, chip.lanes) * cs, cs, w, 1


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of `shape`, in elements."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def gmem_sizes(view: View) -> tuple[int, ...]:
    """Axis lengths of an unlaned view, the batch axis counted in words if interleaved."""
    return tuple(
        ceil_div(size, view.interleave) if axis == view.batch_axis else size for axis, size in enumerate(view.shape)
    )


def gmem_strides(view: View) -> tuple[int, ...]:
    """Strides of an unlaned view, one per axis, in elements (in 4-byte words if interleaved)."""
    if view.layout == "strided" and view.strides is not None:
        return view.strides
    if is_packed(view.dtype):
        return _element_strides(view, gmem_strides(byte_view(view)))
    return dense_strides(gmem_sizes(view))


def _element_strides(view: View, strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in 4-bit elements from those in bytes: 1 within a row; rows begin at whole bytes."""
    return tuple(1 if axis == pair_axis(view) else stride * PER_BYTE for axis, stride in enumerate(strides))


def element_bytes(view: View) -> int:
    """Bytes of a stride of 1: the element, or the 4-byte word of interleaved batches.

    Raises CommandError for 4-bit elements; `distance_bytes` counts those.
    """
    if is_packed(view.dtype):
        raise CommandError(f"{view.dtype} view at {view.address:#x}: an element of whole bytes is required")
    return itemsize(view.dtype) * view.interleave


def distance_bytes(view: View, elements: int) -> int:
    """Bytes from a view's start to the element (4-byte words if interleaved). CommandError for half a byte."""
    if not is_packed(view.dtype):
        return elements * element_bytes(view)
    if elements % PER_BYTE:
        raise CommandError(
            f"{view.dtype} view {elements:,} elements after {view.address:#x}: it would start at half a byte; cut and "
            "slice 4-bit tensors at even elements"
        )
    return elements // PER_BYTE


def lmem_bytes(
    shape: tuple[int, int, int, int], dtype: DType, chip: ChipSpec, *, aligned: bool = True, packed: bool = True
) -> int:
    """Bytes per lane that an (n, c, h, w) tensor at start lane 0 occupies (hardware.md 2.1, 2.5).

    packed: the tensor is an activation, hence 4N/2N on a chip with batch packing.
    """
    if is_packed(dtype):
        _, _, h, w = byte_shape(View("lmem", 0, shape, dtype, "compact"))
        return lmem_bytes((*shape[:2], h, w), "u8", chip, aligned=aligned, packed=packed)
    n, c, h, w = shape
    factor = chip.batch_factor(itemsize(dtype)) if packed else 1
    cs = channel_stride(h, w, dtype, chip, aligned=aligned)
    return ceil_div(n, factor) * ceil_div(c, chip.lanes) * cs * itemsize(dtype) * factor


def word_bytes(shape: tuple[int, int, int, int], batch: int, chip: ChipSpec) -> int:
    """Bytes per lane of a tensor stored as 32-bit words, each shared by `batch` images."""
    n, c, h, w = shape
    return lmem_bytes((ceil_div(n, batch), c, h, w), "f32", chip)


def gmem_bytes(shape: tuple[int, ...], dtype: DType, chip: ChipSpec) -> int:
    """Bytes of an activation in global memory: dense, with the batch rounded up to whole words on a 4N chip."""
    factor = chip.batch_factor(itemsize(dtype))
    batch, *rest = (packed_shape(shape) if is_packed(dtype) else shape) or (1,)
    return align(batch, factor) * prod(rest) * itemsize(dtype)


@dataclass(frozen=True)
class Extent:
    """The bytes a view may touch: [start, stop) per lane for LMEM, absolute for GMEM; lanes [first, last]."""

    memory: str
    start: int
    stop: int
    first_lane: int = 0
    last_lane: int = 0

    def overlaps(self, other: "Extent") -> bool:
        """Whether the two extents share a byte (conservative for strided views)."""
        return (
            self.memory == other.memory
            and self.start < other.stop
            and other.start < self.stop
            and self.first_lane <= other.last_lane
            and other.first_lane <= self.last_lane
        )


def _span(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Largest index a strided box reaches."""
    return sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


@lru_cache(1 << 16)
def extent(view: View, chip: ChipSpec) -> Extent:
    """The byte extent of a view; an empty view has start == stop. Cached: checks ask for one view many times."""
    view = byte_view(view)
    unit = element_bytes(view)
    if 0 in view.shape:
        return Extent(view.memory, view.address, view.address)
    if not view.laned:
        last = _span(gmem_sizes(view), gmem_strides(view))
        return Extent("gmem", view.address, view.address + (last + 1) * unit)
    n, c, h, w = view.shape
    rows = ceil_div(view.lane + c, chip.lanes)
    last = _span((ceil_div(n, view.interleave), rows, h, w), lmem_strides(view, chip))
    stop = view.address + (last + 1) * unit
    one_row = view.lane + c <= chip.lanes
    first, last_lane = (view.lane, view.lane + c - 1) if one_row else (0, chip.lanes - 1)
    if view.memory == "gmem":
        return Extent("gmem", view.address + first * view.lane_pitch, stop + last_lane * view.lane_pitch)
    return Extent("lmem", view.address, stop, first, last_lane)


def activation_view(
    address: int, shape: tuple[int, int, int, int], dtype: DType, chip: ChipSpec, *, memory: Memory = "lmem"
) -> View:
    """An EU-aligned activation in LMEM (or a dense one in GMEM), 4N/2N on a chip with batch packing."""
    layout = "aligned" if memory == "lmem" else "dense"
    return View(memory, address, shape, dtype, layout, interleave=chip.batch_factor(itemsize(dtype)))


def sum_bytes(view: View, chip: ChipSpec) -> int:
    """Bytes per lane of the 32-bit sums of a result, without alignment."""
    n, c, h, w = view.shape
    return 4 * n * ceil_div(c, chip.lanes) * h * w


def product_bytes(rows: int, columns: int, chip: ChipSpec) -> int:
    """Bytes per lane of the 32-bit results of a matrix; of many tiles only one row of lanes (layer_group.md 9.3)."""
    if ceil_div(rows, chip.eu_elements(1)) * ceil_div(columns, 4) > _MANY_TILES:
        rows = min(rows, chip.lanes)
    return 4 * ceil_div(rows, chip.lanes) * align(columns, chip.eu_elements(4))


def work_area(address: int, size: int, chip: ChipSpec) -> View:
    """A work area of `size` bytes in every lane."""
    return View("lmem", address, (1, chip.lanes, 1, size), "u8", "compact")
