"""Ops in local memory (layer_group.md 2)."""

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ops.add import TpuAdd
from tpusim.ops.cast import TpuCast
from tpusim.ops.concat import TpuConcat
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.deconv.tpu import TpuDeconv
from tpusim.ops.interfaces import LocalGen, WindowRules
from tpusim.ops.mul import TpuMul
from tpusim.ops.planes import VolumeTpu
from tpusim.ops.view import TpuReshape, why_other_view
from tpusim.targets.cv18xx.target import TARGET


@TARGET.provide(WindowRules)
class Windows(WindowRules):
    """Wide strides and dilations have no local form."""

    GATHERS_WIDE = False


@TARGET.attach(TpuCast, LocalGen)
class Casts(Model[TpuCast], LocalGen):
    """Between BF16 and signed integers."""

    def why_global(self, chip: ChipSpec) -> str | None:
        """From or to f32 and unsigned integers; else as every element-wise op."""
        kinds = {storage_dtype(element_of(value)).name for value in (self.op.input, self.op.output)}
        if kinds & {"float32", "uint8"}:
            return f"{chip.name} casts only between BF16 and signed integers in local memory"
        return self.op.why_global(chip)


@TARGET.attach(TpuAdd, LocalGen)
@TARGET.attach(TpuMul, LocalGen)
class OfEqualShapes(Model[TpuAdd | TpuMul], LocalGen):
    """Of two tensors of one shape."""

    def why_global(self, chip: ChipSpec) -> str | None:
        """More operands, or other shapes."""
        shapes = [shape_of(value) for value in self.op.inputs]
        if len(shapes) != 2 or shapes[0] != shapes[1]:  # noqa: PLR2004
            return f"{chip.name} combines two tensors of one shape in local memory"
        return self.op.why_global(chip)


@TARGET.attach(VolumeTpu, LocalGen)
class Volumes(Model[VolumeTpu], LocalGen):
    """No volume has a form in local memory."""

    def why_global(self, chip: ChipSpec) -> str | None:
        """Why it is a global layer, whatever its type."""
        return self.op.why_global(chip) or f"no window over a volume has a local form on {chip.name}"


@TARGET.attach(TpuConv2D, LocalGen)
@TARGET.attach(TpuDeconv, LocalGen)
class Convolutions(Model[TpuConv2D | TpuDeconv], LocalGen):
    """The output channels of a group fill at most one row of lanes."""

    def why_global(self, chip: ChipSpec) -> str | None:
        """Wider groups, and odd ones; else as everywhere."""
        why, op = self.op.why_global(chip), self.op
        each = op.channels[1] // op.groups
        if why is None and op.groups > 1 and not op.depthwise and (each > chip.lanes or each % 2):
            return f"{each} output channels per group: an even number up to {chip.lanes} is required"
        return why


@TARGET.attach(TpuConcat, LocalGen)
class Concats(Model[TpuConcat], LocalGen):
    """Along the channels."""

    def why_global(self, chip: ChipSpec) -> str | None:
        """Along another axis; else as everywhere."""
        if self.op.along != 1:
            return f"{chip.name} joins channels only in local memory"
        return self.op.why_global(chip)


@TARGET.attach(TpuReshape, LocalGen)
class Views(Model[TpuReshape], LocalGen):
    """Only those that windows over rows have around them (U-82)."""

    def why_global(self, chip: ChipSpec) -> str | None:
        """Unless it adds or drops a fourth axis of extent 1."""
        return why_other_view(self.op, chip) or self.op.why_global(chip)
