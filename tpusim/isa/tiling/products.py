"""Products of f32 matrices as tiles, whose inner axis may be cut too (hardware.md 2.2).

Rows are gone through, in them columns, in these the inner axis: the sums so far stay in local memory, and the next
product adds them to its own; the last one adds the bias. Every matrix of a batch is a run of its own.
"""

from collections.abc import Iterator
from dataclasses import replace as altered
from itertools import accumulate, product
from typing import cast

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import MatMul
from tpusim.isa.layout import align, lmem_bytes
from tpusim.isa.matrices import product_block
from tpusim.isa.tiling.forms import Form, Part, forms
from tpusim.isa.tiling.pieces import Piece, Transfer, Window, transfers


def product_pieces(body: MatMul, chip: ChipSpec) -> tuple[Piece, ...]:
    """The tiles of a product that runs on vectors; none without a form, or if two do not fit."""
    found = forms(body, chip)
    if not found:
        return ()
    tiles = _Tiles(found[0], chip)
    return tuple(tiles.pieces()) if tiles.fit else ()


class _Operand:
    """A matrix or the bias in its two places of local memory, which tiles take by turns."""

    def __init__(self, part: Part, places: tuple[int, int]) -> None:
        self._transfer = transfers(part)
        self._places = places
        self._loads = 0
        self._last: Window | None = None
        self._found: tuple[Transfer, int]

    def moved(self, window: Window, number: int) -> tuple[Transfer, int, bool]:
        """The transfer of what a tile needs, the tile that it is for, and whether it is new: else it is there."""
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
        """All tiles in order, each as a piece for every part of the inner axis."""
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
        """Of one matrix of an operand the rows and columns from `start`."""
        first = [batch if self._batches[name] > 1 else 0, start[0], 0, start[1]]
        return self._operands[name].moved((first, [1, extents[0], 1, extents[1]]), number)

    def _turned(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the right matrix as it lies in memory."""
        return (columns, rows) if self._body.right_transpose else (rows, columns)


def _bytes(rows: int, columns: int, chip: ChipSpec, *, aligned: bool) -> int:
    return align(lmem_bytes((1, rows, 1, columns), "f32", chip, aligned=aligned), chip.eu_bytes)
