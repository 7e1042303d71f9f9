"""How the library lays out f32 matrices for MM (hardware.md 2.2): a row over lanes, so many of its columns in each.

All of it as the profile shows for bm1684x and bm1688 (U-90).
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.commands import MatMul
from tpusim.isa.layout import align, ceil_div

_F32_BYTES = 4
_RUN_CYCLES = 4.2
"""What the library counts for the load of one lane's columns of a row (F-09)."""
_LEAST, _MOST = 8, 64
"""Columns of the left matrix that a lane has where a row of the right one goes once over lanes of the fewest columns,
and of any at most (F-10)."""


class LaneColumns(NamedTuple):
    """Neighbouring columns that one lane has of the left matrix, and of the right one and the result."""

    left: int
    right: int


def runs_on_vectors(body: MatMul) -> bool:
    """Whether a product of a global layer is one of MM: of f32, the left matrix not transposed."""
    return body.left.dtype == "f32" and not body.left_transpose


def lane_columns(rows: int, columns: int, chip: ChipSpec) -> LaneColumns:
    """Of a product of `rows` by `columns` elements: wider while it takes no longer than loading the right matrix."""
    vector = chip.eu_elements(_F32_BYTES)
    most = min(_MOST, align(columns, vector))
    slower = (w for w in _widths(vector) if rows * ceil_div(w, vector) > _runs(columns, w, chip) * _RUN_CYCLES)
    right = min(next(slower), most)
    few = right == vector and columns <= vector * chip.lanes
    return LaneColumns(max(vector, _LEAST) if few else vector, right)


def _widths(vector: int) -> Iterator[int]:
    return count(vector, vector)


def _runs(columns: int, width: int, chip: ChipSpec) -> int:
    """Lanes that one pass of a row over them takes."""
    return min(ceil_div(columns, width), chip.lanes)


class Block(NamedTuple):
    """Rows and columns of the result, and columns of the left matrix, that one command of a product takes at most."""

    rows: int
    columns: int
    inner: int
    widths: LaneColumns


def product_block(rows: int, columns: int, inner: int, chip: ChipSpec) -> Block:
    """The tile of a product: each matrix of it fills two banks at most.

    The left matrix, in full rows, decides how many rows; then as many columns as the right one has room for with all of
    its rows, else those of one pass over the lanes and fewer rows, whose products are added up.
    """
    room, vector = 2 * chip.lmem_bank_bytes, chip.eu_elements(_F32_BYTES)
    left = lane_columns(rows, columns, chip).left
    height = _part(rows, room // _row_bytes(inner, left, chip))
    right = lane_columns(height, columns, chip).right
    passes = ceil_div(ceil_div(columns, right), chip.lanes)
    able = min(max(1, room // (inner * right * _F32_BYTES)), passes)
    width = min(columns, _part(passes, able) * right * chip.lanes)
    each = _row_bytes(width, right, chip)
    depth = inner
    if each * inner > room:
        depth = min(inner, align(_part(inner, room // each // vector * vector), vector))
    if each * height > room:
        height = _part(rows, room // each)
    return Block(height, width, depth, LaneColumns(left, right))


def _part(whole: int, most: int) -> int:
    """The size of equal parts, of `most` at most."""
    return ceil_div(whole, ceil_div(whole, max(1, most)))


def _row_bytes(columns: int, width: int, chip: ChipSpec) -> int:
    """Bytes of a lane that a row of a matrix takes."""
    return ceil_div(ceil_div(columns, width), chip.lanes) * width * _F32_BYTES


def row_steps(columns: int, width: int, chip: ChipSpec) -> int:
    """Vector steps over a row whose lanes have `width` columns each."""
    return ceil_div(ceil_div(columns, width), chip.lanes) * ceil_div(width, chip.eu_elements(_F32_BYTES))
