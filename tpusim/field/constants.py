"""The numbers of the bytes of constants."""

from itertools import product

import numpy as np

from tpusim.field.arithmetic import Field, mixed, odd_numbers

_BLOCK = 1 << 14
"""Bytes whose numbers are computed at once."""


def stored(field: Field, data: np.ndarray, address: int) -> np.ndarray:
    """Random elements that bytes (uint8) and their addresses determine.

    address: of the first byte; the strides of the array are those of the addresses.
    """
    run = _contiguous(data)
    found, bytes_ = np.empty((data.size // run, run), np.int64), data.reshape(-1, run)
    of_byte, of_place, start = odd_numbers(field.apply(("constant byte",), np.arange(3)).view(np.uint64))
    first, along = _runs(data, run, address) * of_place + start, np.arange(run, dtype=np.uint64) * of_place
    rows = max(1, _BLOCK // run)
    for row, place in product(range(0, len(found), rows), range(0, run, _BLOCK)):
        some = slice(row, row + rows), slice(place, place + _BLOCK)
        z = found[some].view(np.uint64)
        np.multiply(bytes_[some], of_byte, out=z)
        z += along[some[1]]
        z += first[some[0], None]
        mixed(z)
    return found.reshape(data.shape)


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
