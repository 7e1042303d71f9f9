"""What layer groups ask of tpu ops about the slices of their operands (layer_group.md 7)."""

from typing import ClassVar, Literal, Protocol

from xdsl.ir import Operation

from tpusim.chips import ChipSpec
from tpusim.interfaces import implementation, rules
from tpusim.ir.module import OfChip
from tpusim.ops.framework.contexts import SliceTable
from tpusim.ops.framework.logical import Axis, Window
from tpusim.ops.interfaces.groups import GroupRules


class Volumes:
    """An op that says something about the depth of volumes (layer_group.md 2 and 3)."""

    def wants_3d(self) -> bool:
        """Whether a group with this op is of type 3D."""
        return False

    def slides_over_depth(self) -> bool:
        """Whether the op has windows over the depth: it works in 3D groups only."""
        return False

    def broadcasts_depth(self) -> bool:
        """Whether operands with five axes differ in depth: such an op is alone before windows over volumes."""
        return False


class SliceTables:
    """An op with an operand that is made anew for the slices of the result (layer_group.md 7.5)."""

    def slice_table(self) -> SliceTable | None:
        """The operand; None: this op has none."""
        raise NotImplementedError

    def drop_local_constants(self) -> None:
        """Give up operands that only the form in local memory reads: the op is a global layer."""
        raise NotImplementedError


def slice_table_of(op: Operation) -> SliceTable | None:
    """The operand of an op that is made anew for the slices of the result; None: it has none."""
    return op.slice_table() if isinstance(op, SliceTables) else None


class OperandSlices:
    """An op with operands that are not cut, loaded and dropped as activations and constants are by default."""

    def splits_weight(self, operand: int) -> bool:
        """Whether this constant is cut with the result instead of staying whole (layer_group.md 7.5)."""
        del operand
        return False

    def holds_operand(self, operand: int) -> bool:
        """Whether this operand is loaded once and stays if every slice needs all of it (layer_group.md 7.1, 8.5)."""
        del operand
        return False


def splits_weight(op: Operation, operand: int, chip: ChipSpec) -> bool:
    """Whether a constant operand of an op is cut with the result."""
    asked = implementation(op, OperandSlices, chip)
    return asked is not None and asked.splits_weight(operand)


def holds_operand(op: Operation, operand: int, chip: ChipSpec) -> bool:
    """Whether an operand that every slice needs whole is loaded once."""
    asked = implementation(op, OperandSlices, chip)
    return asked is not None and asked.holds_operand(operand)


Margins = Literal["none", "passed", "read"]
"""What a chip's kernels do with a slice that is larger than the op needs (U-81): nothing, they give it to the users of
the result as large as it is, or they read a part (layer_group.md 7.3)."""


class SharedWindows:
    """An op whose commands can read a window out of a larger slice, shared with other users (layer_group.md 7.3)."""

    MARGINS: ClassVar[Margins] = "none"
    """Which of these the kernels do."""

    def accepts_margins(self) -> bool:
        """Whether the commands of this op can."""
        return True

    def reads_windows(self, chip: ChipSpec) -> bool:
        """Whether the chip's kernels do."""
        only_convolutions = rules(chip, GroupRules).ONLY_CONVOLUTIONS_SHARE
        return self.MARGINS == "read" and self.accepts_margins() and not only_convolutions


def reads_windows(op: Operation, chip: ChipSpec) -> bool:
    """Whether an op reads a window out of a larger slice."""
    asked = implementation(op, SharedWindows, chip)
    return asked is not None and asked.reads_windows(chip)


def shares_windows(op: Operation, chip: ChipSpec) -> bool:
    """Whether an op's operand may be shared with ops that need other windows.

    This op, or every user of its result, reads a part of a slice.
    """
    asked = implementation(op, SharedWindows, chip)
    if asked is None or asked.MARGINS != "passed":
        return asked is not None and asked.reads_windows(chip)
    users = (use.operation for use in op.results[0].uses)
    return all(not user.has_trait(OfChip) or reads_windows(user, chip) for user in users)


class ChipSlicing:
    """An op that not every chip cuts alike."""

    def backward_slice_on(self, chip: ChipSpec, axis: Axis, window: Window, operand: int) -> Window | None:
        """`backward_slice` on this chip."""
        raise NotImplementedError


class _Cut(Protocol):
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None: ...


def needed_window(op: _Cut, chip: ChipSpec, axis: Axis, window: Window, operand: int) -> Window | None:
    """Which window of an operand a window of the result needs; None: cannot be cut so (layer_group.md 7.2)."""
    if isinstance(op, ChipSlicing):
        return op.backward_slice_on(chip, axis, window, operand)
    return op.backward_slice(axis, window, operand)
