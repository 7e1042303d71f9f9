"""Views: which bytes of a memory a command reads or writes, and as what tensor.

A view is an address, a shape, an element type and a layout; `tpusim.isa.layout` turns it into byte strides.
Source: docs/spec/hardware.md 2.1, 2.2 and 2.5.
"""

from math import prod
from typing import Annotated, Literal

import ml_dtypes
import msgspec
import numpy as np
from msgspec.structs import replace

from tpusim.errors import CommandError
from tpusim.ir.packing import PER_BYTE, packed_axis

Memory = Literal["lmem", "gmem"]
DType = Literal["i8", "u8", "i16", "u16", "i32", "f32", "f16", "bf16", "f8e5m2", "i4", "u4"]
Layout = Literal["aligned", "compact", "dense", "strided"]
NARROW = ("f16", "bf16", "f8e5m2")
"""Floats that are widened to f32 when a unit reads them, and rounded once when it stores them."""
FLOATS = ("f32", *NARROW)
"""Element types that are floats."""
Length = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""Length of an axis; checked when a view is read from a file."""
Address = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A byte address, or a distance; checked when a view is read from a file."""

_NUMPY: dict[str, np.dtype] = {
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "u16": np.dtype(np.uint16),
    "i32": np.dtype(np.int32),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i4": np.dtype(np.int8),
    "u4": np.dtype(np.uint8),
}
"""The NumPy type of a value; outside the memories a 4-bit value is one sign-extended byte."""
_BITS: dict[str, int] = {"i4": 4, "u4": 4}
"""Bits of an element, if fewer than its NumPy type has."""
_NAMES: dict[np.dtype, DType] = {v: k for k, v in _NUMPY.items() if k not in _BITS}  # type: ignore[misc]


def numpy_dtype(dtype: DType) -> np.dtype:
    """The NumPy dtype of a command dtype."""
    return _NUMPY[dtype]


def dtype_of(dtype: np.dtype | type) -> DType:
    """The command dtype of a NumPy dtype. Raises KeyError for a dtype the chip does not have."""
    return _NAMES[np.dtype(dtype)]


def itemsize(dtype: DType) -> int:
    """Bytes of the type that stores one element."""
    return _NUMPY[dtype].itemsize


def bits(dtype: DType) -> int:
    """Bits of one element in a memory."""
    return _BITS.get(dtype, 8 * _NUMPY[dtype].itemsize)


def is_packed(dtype: DType) -> bool:
    """Whether two elements share a byte in a memory."""
    return dtype in _BITS


class View(msgspec.Struct, frozen=True, cache_hash=True, omit_defaults=True, forbid_unknown_fields=True):
    """A tensor in a memory, as one command sees it.

    memory: "lmem" (address = byte offset inside every lane) or "gmem" (address = absolute byte address).
    shape: LMEM: (n, c, h, w); GMEM: any rank, axis 0 is the batch unless `batch_axis` says otherwise.
    layout: LMEM "aligned" (channels padded to EU elements), "compact", "strided"; GMEM "dense" (row major), "strided".
    strides: for "strided" only, in elements (4-byte words if interleave > 1): LMEM (n, row, h, w), GMEM one per axis.
    interleave: batch items packed in one 4-byte word (4N or 2N), 1 elsewhere.
    lane: LMEM only: lane of channel 0; channel c lives in lane (lane + c) mod NPU, row (lane + c) div NPU.
    lane_pitch: GMEM only, bytes: > 0 says that the bytes are an image of LMEM lanes, `lane_pitch` bytes per lane, so
        that "aligned", "compact" and "strided" mean what they mean in LMEM (packed coefficients, hardware.md 2.3).

    i4 and u4: two elements per byte, the low half first, along the last axis (LMEM: of h
    and w) that is longer than 1. Strides count elements and
    are even, so that the view and each of its rows start at a whole byte. Such a view covers the bytes of the u8 view
    with half that axis (hardware.md 2.1: upstream moves 4-bit tensors in this way).
    """

    memory: Memory
    address: Address
    shape: tuple[Length, ...]
    dtype: DType
    layout: Layout
    strides: tuple[Address, ...] | None = None
    interleave: Annotated[int, msgspec.Meta(ge=1, le=4)] = 1
    lane: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] = 0
    lane_pitch: Address = 0
    batch_axis: Annotated[int, msgspec.Meta(ge=0, lt=64)] = 0

    @property
    def laned(self) -> bool:
        """Whether channels lie in different lanes (LMEM, or a lane image in GMEM)."""
        return self.memory == "lmem" or self.lane_pitch > 0

    @property
    def elements(self) -> int:
        """Number of elements of the tensor, padding not counted."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's elements without padding; two 4-bit elements share a byte."""
        shape = byte_shape(self) if is_packed(self.dtype) else self.shape
        return prod(shape) * itemsize(self.dtype)


def pair_axis(view: View) -> int:
    """The axis along which 4-bit elements share bytes (w or h of a laned view)."""
    return packed_axis(view.shape)


def byte_shape(view: View) -> tuple[int, ...]:
    """The shape of a 4-bit view's bytes."""
    if not view.shape:
        return ()
    axis = pair_axis(view)
    return (*view.shape[:axis], -(-view.shape[axis] // PER_BYTE), *view.shape[axis + 1 :])


def byte_view(view: View) -> View:
    """The u8 view of the bytes that a 4-bit view covers; any other view itself.

    Raises CommandError for strides by which an element other than the first of a pair starts at half a byte.
    """
    if not is_packed(view.dtype):
        return view
    strides = view.strides
    if strides is not None:
        axis = pair_axis(view)
        why = _half_bytes(view, strides, axis)
        if why:
            raise CommandError(
                f"{view.dtype} view at {view.address:#x}: {why}; begin rows of 4-bit elements at a whole byte"
            )
        strides = tuple(
            1 if at == axis else stride // PER_BYTE if size > 1 else stride
            for at, (size, stride) in enumerate(zip(view.shape, strides, strict=True))
        )
    return replace(view, dtype="u8", shape=byte_shape(view), strides=strides)


def _half_bytes(view: View, strides: tuple[int, ...], axis: int) -> str:
    """Which stride makes elements start at half a byte, "" if none does; axes of length 1 are ignored."""
    for at, (size, stride) in enumerate(zip(view.shape, strides, strict=True)):
        if at == axis and size > 1 and stride != 1:
            return f"a stride of 1 along axis {at} is required, got {stride}"
        if at != axis and size > 1 and stride % PER_BYTE:
            return f"an even stride along axis {at} is required, got {stride}"
    return ""
