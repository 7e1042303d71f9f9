"""Commands over whole tensors of any rank as commands over four axes, which local memory has (hardware.md 2.1).

A form is the same computation: an operand is another view of the same bytes, and the command's axes are renamed to the
four. Elements of 4 bits, axes that cannot be merged to four, and windows outside a command's ranges have no form; of
packed batches (4N) only products and pads have a form.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from tpusim.isa.commands import (
    Command,
    TransferKind,
)
from tpusim.isa.layout import dense_strides
from tpusim.isa.region import View

Shape = tuple[int, ...]
AXES = 4


@dataclass(frozen=True)
class Part:
    """An operand over four axes of global memory.

    follows: for each of its axes the axis of the result that it is cut with, None: every tile needs all of it.
    compact: its layout in local memory, where constants are not aligned. kind: how it is loaded or stored.
    frame: if the view is a part of a tensor: its first element, and the tensor's extents over the same axes.
    words: items of a batch that share a word (4N) also share it in local memory; else the transfer separates them.
    width: of a row of a matrix, as in `Move`.
    """

    view: View
    follows: tuple[int | None, ...] = (0, 1, 2, 3)
    compact: bool = False
    kind: TransferKind = "tensor"
    frame: tuple[Shape, Shape] | None = None
    words: bool = False
    width: int = 0


@dataclass(frozen=True)
class Form:
    """A command, its operands and its result (last) over four axes, and the axes of the result that may be cut.

    cuts: the first is cut first. share: the part of local memory that one tile should fill at most, so that transfers
    and computing overlap. most: most lanes of a tile, 0 for all. columns: most of the last axis, 0 for all.
    one_by_one: a tile has one element of axis 0, and transfers do not overlap computing. again: a tile loads
    everything that it needs, even if it is already loaded.
    """

    body: Command
    parts: tuple[Part, ...]
    cuts: tuple[int, ...]
    share: float = 8
    most: int = 0
    columns: int = 0
    one_by_one: bool = False
    again: bool = False

    @property
    def result(self) -> Part:
        """The part that the command writes."""
        return self.parts[-1]

    @property
    def words(self) -> int:
        """Items of a batch that share a word in local memory."""
        return self.result.view.interleave if self.result.words else 1


def seen(view: View, shape: Shape, strides: Shape | None = None) -> View:
    """A dense tensor viewed over other axes."""
    if strides is None or strides == dense_strides(shape):
        return replace(view, shape=shape, layout="dense", strides=None, batch_axis=0)
    return replace(view, shape=shape, layout="strided", strides=strides, batch_axis=0)


def constant(view: View) -> Part:
    """A constant that every lane reads."""
    return Part(seen(view, (1, 1, 1, view.elements)), (None,) * AXES, compact=True, kind="broadcast")


def is_dense(body: Command) -> bool:
    """Whether every operand is stored in the order of its axes, without gaps."""
    return all(view.layout == "dense" for _, view in body.operands())


def divisor(number: int, least: int) -> int:
    """The smallest divisor that is not below `least`."""
    return next(d for d in range(least, number + 1) if number % d == 0)
