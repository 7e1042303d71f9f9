"""Weights of one head as local memory holds them: three matrices behind each other in every lane, one row of biases."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.ops.framework.base import Array, Shape


class Sizes(NamedTuple):
    """Rows of the matrices of queries, and of keys and values; their columns; columns of the last layer."""

    queries: int
    keys: int
    columns: int
    out: int


def pack_matrices(matrices: Sequence[np.ndarray], lanes: int, vector: int) -> np.ndarray:
    """(1, lanes, rows in a lane, aligned columns): row r of a matrix is in lane r mod lanes."""
    columns = matrices[0].shape[1]
    rows = sum(align(len(m), lanes) for m in matrices)
    packed, start = np.zeros((rows, align(columns, vector)), matrices[0].dtype), 0
    for matrix in matrices:
        packed[start : start + len(matrix), :columns] = matrix
        start += align(len(matrix), lanes)
    return packed.reshape(rows // lanes, lanes, -1).transpose(1, 0, 2)[np.newaxis]


def unpack_matrices(packed: Array, sizes: Sizes) -> list[Array]:
    """The matrices of queries, keys and values."""
    _, lanes, rows, width = packed.shape
    joined, start, found = packed[0].transpose(1, 0, 2).reshape(rows * lanes, width), 0, list[Array]()
    for length in (sizes.queries, sizes.keys, sizes.keys):
        found.append(joined[start : start + length, : sizes.columns])
        start += align(length, lanes)
    return found


def unpack_biases(packed: Array | None, has_bias: int, sizes: Sizes) -> list[Array | None]:
    """The rows of queries, keys, values and the last layer, as far as `has_bias` has their bit."""
    found, start = list[Array | None](), 0
    for i, length in enumerate((sizes.columns,) * 3 + (sizes.out,)):
        there = packed is not None and bool(has_bias >> i & 1)
        found.append(packed.reshape(-1)[start : start + length] if packed is not None and there else None)
        start += length * there
    return found


def matrix_views(packed: View, sizes: Sizes, chip: ChipSpec) -> list[View]:
    """The matrices of queries, keys and values in local memory."""
    pitch = align(sizes.columns, chip.eu_elements(itemsize(packed.dtype))) * itemsize(packed.dtype)
    found, address = list[View](), packed.address
    for length in (sizes.queries, sizes.keys, sizes.keys):
        shape: Shape = (1, length, 1, sizes.columns)
        found.append(View("lmem", address, shape, packed.dtype, "aligned"))
        address += ceil_div(length, chip.lanes) * pitch
    return found


def bias_views(packed: View | None, has_bias: int, sizes: Sizes) -> list[View | None]:
    """The rows of queries, keys, values and the last layer in lane 0."""
    found, start = list[View | None](), 0
    for i, length in enumerate((sizes.columns,) * 3 + (sizes.out,)):
        there = packed is not None and bool(has_bias >> i & 1)
        if packed is not None and there:
            address = packed.address + start * itemsize(packed.dtype)
            found.append(View("lmem", address, (1, 1, 1, length), packed.dtype, "compact"))
        else:
            found.append(None)
        start += length * there
    return found
