"""Commands over whole tensors of any rank as commands over four axes, which local memory has (hardware.md 2.1).

A form is the same computation: each operand is another view of the same bytes, and the axes of the command are renamed.
Axes that cannot be merged to four, and windows outside the ranges of a command have no form. Elements of 4 bits have
forms for products only, packed batches (4N) for convolutions, products, selections (Where) and pads only.
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

    follows: for each axis the axis of the result with which it is cut; None: every tile needs all of it. compact: it is
    not aligned in local memory, like constants. kind, width: as in `Move`. frame: for a view of a part of a tensor, the
    first element and the extents of the tensor over the same axes. words: batch items that share a word (4N) also share
    it in local memory; else the transfer separates them.
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

    cuts: in the order in which axes are cut. share: one tile fills at most 1/share of local memory, so that transfers
    and computation overlap. most: the most elements of axis 1 in a tile, 0: no limit. columns: the most elements of the
    last axis, 0: no limit. one_by_one: a tile has one element of axis 0, and transfers do not overlap computation.
    again: a tile loads all its operands, even if they are loaded already. even: the axis that is cut into equal
    sections, as few as fit twice into banks of local memory, but one or at least three; None: as `share` says.
    """

    body: Command
    parts: tuple[Part, ...]
    cuts: tuple[int, ...]
    share: float = 8
    most: int = 0
    columns: int = 0
    one_by_one: bool = False
    again: bool = False
    even: int | None = None

    @property
    def result(self) -> Part:
        """The part that the command writes."""
        return self.parts[-1]

    @property
    def words(self) -> int:
        """The number of batch items that share a word in local memory."""
        return self.result.view.interleave if self.result.words else 1


def seen(view: View, shape: Shape, strides: Shape | None = None) -> View:
    """The bytes of a dense tensor as a view over other axes."""
    if strides is None or strides == dense_strides(shape):
        return replace(view, shape=shape, layout="dense", strides=None, batch_axis=0)
    return replace(view, shape=shape, layout="strided", strides=strides, batch_axis=0)


def constant(view: View) -> Part:
    """A constant that is copied to every lane."""
    return Part(seen(view, (1, 1, 1, view.elements)), (None,) * AXES, compact=True, kind="broadcast")


def is_dense(body: Command) -> bool:
    """Whether every operand is stored in the order of its axes, without gaps."""
    return all(view.layout == "dense" for _, view in body.operands())


def divisor(number: int, least: int) -> int:
    """The smallest divisor that is not below `least`."""
    return next(d for d in range(least, number + 1) if number % d == 0)
