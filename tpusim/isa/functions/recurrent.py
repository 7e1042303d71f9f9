"""A recurrent layer over a whole sequence, as the library's kernel computes it (numerics.md 11.7)."""

from collections.abc import Sequence
from math import prod
from typing import Literal, TypeAlias

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.recurrent_time import GATES, Extents, Layer, layer_cycles, layer_traffic
from tpusim.isa.functions.rules import counted
from tpusim.isa.region import View, itemsize

Cell: TypeAlias = Literal["LSTM", "GRU"]
_TABLES = 4
_AXES = 3


class Recurrent(Function, frozen=True, tag="recurrent"):
    """One result of an LSTM or GRU over a sequence in global memory (11.7).

    Operands: rows (T, N, I); weights (D, (I + H)*G, H), for each element of a row and then of the state G*H numbers in
    the chip's order of gates, or with tables the recurrence (D, G*H, H); the biases of input and state (D, 2*G*H), with
    tables (D, G*H); the initial states (D, N, H) that `states` says; with tables four tables. outputs: all results that
    the kernel makes; `first`: this command does the work, other commands for the same layer only store their result.
    """

    cell: Cell
    hidden: int
    bidirectional: bool
    result: str
    biased: bool
    states: tuple[bool, ...]
    tables: bool
    outputs: tuple[str, ...]
    first: bool

    @property
    def loads(self) -> bool:
        """Only the first command of a layer loads operands."""
        return self.first

    def extents(self, rows: Shape) -> Extents:
        """The extents of the layer, given the shape of the rows."""
        steps, batch, width = rows
        return Extents(steps, batch, width, self.hidden, 1 + self.bidirectional)

    def made_of(self, operands: int) -> Steps:
        """Decision: for each element of the result the gates' functions, sums and products."""
        return Steps(arithmetic=20, series=GATES[self.cell] + 1)

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

    def moved(self, operands: Sequence[Shape], result: Shape, size: int) -> tuple[int, int]:
        """The gates, which change their layout through global memory, and weights that are loaded again."""
        return layer_traffic(self._layer(operands[0]), size) if self.first else (0, 0)

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
        rows, state = GATES[self.cell] * at.hidden, (at.ways, at.batch, at.hidden)
        inner = at.hidden if self.tables else at.width + at.hidden
        sizes = [at.ways * rows * inner, *[at.ways * rows * (2 - self.tables)] * self.biased, *[prod(state)] * states]
        given = [prod(shape) for shape in operands[1 : 1 + len(sizes)]]
        if given != sizes:
            return Misfit(f"weights, biases and states of {sizes} elements", f"{given}")
        wanted = prod(state) * (at.steps if self.result == "Y" else 1)
        return None if prod(result) == wanted else Misfit(f"a result of {wanted} elements", f"{result}")
