"""Products with weights of few bits as tiles: some columns of the result with all of the inner axis (numerics.md 14).

While a tile is computed, the weights of the next are loaded. A tile has as many columns as fit, in whole passes over
the lanes, and all tiles have about as many (U-105).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Fn
from tpusim.isa.functions import A16MatMul
from tpusim.isa.layout import align, ceil_div, lmem_bytes
from tpusim.isa.region import View
from tpusim.kernel_library.forms import Part, seen
from tpusim.kernel_library.pieces import Piece, Transfer, transfers

_HALF_BYTES, _PACKED = 2, 4
_LANED_AXES = 3


def a16_pieces(body: Fn, chip: ChipSpec) -> tuple[Piece, ...]:
    """The tiles of a product over tensors in global memory; none if not even one row and one pass fit."""
    whole = _Whole(body, chip)
    sizes = whole.sizes()
    return () if sizes is None else tuple(whole.pieces(*sizes))


@dataclass(frozen=True)
class _Whole:
    """A product in global memory: x (rows, inner), codes (columns, inner), scales and zero points, maybe a bias."""

    body: Fn
    chip: ChipSpec

    @property
    def function(self) -> A16MatMul:
        """The function of the body."""
        return cast("A16MatMul", self.body.function)

    @property
    def inner(self) -> int:
        """The length of a sum."""
        return self.body.inputs[0].shape[-1]

    @property
    def rows(self) -> int:
        """Rows of the input."""
        return self.body.inputs[0].elements // self.inner

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.body.output.elements // self.rows

    def sizes(self) -> tuple[int, int] | None:
        """(rows, columns) of a tile: the fewest tiles of about as many columns; rows are halved if none fits."""
        passes, lanes = ceil_div(self.columns, self.chip.lanes), self.chip.lanes
        rows = self.rows
        while True:
            for tiles in range(1, passes + 1):
                each = ceil_div(passes, tiles)
                if self._fits(rows, each):
                    return rows, min(each * lanes, self.columns)
            if rows == 1:
                return None
            rows = ceil_div(rows, 2)

    def _fits(self, rows: int, passes: int) -> bool:
        """Whether the areas of a tile fit; the weights' areas begin at banks, all others share banks."""
        bank, four = self.chip.lmem_bank_bytes, self.function.bits == _PACKED
        codes, halves = passes * self.inner // (1 + four), passes * self.inner * _HALF_BYTES
        large = 2 * [codes] + ([passes * self.inner, halves, halves] if four else 3 * [halves])
        small = self._ends(rows, min(passes * self.chip.lanes, self.columns))[-1] - 2 * codes
        turned = passes * align(rows * _HALF_BYTES, self.chip.eu_bytes)
        banks = sum(ceil_div(size, bank) for size in large) + ceil_div(small + turned, bank)
        return banks <= self.chip.lmem_banks and max(rows, self.inner) <= self.chip.max_axis

    def _ends(self, rows: int, columns: int) -> list[int]:
        """Addresses of the input, then of result, codes, scales, zero points and bias, each twice; then the end."""
        x, *others = self._areas(rows, columns)
        return list(accumulate([0, x, *(2 * size for size in others)]))

    def _areas(self, rows: int, columns: int) -> list[int]:
        x, codes, scale, zero, *bias = self.body.inputs
        groups = scale.elements // self.columns

        def area(view: View, lanes: int, width: int, *, compact: bool = False) -> int:
            size = lmem_bytes((1, lanes, 1, width), view.dtype, self.chip, packed=compact)
            return align(size, self.chip.eu_bytes)

        return [
            area(x, rows, self.inner), area(self.body.output, rows, columns),
            area(codes, columns, codes.elements // self.columns), area(scale, columns, groups),
            area(zero, columns, groups), *(area(view, 1, columns) for view in bias),
        ]  # fmt: skip

    def pieces(self, rows: int, columns: int) -> Iterator[Piece]:
        """The tiles: for some rows, all columns."""
        x, codes, scale, zero, *bias = self.body.inputs
        ends = self._ends(rows, columns)
        x_part = Part(seen(x, (1, self.rows, 1, self.inner)))
        codes_part = Part(seen(codes, (1, self.columns, 1, codes.elements // self.columns)))
        result = Part(seen(self.body.output, (1, self.rows, 1, self.columns)))
        bias_parts = [Part(seen(v, (1, 1, 1, self.columns)), compact=True, kind="broadcast") for v in bias]
        number, first = 0, 0
        for row in range(0, self.rows, rows):
            height = min(rows, self.rows - row)
            for column in range(0, self.columns, columns):
                width, turn = min(columns, self.columns - column), number % 2
                half = [(end + nxt) // 2 if turn else end for end, nxt in zip(ends, ends[1:], strict=False)]
                if not column:
                    first = number
                moved = [
                    transfers(x_part)(([0, row, 0, 0], [1, height, 1, self.inner]), ends[0]),
                    transfers(codes_part)(([0, column, 0, 0], [1, width, 1, codes_part.view.shape[3]]), half[2]),
                    *(self._grouped(v, column, width, half[3 + i]) for i, v in enumerate((scale, zero))),
                    *(transfers(p)(([0, 0, 0, column], [1, 1, 1, width]), half[5]) for p in bias_parts),
                ]
                store = transfers(result)(([0, row, 0, column], [1, height, 1, width]), half[1])
                body = replace(self.body, inputs=tuple(t.inside for t in moved), output=store.inside)
                loads = moved if not column else moved[1:]
                by = (first, *(number,) * (len(moved) - 1))
                yield Piece(number, tuple(loads), tuple(moved), by, body, store, first=not column)
                number += 1

    def _grouped(self, view: View, column: int, width: int, address: int) -> Transfer:
        """The transfer of scales or zero points of some columns."""
        groups = view.elements // self.columns
        if len(view.shape) < _LANED_AXES:
            part = Part(seen(view, (1, self.columns, 1, groups)))
            return transfers(part)(([0, column, 0, 0], [1, width, 1, groups]), address)
        lanes, passes, _ = view.shape
        part = Part(seen(view, (1, lanes, passes, groups)))
        return transfers(part)(([0, 0, column // lanes, 0], [1, lanes, width // lanes, groups]), address)
