"""Questions of layer groups to tpu ops about the slices of their operands (layer_group.md 7)."""

from typing import ClassVar, Literal, Protocol

from xdsl.ir import Operation

from tpusim.chips import ChipSpec
from tpusim.interfaces import implementation, rules
from tpusim.ir.module import OfChip
from tpusim.ops.framework.contexts import SliceTable
from tpusim.ops.framework.logical import Axis, Window
from tpusim.ops.interfaces.groups import GroupRules


class Volumes:
    """An op with rules about the depth of volumes (layer_group.md 2 and 3)."""

    def wants_3d(self) -> bool:
        """Whether a group with this op is of type 3D."""
        return False

    def slides_over_depth(self) -> bool:
        """Whether windows of the op slide over the depth, so that it is allowed in 3D groups only."""
        return False

    def broadcasts_depth(self) -> bool:
        """Whether operands with five axes differ in depth; such an op stays alone if windows over volumes follow."""
        return False


class SliceTables:
    """An op with a constant that is computed again for the slices of the result (layer_group.md 7.5)."""

    def slice_table(self) -> SliceTable | None:
        """The constant; None if this op has none."""
        raise NotImplementedError

    def drop_local_constants(self) -> None:
        """Remove the operands that only the local form reads, because the op became a global layer."""
        raise NotImplementedError


def slice_table_of(op: Operation) -> SliceTable | None:
    """The constant of an op that is computed again for the slices of the result; None if it has none."""
    return op.slice_table() if isinstance(op, SliceTables) else None


class OperandSlices:
    """An op with operands that are cut or loaded in another way than activations and constants are by default."""

    def splits_weight(self, operand: int) -> bool:
        """Whether this constant is cut like the result; by default it is loaded whole (layer_group.md 7.5)."""
        del operand
        return False

    def holds_operand(self, operand: int) -> bool:
        """Whether this operand, if every slice needs all of it, stays loaded (layer_group.md 7.1, 8.5)."""
        del operand
        return False


def splits_weight(op: Operation, operand: int, chip: ChipSpec) -> bool:
    """Whether a constant operand of an op is cut like the result."""
    asked = implementation(op, OperandSlices, chip)
    return asked is not None and asked.splits_weight(operand)


def holds_operand(op: Operation, operand: int, chip: ChipSpec) -> bool:
    """Whether an operand that every slice needs whole is loaded once and stays."""
    asked = implementation(op, OperandSlices, chip)
    return asked is not None and asked.holds_operand(operand)


Margins = Literal["none", "passed", "read"]
"""What a chip's kernels can do with an operand slice that is larger than needed (U-81, layer_group.md 7.3): "none";
"passed": compute all of it, so that the users of the result get a larger slice too; "read": read only a part."""


class SharedWindows:
    """An op that can share a larger operand slice with other ops (layer_group.md 7.3)."""

    MARGINS: ClassVar[Margins] = "none"
    """What the kernels of this op can do."""

    def accepts_margins(self) -> bool:
        """Whether the commands of this op can read a part of a slice."""
        return True

    def reads_windows(self, chip: ChipSpec) -> bool:
        """Whether the kernels of this chip read a part of a slice."""
        only_convolutions = rules(chip, GroupRules).ONLY_CONVOLUTIONS_SHARE
        return self.MARGINS == "read" and self.accepts_margins() and not only_convolutions


def reads_windows(op: Operation, chip: ChipSpec) -> bool:
    """Whether an op reads a part of an operand slice."""
    asked = implementation(op, SharedWindows, chip)
    return asked is not None and asked.reads_windows(chip)


def shares_windows(op: Operation, chip: ChipSpec) -> bool:
    """Whether an op's operand may be shared with ops that need other windows.

    True if this op, or every user of its result, can read a part of a slice.
    """
    asked = implementation(op, SharedWindows, chip)
    if asked is None or asked.MARGINS != "passed":
        return asked is not None and asked.reads_windows(chip)
    users = (use.operation for use in op.results[0].uses)
    return all(not user.has_trait(OfChip) or reads_windows(user, chip) for user in users)


class ChipSlicing:
    """An op whose slices depend on the chip."""

    def backward_slice_on(self, chip: ChipSpec, axis: Axis, window: Window, operand: int) -> Window | None:
        """`backward_slice` on this chip."""
        raise NotImplementedError


class _Cut(Protocol):
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None: ...


def needed_window(op: _Cut, chip: ChipSpec, axis: Axis, window: Window, operand: int) -> Window | None:
    """The window of an operand that a window of the result needs; None if no such cut exists (layer_group.md 7.2)."""
    if isinstance(op, ChipSlicing):
        return op.backward_slice_on(chip, axis, window, operand)
    return op.backward_slice(axis, window, operand)
