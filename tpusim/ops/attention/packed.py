"""Weights of one head in the layout of local memory: three matrices one after the other, and one row of biases."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.ops.framework.base import Array, Shape


class Sizes(NamedTuple):
    """Extents of the matrices.

    queries, keys: rows of the matrices of queries, and of keys and values. columns: their columns. out: columns of the
    last layer.
    """

    queries: int
    keys: int
    columns: int
    out: int


def pack_matrices(matrices: Sequence[np.ndarray], lanes: int, vector: int) -> np.ndarray:
    """(1, lanes, rows per lane, aligned columns); row r of each matrix is in lane r mod lanes."""
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
    joined, start, matrices = packed[0].transpose(1, 0, 2).reshape(rows * lanes, width), 0, list[Array]()
    for length in (sizes.queries, sizes.keys, sizes.keys):
        matrices.append(joined[start : start + length, : sizes.columns])
        start += align(length, lanes)
    return matrices


def unpack_biases(packed: Array | None, has_bias: int, sizes: Sizes) -> list[Array | None]:
    """The biases of queries, keys, values and the last layer; None for those whose bit of `has_bias` is not set."""
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
    """The same biases as views of lane 0."""
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
