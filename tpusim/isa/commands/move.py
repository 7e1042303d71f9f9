"""Tensor copy (GDMA)."""

from functools import cached_property
from typing import Literal

from msgspec.structs import replace

from tpusim.isa.commands.base import ANYWHERE, Command, Place, Source
from tpusim.isa.region import Length, View

TransferKind = Literal["", "tensor", "lanes", "heads", "matrix", "broadcast", "turns"]


class Move(Command, frozen=True, tag="move"):
    """Tensor copy (GDMA tensor/general): output[i] = input[i], same shape and dtype, any layouts and memories.

    whole: of a slice that a layer group loads or stores, (n, c, d, h, w) of its tensor as the group sees it.
    start: (n, c, d, h, w) of the first element that is moved; axis 0 of the views counts n or d.
    strides: elements of global memory between neighbours along (n, c, d, h, w), where the tensor does not lie there in
        the order in which the group sees it.
    origin: elements of global memory in front of the first, where padding surrounds the tensor, or
        where equal distances along c hold for the channels of this transfer alone (it may be negative).
    Start and whole are there, or none: it moves a constant, or is no transfer of a group or a tile.
    kind: of a tile of a global layer, how the library moves it: a tensor, a tensor lane by lane, heads of attention, a
        matrix over all lanes, or a constant that every lane gets. Of a copy in global memory: "turns", by several
        transpositions of matrices, one after the other. They differ in what they cost (hardware.md 5.2).
    width: of a matrix, how many columns of a row the library gives to one lane; 0: as the views have it.
    """

    engine = "gdma"
    inputs_ = ("input",)

    input: View
    output: View
    start: Place | None = None
    whole: Place | None = None
    strides: Place | None = None
    origin: int | None = None
    kind: TransferKind = ""
    width: Length = 0

    @cached_property
    def form(self) -> "Command":
        """As of any command; where only one side is in global memory its address does not matter either."""
        views = {"input": self.input, "output": self.output}
        if self.input.memory != self.output.memory:
            views = {name: replace(v, address=0) if v.memory == "gmem" else v for name, v in views.items()}
        return replace(
            self, **ANYWHERE, step=self._form_step, start=None, whole=None, strides=None, origin=None, **views
        )

    @property
    def owner(self) -> Source:
        """As of any command, but what comes from global memory is a load's."""
        return self.slice_owner(self.op, loaded=True) if self.direction == "s2l" else super().owner

    @property
    def direction(self) -> Literal["s2l", "l2s", "s2s", "l2l"]:
        """Where from and to; s is system (global) memory."""
        source = "s" if self.input.memory == "gmem" else "l"
        target = "s" if self.output.memory == "gmem" else "l"
        return f"{source}2{target}"  # type: ignore[return-value]
