"""Gather of rows in global memory (GDMA)."""

from tpusim.isa.commands.move import Move
from tpusim.isa.region import View


class MoveRows(Move, frozen=True, kw_only=True, tag="move_rows"):
    """Rows copied inside global memory by their places (GDMA gather): output[a, i, b] = input[a, indices[i], b].

    input: (outer, length, inner); output: (outer, count, inner) of its type; indices: (count,) i32, of which negative
    ones count from the end. Only chips with a rate for it have the command; it stands for the load of the indices, too.
    """

    inputs_ = ("input", "indices")

    indices: View
