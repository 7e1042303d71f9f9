"""Tiles: transfers, command, and what runs in parallel."""

from collections.abc import Callable, Iterator, Sequence
from operator import mul
from typing import NamedTuple

from msgspec.structs import replace

from tpusim.isa.commands import Command, TransferKind
from tpusim.isa.layout import distance_bytes, gmem_strides
from tpusim.isa.region import View
from tpusim.kernel_library.forms import Part

Place = tuple[int, int, int, int, int]
Window = tuple[list[int], list[int]]
"""The first element and the extents."""


class Transfer(NamedTuple):
    """A window of a tensor in global memory and in local memory.

    start, whole: as in `Move`, over the tensor's axes in the form, the axis of the largest stride first.
    """

    outside: View
    inside: View
    start: Place
    whole: Place
    kind: TransferKind
    in_order: bool
    """Whether the axes have the same order in local memory as in the tensor."""
    width: int = 0


class Piece(NamedTuple):
    """One tile, or a part of a tile: its loads, its operands, the command, and the store.

    number: that of the tile. loaded: for each operand the number of the piece that loads it; a constant is loaded once.
    store: None if a later piece of the tile reads the result. kept: the number of views after the operands that the
    command reads from earlier pieces of the tile. first: the piece waits until all earlier pieces are stored.
    """

    number: int
    loads: tuple[Transfer, ...]
    operands: tuple[Transfer, ...]
    loaded: tuple[int, ...]
    body: Command
    store: Transfer | None
    kept: int = 0
    first: bool = False


class Turn(NamedTuple):
    """Loads, computation and store that run in parallel."""

    loads: Piece | None
    computes: Piece | None
    stores: Piece | None


def turns_of(pieces: Sequence[Piece]) -> Iterator[Turn]:
    """While a piece is computed, the next is loaded and the previous stored; a `first` piece waits for all stores."""
    starts = [at for at, piece in enumerate(pieces) if piece.first or not at]
    for start, stop in zip(starts, (*starts[1:], len(pieces)), strict=True):
        run = pieces[start:stop]
        for loads, computes, stores in zip((*run, None, None), (None, *run, None), (None, None, *run), strict=True):
            yield Turn(loads, computes, stores)


def transfers(part: Part) -> Callable[[Window, int], Transfer]:
    """A function from (window of an operand, address in local memory) to the transfer."""
    view, strides, inside = part.view, gmem_strides(part.view), part.view.interleave if part.words else 1
    begin, extent = part.frame or ((0, 0, 0, 0), view.shape)
    order = _order(extent, strides) if view.interleave == 1 else _words_first(view.batch_axis)
    whole = _place([extent[axis] for axis in order], 1)
    in_order, layout = part.frame is None and order == [0, 1, 2, 3], "compact" if part.compact else "aligned"

    def transfer(window: Window, address: int) -> Transfer:
        first, extents = window
        outside, shape = view, tuple(extents)
        if shape != view.shape:
            words = (at // view.interleave if axis == view.batch_axis else at for axis, at in enumerate(first))
            at = view.address + distance_bytes(view, sum(map(mul, words, strides)))
            outside = replace(view, address=at, shape=shape, layout="strided", strides=strides)
        start = _place([first[axis] + begin[axis] for axis in order], 0)
        local = View("lmem", address, shape, view.dtype, layout, interleave=inside)
        return Transfer(outside, local, start, whole, part.kind, in_order, part.width)

    return transfer


def _order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The axes by decreasing stride; axes of length 1 keep their place."""
    long = [axis for axis in range(4) if shape[axis] > 1]
    order = list(range(4))
    for place, axis in zip(long, sorted(long, key=lambda axis: -strides[axis]), strict=True):
        order[place] = axis
    return order


def _words_first(batch: int) -> list[int]:
    """The axes, with the axis whose items share words first."""
    order = list(range(4))
    order[0], order[batch] = batch, 0
    return order


def _place(numbers: list[int], depth: int) -> Place:
    n, c, h, w = numbers
    return n, c, depth, h, w
