"""Questions of weight reordering, transfers and address assignment to tpu ops."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.ir import Attribute, Operation
from xdsl.ir.affine import AffineMap

from tpusim.chips import ChipSpec
from tpusim.interfaces import implementation, rules
from tpusim.ops.framework.contexts import ReorderContext
from tpusim.ops.framework.logical import Shape
from tpusim.ops.framework.moves import Way
from tpusim.ops.interfaces.local import KernelLibrary


class Reorder:
    """An op whose constants are stored in a layout of the chip (weight-reorder pass)."""

    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Replace weight operands by their layout on the chip."""
        raise NotImplementedError


class Alignment:
    """The alignment of operands in local memory."""

    def compact_operands(self, chip: ChipSpec) -> tuple[int, ...]:
        """The operands that are not EU-aligned (hardware.md 2.3)."""
        del chip
        return ()


class LibraryTypes:
    """An op whose constants or attributes the vendor's library reads in another form than this machine does."""

    def library_types(self, chip: ChipSpec) -> Mapping[int, Attribute]:
        """Operand -> the element type in which the library reads it."""
        raise NotImplementedError

    def library_attributes(self, chip: ChipSpec) -> Mapping[str, Attribute]:
        """Attributes that tell the library of a layout which tpusim states otherwise."""
        del chip
        return {}


class PartlyGenerated:
    """An op of which some forms lack what TPU-MLIR's code generator needs."""

    def why_not_generated(self) -> str | None:
        """Why the generator would make a file that computes other numbers; None if it would not."""
        raise NotImplementedError


@dataclass(frozen=True)
class Room:
    """Global memory for the intermediate values of one op: shape and element type.

    stated: attributes that tell the library to use it.
    """

    shape: Shape
    element: Attribute
    stated: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])


class GlobalBuffer:
    """An op for which the vendor's library needs room in global memory; the machine here computes without."""

    def global_buffer(self, chip: ChipSpec) -> Room | None:
        """The room that the op needs as a global layer (U-111); None without."""
        raise NotImplementedError


def room_of(op: Operation, chip: ChipSpec) -> Room | None:
    """The room in global memory that the library needs for an op outside groups; None without."""
    asked = implementation(op, GlobalBuffer, chip) if rules(chip, KernelLibrary).GLOBAL_BUFFERS else None
    return None if asked is None else asked.global_buffer(chip)


class PackedWeights:
    """An op whose constants may be packed bytes that the host unpacks."""

    def needs_concrete_weights(self) -> bool:
        """Whether `inference` needs the data of the weights instead of tracers."""
        raise NotImplementedError


class MovedByTransfers:
    """An op that only moves elements, so that a load or store of a layer group can do its work."""

    def moves(self, way: Way) -> AffineMap | None:
        """The map of indices by which a transfer does the op's work; None if no transfer can.

        way: for a load ("s2l") from indices of the result to those of the operand, for a store ("l2s") the reverse.
        """
        raise NotImplementedError

    def padding(self) -> tuple[Shape, float] | None:
        """(elements before every axis, then after; stored value) of the padding that a store adds for the op."""
        return None


def moves_of(op: Operation, way: Way) -> AffineMap | None:
    """The map of indices of `MovedByTransfers.moves`; None if no transfer can do the op's work."""
    return op.moves(way) if isinstance(op, MovedByTransfers) else None


def padding_of(op: Operation) -> tuple[Shape, float] | None:
    """The padding that a store adds in place of an op; None if it adds none."""
    return op.padding() if isinstance(op, MovedByTransfers) else None


class InPlace:
    """An op whose result may share the bytes of its first operand in global memory (hardware.md 3.3)."""

    def in_place(self) -> bool:
        """Whether the result shares these bytes."""
        raise NotImplementedError


def is_in_place(op: Operation) -> bool:
    """Whether an op's result shares the bytes of its first operand in global memory."""
    return isinstance(op, InPlace) and op.in_place()


class GathersRows:
    """An op that may gather rows inside global memory, at the rate `gather_gbs`."""


class Inserted:
    """A conversion or rescale that the compiler inserts directly after its operand (U-75)."""
