"""Local forms of Conv3D and Pool3D: a slice of a volume as one image per depth (hardware.md 2.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.types import element_of, shape_of
from tpusim.isa import commands as isa
from tpusim.isa.layout import activation_view
from tpusim.isa.region import View
from tpusim.ops.framework.base import EmitContext, GroupType, TpuOp, Window
from tpusim.ops.framework.families import MAX_PAD, command_dtype, padded_window, part_of
from tpusim.ops.interfaces import Volumes


class VolumeTpu(TpuOp, Volumes):
    """An op with a window that slides over d, h and w."""

    @override
    def wants_3d(self) -> bool:
        return True

    @override
    def slides_over_depth(self) -> bool:
        return True

    @override
    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        if kind is not GroupType.GROUP_3D:
            return f"{self.name} works in 3D groups only"
        return super().why_not_in(kind, chip)


def why_volume_global(strides: Sequence[int], pads: Sequence[int], chip: ChipSpec) -> str | None:
    """Why windows over a volume are not local: strides above 15 or wide pads (layer_group.md 2); None if they are.

    Pads along the depth may have any size, because no command pads along it.
    """
    if max(strides) > chip.max_stride:
        return f"stride {max(strides)} above {chip.max_stride}"
    _, top, left, _, bottom, right = pads
    return f"pads above {MAX_PAD}" if max(top, left, bottom, right) > MAX_PAD else None


def depths_seen(depths: Sequence[int], size: int) -> list[tuple[int, int]]:
    """(tap, input depth) of the taps that lie inside the volume."""
    return [(k, at) for k, at in enumerate(depths) if 0 <= at < size]


@dataclass(frozen=True)
class Planes:
    """The windows of an output slice in the planes of a volume; they are the same at every depth.

    images: batch of the slice. rows, columns: windows that are read of each plane. pads: (top, left, bottom, right), by
    which the windows reach beyond the plane.
    """

    volume: SSAValue
    images: int
    rows: Window
    columns: Window
    pads: tuple[int, int, int, int]

    @classmethod
    def of(
        cls, volume: SSAValue, ctx: EmitContext, strides: Sequence[int], pads: Sequence[int], reach: Sequence[int]
    ) -> "Planes":
        """The planes of an op's first operand, for windows of `reach` elements along (d, h, w)."""
        out = ctx.output_slice()
        *_, height, width = shape_of(volume)
        rows, (top, bottom) = padded_window(out.h, height, reach[1], strides[1], pads[1])
        columns, (left, right) = padded_window(out.w, width, reach[2], strides[2], pads[2])
        return cls(volume, out.n[1], rows, columns, (top, left, bottom, right))

    def input(self, ctx: EmitContext, depth: int) -> View:
        """The images (n, c, rows, columns) of one depth."""
        return ctx.input(0, d=(depth, 1), h=self.rows, w=self.columns)

    def padding(self, ctx: EmitContext) -> View:
        """The images of a depth outside the volume: one value, which `emit_padding` puts into the work area."""
        shape = (self.images, shape_of(self.volume)[1], self.rows[1], self.columns[1])
        dtype = command_dtype(element_of(self.volume))
        return View("lmem", ctx.buffer(), shape, dtype, "strided", strides=(0, 0, 0, 0))

    def emit_padding(self, ctx: EmitContext, value: int) -> None:
        """Emit a fill of the start of the work area with one value, in every lane that has a channel."""
        images = ctx.input(0)
        shape = (1, min(images.shape[1], ctx.chip.lanes), 1, 1)
        target = activation_view(ctx.buffer(), shape, images.dtype, ctx.chip)
        pixel = part_of(images, 0, 0, shape, ctx.chip)
        ctx.emit(isa.Where, condition=pixel, on_true=value, on_false=value, output=target)
