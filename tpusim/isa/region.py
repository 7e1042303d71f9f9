"""Views: which bytes of a memory a command reads or writes, and as what tensor.

A view is an address, a shape, an element type and a layout; `tpusim.isa.layout` turns it into byte strides.
Source: spec/hardware.md 2.1, 2.2 and 2.5.
"""

from math import prod
from typing import Annotated, Literal

import ml_dtypes
import msgspec
import numpy as np

Memory = Literal["lmem", "gmem"]
DType = Literal["i8", "u8", "i16", "u16", "i32", "f32", "f16", "bf16"]
Layout = Literal["aligned", "compact", "dense", "strided"]
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
}
_NAMES: dict[np.dtype, DType] = {v: k for k, v in _NUMPY.items()}  # type: ignore[misc]


def numpy_dtype(dtype: DType) -> np.dtype:
    """The NumPy dtype of a command dtype."""
    return _NUMPY[dtype]


def dtype_of(dtype: np.dtype | type) -> DType:
    """The command dtype of a NumPy dtype. Raises KeyError for a dtype the chip does not have."""
    return _NAMES[np.dtype(dtype)]


def itemsize(dtype: DType) -> int:
    """Bytes of one element."""
    return _NUMPY[dtype].itemsize


class View(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A tensor in a memory, as one command sees it.

    memory: "lmem" (address = byte offset inside every lane) or "gmem" (address = absolute byte address).
    shape: LMEM: (n, c, h, w); GMEM: any rank, axis 0 is the batch unless `batch_axis` says otherwise.
    layout: LMEM "aligned" (channels padded to EU elements), "compact", "strided"; GMEM "dense" (row major), "strided".
    strides: for "strided" only, in elements (4-byte words if interleave > 1): LMEM (n, row, h, w), GMEM one per axis.
    interleave: batch items packed in one 4-byte word (4N/2N of BM1684), 1 elsewhere.
    lane: LMEM only: lane of channel 0; channel c lives in lane (lane + c) mod NPU, row (lane + c) div NPU.
    lane_pitch: GMEM only, bytes: > 0 says that the bytes are an image of LMEM lanes, `lane_pitch` bytes per lane, so
        that "aligned", "compact" and "strided" mean what they mean in LMEM (packed coefficients, hardware.md 2.3).
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
        """Whether channels are spread over lanes (LMEM, or a lane image in GMEM)."""
        return self.memory == "lmem" or self.lane_pitch > 0

    @property
    def elements(self) -> int:
        """Number of elements of the tensor, padding not counted."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's elements, padding not counted."""
        return self.elements * itemsize(self.dtype)
