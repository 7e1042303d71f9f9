"""What layer groups ask of tpu ops (LocalGenInterface)."""

from collections.abc import Sequence

from tpusim.chips import ChipSpec
from tpusim.interfaces import Rules
from tpusim.ops.logical import TensorSlice


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
