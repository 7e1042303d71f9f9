"""The numbers of the bytes of constants."""

import numpy as np

from tpusim.field.arithmetic import Elements, Field, mix, odd_numbers, parts

_BLOCK = 1 << 14
"""Bytes whose numbers are computed at once."""
_PIECE = 1 << 16
"""Bytes whose numbers are computed before they are copied, where memory has no rows like theirs."""


def stored(field: Field, data: np.ndarray, address: int, *, tag: int = 0, into: np.ndarray | None = None) -> Elements:
    """Random elements that bytes (uint8) and their addresses determine.

    address: of the first byte; the strides of the array are those of the addresses. tag: with which each is joined
    (xor). into: an array (int64) of the data's shape that is filled and returned; None: a new one.
    """
    found = np.empty(data.shape, np.int64) if into is None else into
    of_byte, of_place, start = odd_numbers(field.apply(("constant byte",), np.arange(3)).view(np.uint64))
    along = np.arange(min(data.size, _BLOCK), dtype=np.uint64) * of_place
    room, scratch = np.empty((2, _BLOCK), np.uint64)
    for index in parts(data.shape, _PIECE):
        bytes_, cells = data[index], found[index].view(np.uint64)
        run = _contiguous(bytes_)
        flat, rows = bytes_.reshape(-1, run), cells.reshape(-1, run)
        first = _runs(bytes_, run, address + bytes_.ctypes.data - data.ctypes.data) * of_place + start
        at_once = max(1, _BLOCK // run)
        for row in range(0, len(rows), at_once):
            for place in range(0, run, _BLOCK):
                part = flat[row : row + at_once, place : place + _BLOCK]
                target = rows[row : row + at_once, place : place + _BLOCK]
                z, free = (memory[: part.size].reshape(part.shape) for memory in (room, scratch))
                np.multiply(part, of_byte, out=z)
                z += along[: part.shape[1]]
                z += first[row : row + at_once, None] + np.array([place], np.uint64) * of_place
                mix(z, free, into=target)
                if tag:
                    target ^= np.uint64(tag)
        if not np.may_share_memory(rows, cells):
            cells[...] = rows.reshape(cells.shape)
    return found


def _contiguous(data: np.ndarray) -> int:
    """How many bytes follow one another along the last axes."""
    run = 1
    for size, stride in zip(reversed(data.shape), reversed(data.strides), strict=True):
        if size > 1 and stride != run:
            break
        run *= size
    return max(run, 1)


def _runs(data: np.ndarray, run: int, address: int) -> np.ndarray:
    """The addresses (uint64) of the first bytes of contiguous runs."""
    starts: np.ndarray = np.array([address], np.int64)
    for size, stride in zip(data.shape, data.strides, strict=True):
        if len(starts) == data.size // run:
            break
        starts = (starts[:, None] + np.arange(int(size), dtype=np.int64) * int(stride)).reshape(-1)
    return starts.view(np.uint64)
