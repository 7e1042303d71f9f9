"""Which ops have a local form (layer_group.md 2)."""

from typing_extensions import override

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ops.add import TpuAdd
from tpusim.ops.cast import TpuCast
from tpusim.ops.concat import TpuConcat
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.deconv.tpu import TpuDeconv
from tpusim.ops.framework.planes import VolumeTpu
from tpusim.ops.interfaces import LocalGen
from tpusim.ops.mul import TpuMul
from tpusim.ops.slice import TpuSlice
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TpuCast, LocalGen)
class Casts(Model[TpuCast], LocalGen):
    """Only casts between BF16 and signed integers have a local form."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Casts from or to f32 or unsigned integers are global; other casts follow the rule of element-wise ops."""
        kinds = {storage_dtype(element_of(value)).name for value in (self.op.input, self.op.output)}
        if kinds & {"float32", "uint8"}:
            return f"{chip.name} casts only between BF16 and signed integers in local memory"
        return self.op.why_global(chip)


@TARGET.attach(TpuAdd, LocalGen)
@TARGET.attach(TpuMul, LocalGen)
class OfEqualShapes(Model[TpuAdd | TpuMul], LocalGen):
    """Only sums and products of two tensors of one shape have a local form."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """More than two operands, or operands of different shapes, make it global."""
        shapes = [shape_of(value) for value in self.op.inputs]
        if len(shapes) != 2 or shapes[0] != shapes[1]:  # noqa: PLR2004
            return f"{chip.name} combines two tensors of one shape in local memory"
        return self.op.why_global(chip)


@TARGET.attach(TpuSlice, LocalGen)
class Slices(Model[TpuSlice], LocalGen):
    """A local Slice has the whole batch."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """The reason of the op, or a part of the batch."""
        return self.op.why_global(chip) or ("the batch is cut" if self.op.cuts_batch else None)


@TARGET.attach(VolumeTpu, LocalGen)
class Volumes(Model[VolumeTpu], LocalGen):
    """Windows over a volume have no local form."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """The reason of the op, else that of the family."""
        return self.op.why_global(chip) or f"no window over a volume has a local form on {chip.name}"


@TARGET.attach(TpuConv2D, LocalGen)
@TARGET.attach(TpuDeconv, LocalGen)
class Convolutions(Model[TpuConv2D | TpuDeconv], LocalGen):
    """The output channels of a group must be even in number and fit the lanes."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Groups with an odd number of channels, or with more channels than lanes, make the op global."""
        why, op = self.op.why_global(chip), self.op
        each = op.channels[1] // op.groups
        if why is None and op.groups > 1 and not op.depthwise and (each > chip.lanes or each % 2):
            return f"{each} output channels per group: an even number up to {chip.lanes} is required"
        return why


@TARGET.attach(TpuConcat, LocalGen)
class Concats(Model[TpuConcat], LocalGen):
    """Only a Concat of channels has a local form."""

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """A Concat along another axis than the channels is global."""
        if self.op.along != 1:
            return f"{chip.name} joins channels only in local memory"
        return self.op.why_global(chip)
