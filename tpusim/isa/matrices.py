"""How the library lays out f32 matrices for MM (hardware.md 2.2): a row over lanes, some of its columns in each.

The numbers are those of the profiles of bm1684x and bm1688 (U-90).
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.layout import align, ceil_div

_F32_BYTES = 4
_RUN_CYCLES = 4.4
"""Cycles that the library counts for the load of one lane's columns of a row (F-09)."""
_LEAST, _MOST = 8, 64
"""Fewest columns of the left matrix in a lane if a row of the right matrix fits the lanes once at the least width; and
the most columns of any matrix in a lane (F-10)."""


class LaneColumns(NamedTuple):
    """Adjacent columns in one lane: of the left matrix, and of the right matrix and the result."""

    left: int
    right: int


def lane_columns(rows: int, columns: int, chip: ChipSpec) -> LaneColumns:
    """The columns for a product of `rows` by `columns`: as wide as it takes no longer than loading the right matrix."""
    vector = chip.eu_elements(_F32_BYTES)
    most = min(_MOST, align(columns, vector))
    slower = (w for w in _widths(vector) if rows * ceil_div(w, vector) > min(columns / w, chip.lanes) * _RUN_CYCLES)
    right = min(next(slower), most)
    few = right == vector and columns <= vector * chip.lanes
    return LaneColumns(max(vector, _LEAST) if few else vector, right)


def _widths(vector: int) -> Iterator[int]:
    return count(vector, vector)


def row_steps(columns: int, width: int, chip: ChipSpec) -> int:
    """Vector steps over a row whose lanes have `width` columns each."""
    return ceil_div(ceil_div(columns, width), chip.lanes) * ceil_div(width, chip.eu_elements(_F32_BYTES))
