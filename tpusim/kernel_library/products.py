"""Products of f32 matrices as tiles, whose inner axis may be cut too (hardware.md 2.2).

The loops are rows, then columns, then the inner axis. The sums stay in local memory, and the next product is added to
them; the last product adds the bias. Every matrix of a batch is processed separately.
"""

from collections.abc import Iterator
from dataclasses import replace as altered
from itertools import accumulate, product
from typing import NamedTuple, cast

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import MatMul
from tpusim.isa.layout import align, ceil_div, lmem_bytes
from tpusim.isa.matrices import LaneColumns, lane_columns
from tpusim.kernel_library.forms import Form, Part, forms
from tpusim.kernel_library.pieces import Piece, Transfer, Window, transfers

_F32_BYTES = 4


class Block(NamedTuple):
    """The most rows and columns of the result, and columns of the left matrix, of one command."""

    rows: int
    columns: int
    inner: int
    widths: LaneColumns


def product_block(rows: int, columns: int, inner: int, chip: ChipSpec) -> Block:
    """The tile of a product: each matrix of it fills at most two banks.

    Whole rows of the left matrix determine the rows of the tile. The tile has as many columns as fit with all rows of
    the right matrix; if not even one pass over the lanes fits, it has the columns of one pass, and the inner axis is
    cut.
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
    """The size of equal parts that have at most `most` elements."""
    return ceil_div(whole, ceil_div(whole, max(1, most)))


def _row_bytes(columns: int, width: int, chip: ChipSpec) -> int:
    """Bytes per lane of one row of a matrix."""
    return ceil_div(ceil_div(columns, width), chip.lanes) * width * _F32_BYTES


def product_pieces(body: MatMul, chip: ChipSpec) -> tuple[Piece, ...]:
    """The tiles of a product that runs on vectors; none without a form, or if two tiles do not fit."""
    found = forms(body, chip)
    if not found:
        return ()
    tiles = _Tiles(found[0], chip)
    return tuple(tiles.pieces()) if tiles.fit else ()


class _Operand:
    """A matrix or the bias, with two places in local memory that its loads use alternately."""

    def __init__(self, part: Part, places: tuple[int, int]) -> None:
        self._transfer = transfers(part)
        self._places = places
        self._loads = 0
        self._last: Window | None = None
        self._found: tuple[Transfer, int]

    def moved(self, window: Window, number: int) -> tuple[Transfer, int, bool]:
        """(transfer of a window, number of the tile that loads it, whether this tile loads it)."""
        new = window != self._last
        if new:
            self._found = self._transfer(window, self._places[self._loads % 2]), number
            self._loads, self._last = self._loads + 1, window
        return *self._found, new


class _Tiles:
    """A product as a form over four axes, and how it is cut."""

    def __init__(self, form: Form, chip: ChipSpec) -> None:
        self._form, self._body = form, cast("MatMul", form.body)
        self._batch, self._rows, _, self._columns = form.result.view.shape
        self._inner = form.parts[0].view.shape[3]
        self._block = block = product_block(self._rows, self._columns, self._inner, chip)
        shapes = {
            "left": (block.rows, block.inner),
            "right": self._turned(block.inner, block.columns),
            "bias": (1, block.columns),
            "output": (block.rows, block.columns),
        }
        widths = {"left": block.widths.left, "right": block.widths.right, "output": block.widths.right}
        parts = {name: part for (name, _), part in zip(self._body.operands(), form.parts, strict=True)}
        sizes = [_bytes(*shapes[name], chip, aligned=name != "bias") for name in parts]
        ends = list(accumulate(2 * size for size in sizes))
        self.fit = ends[-1] <= chip.lmem_bytes and max(block.rows, block.columns, block.inner) <= chip.max_axis
        self._operands = {
            name: _Operand(altered(part, width=widths.get(name, part.width)), (end - 2 * size, end - size))
            for (name, part), size, end in zip(parts.items(), sizes, ends, strict=True)
        }
        self._batches = {name: part.view.shape[0] for name, part in parts.items()}

    def pieces(self) -> Iterator[Piece]:
        """All tiles in order, with a piece for every part of the inner axis."""
        steps = (range(0, self._rows, self._block.rows), range(0, self._columns, self._block.columns))
        for number, (batch, row, column) in enumerate(product(range(self._batch), *steps)):
            rows, columns = min(self._block.rows, self._rows - row), min(self._block.columns, self._columns - column)
            store, *_ = self._moved("output", number, batch, (row, column), (rows, columns))
            for at in range(0, self._inner, self._block.inner):
                inner = min(self._block.inner, self._inner - at)
                last = at + inner == self._inner
                moved = {
                    "left": self._moved("left", number, batch, (row, at), (rows, inner)),
                    "right": self._moved(
                        "right", number, batch, self._turned(at, column), self._turned(inner, columns)
                    ),
                }  # fmt: skip
                if last and "bias" in self._operands:
                    moved["bias"] = self._moved("bias", number, 0, (0, column), (1, columns))
                views = {name: transfer.inside for name, (transfer, _, _) in moved.items()}
                body = replace(
                    self._body, **{"bias": None} | views, relu=self._body.relu and last, output=store.inside,
                    partial=store.inside if at else None,
                )  # fmt: skip
                yield Piece(
                    number,
                    tuple(transfer for transfer, _, new in moved.values() if new),
                    tuple(transfer for transfer, _, _ in moved.values()),
                    tuple(by for _, by, _ in moved.values()),
                    body,
                    store if last else None,
                    kept=int(at > 0),
                    first=self._form.one_by_one and not (row or column or at),
                )

    def _moved(
        self, name: str, number: int, batch: int, start: tuple[int, int], extents: tuple[int, int]
    ) -> tuple[Transfer, int, bool]:
        """The transfer of rows and columns from `start` on, of one matrix of an operand."""
        first = [batch if self._batches[name] > 1 else 0, start[0], 0, start[1]]
        return self._operands[name].moved((first, [1, extents[0], 1, extents[1]]), number)

    def _turned(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the right matrix, in the order of memory."""
        return (columns, rows) if self._body.right_transpose else (rows, columns)


def _bytes(rows: int, columns: int, chip: ChipSpec, *, aligned: bool) -> int:
    return align(lmem_bytes((1, rows, 1, columns), "f32", chip, aligned=aligned), chip.eu_bytes)
