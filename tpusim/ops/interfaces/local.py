"""What layer groups ask of tpu ops (LocalGenInterface)."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Operation

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
    """Local memory that the op takes in addition to its tensors."""

    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Bytes per lane for one slice of the result (layer_group.md 9.3)."""
        del chip, output, inputs
        return 0


class WindowRules(Rules):
    """Which windows the chip's local memory takes."""

    GATHERS_WIDE = True
    """Convolutions with a stride or dilation above `max_stride` gather what their windows see (codegen.md DC-09)."""


class HostComputed:
    """An op that the host's processor may compute for some of its types."""

    def of_host(self, chip: ChipSpec) -> bool:
        """Whether the host computes it on this chip."""
        raise NotImplementedError


def on_host(op: Operation, chip: ChipSpec) -> bool:
    """Whether the host's processor computes an op, so that the chip has no command for it."""
    asked = implementation(op, HostComputed, chip)
    by_type = asked is not None and asked.of_host(chip)
    return by_type or chip.is_on_host(op.name.replace("tpu.", "top.", 1))


class KernelLibrary(Rules):
    """What the library of kernels for global layers has."""

    LONE_CASTS = True
    """A cast, table, function, softmax, sum, requant or op with a constant that would be alone in its group becomes a
    global layer (U-76)."""
    PERMUTES_BY_MATRICES = True
    """A Permute that one copy of whole rows or one transposition of matrices cannot do takes several transpositions."""
    UPSAMPLES_BY_INDICES = True
    """tpu.Upsample gathers by a constant table of indices in a layer group, and runs in tiles alone; else it copies its
    operand to every place of a cell in a group, and works in global memory alone."""


class LibraryKernel:
    """An op that may be a kernel of the library instead of a layer group with this op alone."""

    ALONE: ClassVar[str] = ""
    """What messages call it, if its kernel is in the library wherever that of casts is (`LONE_CASTS`)."""

    def why_rather_global(self, chip: ChipSpec) -> str | None:
        """Why the op, which could be a layer group, is a global layer instead; None: it is not."""
        alone = self.ALONE and rules(chip, KernelLibrary).LONE_CASTS
        return f"{self.ALONE} with no op beside it has a kernel of its own" if alone else None


def why_rather_global(op: Operation, chip: ChipSpec) -> str | None:
    """Why an op that would be alone in its group is a global layer instead; None: it is not."""
    asked = implementation(op, LibraryKernel, chip)
    return None if asked is None else asked.why_rather_global(chip)


class Overwrites:
    """An op whose result may take the bytes of an operand in local memory (layer_group.md 10.1, rule 6)."""

    def may_overwrite(self, operand: int) -> bool:
        """Whether a result laid out like this operand may take its bytes.

        Every command that reads the operand comes before the first that writes the result, or does both element by
        element.
        """
        raise NotImplementedError


def may_overwrite(op: Operation, operand: int, chip: ChipSpec) -> bool:
    """Whether the result of an op may take the bytes of an operand that is laid out like it."""
    asked = implementation(op, Overwrites, chip)
    return asked is not None and asked.may_overwrite(operand)


class LaneCopies:
    """An op that may read its first operand from several lanes at once, of copies in its work area."""

    def copies_over_lanes(self) -> bool:
        """Whether the op reads such copies."""
        raise NotImplementedError

    def copied_by_load(self) -> bool:
        """Whether a load that is for this op alone makes the copies at no cost."""
        raise NotImplementedError


class Uncounted:
    """An op whose time does not count where transfers are moved to its time step (layer_group.md 8.4, U-80)."""
