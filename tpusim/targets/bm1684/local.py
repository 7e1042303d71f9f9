"""Which ops have a local form (layer_group.md 2)."""

from typing_extensions import override

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ops.framework.planes import VolumeTpu
from tpusim.ops.interfaces import LocalGen
from tpusim.ops.slice import TpuSlice
from tpusim.targets.bm1684.target import TARGET

F32_BYTES = 4
RANK = 4
LONGEST_PLANE = 1 << 19
"""Planes of this many elements or more have no local Slice."""


@TARGET.attach(VolumeTpu, LocalGen)
class Volumes(Model[VolumeTpu], LocalGen):
    """Only floats have local windows over volumes."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """The reason of the op, or that of the family for integers."""
        integer = storage_dtype(element_of(self.op.operands[0])).itemsize < F32_BYTES
        none = f"no integer window over a volume has a local form on {chip.name}" if integer else None
        return self.op.why_global(chip) or none


@TARGET.attach(TpuSlice, LocalGen)
class Slices(Model[TpuSlice], LocalGen):
    """A local Slice has four axes and the whole batch, and starts in lane 0."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """The op's conditions; whole batch, first channel in lane 0, four axes, planes below `LONGEST_PLANE`."""
        why = self.op.why_global(chip)
        if why is not None:
            return why
        x, first = shape_of(self.op.input), self.op.first_channel
        if self.op.cuts_batch:
            return "the batch is cut"
        if first % chip.lanes:
            return f"its first channel, {first}, is not in lane 0"
        if len(x) != RANK or x[2] * x[3] >= LONGEST_PLANE:
            return (
                f"Slice from {x} to {shape_of(self.op.output)}; local are four axes and planes below {LONGEST_PLANE:,}"
            )
        return None
