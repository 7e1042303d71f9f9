"""Questions of layer groups to tpu ops: local forms, work areas, library kernels (LocalGenInterface)."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute, Operation

from tpusim.chips import ChipSpec
from tpusim.interfaces import Rules, implementation, rules
from tpusim.ops.framework.logical import TensorSlice


class LocalGen:
    """The op in local memory."""

    def why_global(self, chip: ChipSpec) -> str | None:
        """Why this op cannot run from local memory; None if it can (layer_group.md 2)."""
        del chip
        return "tpusim has no local form of this op"


class WorkArea:
    """The local memory that the op needs in addition to its tensors."""

    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Bytes per lane for one slice of the result (layer_group.md 9.3)."""
        del chip, output, inputs
        return 0


class WindowRules(Rules):
    """Which strides and dilations have a local form."""

    GATHERS_WIDE = True
    """A convolution with a stride or dilation above `max_stride` copies the elements of each window together first
    (codegen.md DC-09)."""


class HostComputed:
    """An op that the host's processor may compute for some of its types."""

    def of_host(self, chip: ChipSpec) -> bool:
        """Whether the host computes this op on this chip."""
        raise NotImplementedError


def on_host(op: Operation, chip: ChipSpec) -> bool:
    """Whether the host's processor computes an op, because of its types or because the chip's file says so."""
    asked = implementation(op, HostComputed, chip)
    by_type = asked is not None and asked.of_host(chip)
    return by_type or chip.is_on_host(op.name.replace("tpu.", "top.", 1))


class KernelLibrary(Rules):
    """The kernels of the library for global layers."""

    LONE_CASTS = True
    """An element-wise op, cast, table, softmax, concatenation or requant that would be alone in its group becomes a
    global layer (U-76)."""
    PERMUTES_BY_MATRICES = True
    """A Permute that one copy of whole rows or one transposition of matrices cannot do takes several transpositions."""
    GLOBAL_BUFFERS = True
    """Kernels of some global layers need room in global memory for intermediate values."""
    UPSAMPLES_BY_INDICES = True
    """In a layer group tpu.Upsample gathers by a constant table of indices; alone it runs in tiles. If false, it copies
    its operand to every place of a cell in a group; alone it works in global memory."""


class LibraryKernel:
    """An op for which TPU-MLIR's library may have a kernel, used instead of a layer group of this op alone."""

    ALONE: ClassVar[str] = ""
    """The op in messages, for ops with a kernel in libraries of `LONE_CASTS`; "": for other ops."""

    def why_rather_global(self, chip: ChipSpec) -> str | None:
        """Why the op, although it has a local form, becomes a global layer if it is alone; None if it does not."""
        known = self.ALONE and rules(chip, KernelLibrary).LONE_CASTS
        return f"the library has a kernel for {self.ALONE} that is alone in its group" if known else None


def why_rather_global(op: Operation, chip: ChipSpec) -> str | None:
    """Why an op that would be alone in its group becomes a global layer instead; None if it does not."""
    asked = implementation(op, LibraryKernel, chip)
    return None if asked is None else asked.why_rather_global(chip)


class Overwrites:
    """An op whose result may overwrite an operand in local memory (layer_group.md 10.1, rule 6)."""

    def may_overwrite(self, operand: int) -> bool:
        """Whether the result, laid out like this operand, may be stored in its bytes.

        True if all reads of the operand come before the first write of the result, or if one command reads and writes
        element by element.
        """
        raise NotImplementedError


def may_overwrite(op: Operation, operand: int, chip: ChipSpec) -> bool:
    """Whether the result of an op may be stored in the bytes of an operand with the same layout."""
    asked = implementation(op, Overwrites, chip)
    return asked is not None and asked.may_overwrite(operand)


class LaneCopies:
    """An op that may need copies of its first operand in several lanes, in its work area."""

    def copies_over_lanes(self) -> bool:
        """Whether the op needs these copies."""
        raise NotImplementedError

    def copied_by_load(self) -> bool:
        """Whether a load makes the copies, channel by channel, if only this op reads the loaded tensor."""
        raise NotImplementedError

    def state_copies(self, *, loaded: bool) -> None:
        """State in the op of a group who makes the copies. loaded: a load makes the operand."""
        raise NotImplementedError

    def stated_copies(self) -> Attribute | None:
        """What TPU-MLIR states of the copies in the load of the operand; None without copies."""
        raise NotImplementedError


class Uncounted:
    """An op whose time does not count where transfers are moved to its time step (layer_group.md 8.4, U-80)."""
