"""Values of 4 bits: two per byte, the low half first (docs/spec/numerics.md 14, hardware.md 2.1).

Arrays in a program hold them one per byte, as int8 or uint8. Where bytes count (a weight file, the coefficient image,
the chip's memories) they are packed along their rows (`packed_axis`), each row from a whole byte on: a row of
an odd length ends with a half byte of 0. So the right matrix of a product counts (U-85, hardware.md 3.2).
"""

import numpy as np

PACKED_BITS = 4
PER_BYTE = 8 // PACKED_BITS


def packed_axis(shape: tuple[int, ...]) -> int:
    """The axis whose neighbours share a byte: the last one longer than 1, but no row of a matrix and no channel.

    So an element of a matrix of one column has a byte. The first two of more than two axes are batch and channels.
    """
    return max((axis for axis, size in enumerate(shape) if size > 1 and axis > 1), default=len(shape) - 1)


def packed_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the bytes; of a tensor without axes one byte."""
    if not shape:
        return (1,)
    axis = packed_axis(shape)
    return (*shape[:axis], -(-shape[axis] // PER_BYTE), *shape[axis + 1 :])


def pack(values: np.ndarray) -> np.ndarray:
    """The bytes of values of 4 bits. Raises ValueError for a value that needs more bits."""
    low, high = (0, 15) if values.dtype.kind == "u" else (-8, 7)
    if values.size and not low <= int(values.min()) <= int(values.max()) <= high:
        raise ValueError(
            f"values of 4 bits are {low} to {high}, got {int(values.min())} to {int(values.max())}; saturate them"
        )
    shape = values.shape or (1,)
    axis = packed_axis(shape)
    rows = np.moveaxis(values.reshape(shape), axis, -1).astype(np.uint8) & 15
    if rows.shape[-1] % PER_BYTE:
        rows = np.concatenate([rows, np.zeros((*rows.shape[:-1], 1), np.uint8)], axis=-1)
    return np.ascontiguousarray(np.moveaxis(rows[..., ::2] | rows[..., 1::2] << 4, -1, axis))


def unpack(stored: np.ndarray, shape: tuple[int, ...], *, signed: bool) -> np.ndarray:
    """The values of shape `shape` that `pack` packed. Raises ValueError for bytes of another shape."""
    if stored.shape != packed_shape(shape) or stored.dtype != np.uint8:
        raise ValueError(f"uint8 {packed_shape(shape)} is required, got {stored.dtype} {stored.shape}")
    axis = packed_axis(shape or (1,))
    rows = np.moveaxis(stored, axis, -1)
    halves = np.stack([rows & 15, rows >> 4], axis=-1).reshape(*rows.shape[:-1], -1)
    values = np.ascontiguousarray(np.moveaxis(halves[..., : (shape or (1,))[axis]], -1, axis)).reshape(shape)
    return (values.astype(np.int8) ^ 8) - np.int8(8) if signed else values
