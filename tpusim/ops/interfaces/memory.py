"""What weight reordering, transfers and addresses ask of tpu ops."""

from xdsl.ir import Operation
from xdsl.ir.affine import AffineMap

from tpusim.chips import ChipSpec
from tpusim.ops.framework.contexts import ReorderContext
from tpusim.ops.framework.logical import Shape
from tpusim.ops.framework.moves import Way


class Reorder:
    """An op whose constants have a layout of the chip (weight-reorder pass)."""

    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Replace weight operands by their layout on the chip."""
        raise NotImplementedError


class Alignment:
    """How operands lie in local memory."""

    def compact_operands(self, chip: ChipSpec) -> tuple[int, ...]:
        """The operands that are not EU-aligned (hardware.md 2.3)."""
        del chip
        return ()


class PackedWeights:
    """An op whose constants may be packed bytes, which the host unpacks."""

    def needs_concrete_weights(self) -> bool:
        """Whether `inference` must see the weights' data, not tracers."""
        raise NotImplementedError


class MovedByTransfers:
    """An op that moves elements, so that a load or store of a layer group can do its work."""

    def moves(self, way: Way) -> AffineMap | None:
        """What the op moves; None: no transfer can.

        way: of a load ("s2l") from indices of the result to those of the operand, of a store ("l2s") the other way.
        """
        raise NotImplementedError

    def padding(self) -> tuple[Shape, float] | None:
        """(how much before every axis, then after; its value as stored) of what a store makes in the op's place."""
        return None


def moves_of(op: Operation, way: Way) -> AffineMap | None:
    """What an op moves, if a transfer can do it."""
    return op.moves(way) if isinstance(op, MovedByTransfers) else None


def padding_of(op: Operation) -> tuple[Shape, float] | None:
    """What a store adds to a tensor in the place of an op."""
    return op.padding() if isinstance(op, MovedByTransfers) else None


class InPlace:
    """An op whose result may be its first operand's bytes in global memory (hardware.md 3.3)."""

    def in_place(self) -> bool:
        """Whether the result is these bytes."""
        raise NotImplementedError


def is_in_place(op: Operation) -> bool:
    """Whether an op's result is the bytes of its first operand in global memory."""
    return isinstance(op, InPlace) and op.in_place()


class GathersRows:
    """Rows that it takes may be moved inside global memory at a rate of their own (`gather_gbs`)."""


class Inserted:
    """A conversion or rescale, which is inserted directly after its operand (U-75)."""
