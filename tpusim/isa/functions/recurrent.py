"""A recurrent layer over a whole sequence, as the library's kernel computes it (numerics.md 11.7)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal, TypeAlias

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.recurrent_time import GATES, Extents, Layer, layer_cycles, layer_traffic
from tpusim.isa.functions.rules import counted
from tpusim.isa.region import View, itemsize

Cell: TypeAlias = Literal["LSTM", "GRU"]
MATRIX_PER_GATE = frozenset({"GRU"})
"""Cells whose weights are a matrix for each gate; the others' have all gates in each row."""
_TABLES = 4
_AXES = 3


class Recurrent(Function, frozen=True, tag="recurrent"):
    """One result of an LSTM or GRU over a sequence in global memory (11.7).

    Operands: rows (T, N, I); weights (D, (I + H)*G, H), for each element of a row and then of the state G*H numbers in
    the chip's order of gates, for `MATRIX_PER_GATE` G matrices (I, H) and then (H, H), or with tables the recurrence
    (D, G*H, H); the biases of input and state (D, 2*G*H), with tables (D, G*H); the initial states (D, N, H) that
    `states` says; with tables four tables. outputs: all results that the kernel makes; `first`: this command does the
    work, other commands for the same layer only store their result. moves: bytes that the kernel loads and stores in
    addition to operands and results (`with_moves`).
    """

    OVER_INPUT: ClassVar[bool] = True

    cell: Cell
    hidden: int
    bidirectional: bool
    result: str
    biased: bool
    states: tuple[bool, ...]
    tables: bool
    outputs: tuple[str, ...]
    first: bool
    moves: tuple[int, int] = (0, 0)

    @property
    def loads(self) -> bool:
        """Only the first command of a layer loads operands."""
        return self.first

    def extents(self, rows: Shape) -> Extents:
        """The extents of the layer, given the shape of the rows."""
        steps, batch, width = rows
        return Extents(steps, batch, width, self.hidden, 1 + self.bidirectional)

    def made_of(self, operands: int) -> Steps:
        """Decision: for each given product of a row a product for each element of a state, five more, and a table."""
        return Steps(arithmetic=self.hidden + 5, series=1) if self.first else Steps(arithmetic=0)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """The kernel's time with its transfers, which it waits for; nothing for a further result."""
        if not self.first:
            return 0
        return layer_cycles(self._layer(inputs[0].shape), itemsize(output.dtype), chip)

    def _layer(self, rows: Shape) -> Layer:
        return Layer(self.extents(rows), self.cell, self.biased, self.outputs)

    @property
    def counts_transfers(self) -> bool:
        """The kernel waits for its transfers, which `cycles` counts; a further result was stored with the first."""
        return True

    def with_moves(self, rows: Shape, size: int, chip: ChipSpec) -> "Recurrent":
        """The function with the bytes that the chip's kernel moves; size: bytes of an element."""
        moves = layer_traffic(self._layer(rows), size, chip) if self.first and not self.tables else (0, 0)
        return replace(self, moves=moves)

    def moved(self, operands: Sequence[Shape], result: Shape, size: int) -> tuple[int, int]:
        """The gates, which change their layout through global memory, and weights that are loaded again."""
        return self.moves

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """The products of rows and states with weights, for the first command."""
        at = self.extents(operands[0])
        inner = at.hidden + (0 if self.tables else at.width)
        return at.steps * at.batch * at.ways * GATES[self.cell] * at.hidden * inner * self.first

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Operands of the shapes above."""
        states = sum(self.states)
        if (why := counted(operands, 2 + self.biased + states + _TABLES * self.tables)) is not None:
            return why
        if len(operands[0]) != _AXES:
            return Misfit("rows (T, N, I)", f"{operands[0]}")
        at = self.extents(operands[0])
        if self.hidden < 1:
            return Misfit("a state of one element or more", f"{self.hidden}")
        rows, state = GATES[self.cell] * at.hidden, (at.ways, at.batch, at.hidden)
        inner = at.hidden if self.tables else at.width + at.hidden
        sizes = [at.ways * rows * inner, *[at.ways * rows * (2 - self.tables)] * self.biased, *[prod(state)] * states]
        given = [prod(shape) for shape in operands[1 : 1 + len(sizes)]]
        if given != sizes:
            return Misfit(f"weights, biases and states of {sizes} elements", f"{given}")
        wanted = prod(state) * (at.steps if self.result == "Y" else 1)
        return None if prod(result) == wanted else Misfit(f"a result of {wanted} elements", f"{result}")
