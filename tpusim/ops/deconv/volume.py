"""`tpu.Deconv3D`: int32 accumulators or floats of a transposed 3-D convolution, a global layer."""

from collections.abc import Sequence

from tpusim_kernels import deconv3d as kernels
from typing_extensions import override
from xdsl.irdl import irdl_op_definition

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.ops.deconv.base import DeconvBase
from tpusim.ops.deconv.geometry import deconv_need
from tpusim.ops.framework.base import Array, EmitContext
from tpusim.ops.framework.families import is_set, part_of, relu_limit_of, relu_of, zero_point


@irdl_op_definition
class TpuDeconv3D(DeconvBase):
    """`tpu.Deconv3D`: transposed convolution, input (n, ic, d, h, w), filter (oc, ic/g, kd, kh, kw).

    Integers give int32 (accumulator + bias, with relu; tpu.RequantIntAxis follows), floats a float. Inserted and padded
    elements have the zero point of the input.
    """

    name = "tpu.Deconv3D"

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Exact integers, or f32 (numerics.md 9.1)."""
        x, w, b, _ = self.unpacked(operands)
        if self.integer:
            return (kernels.deconv3d_accumulate(x, w, b, zero_point(self.input), **self.geometry),)
        return (kernels.deconv3d_float(x, w, b, relu_limit=relu_limit_of(self), **self.geometry),)

    @override
    def _accumulated(self, x: Array, filter: Array) -> Array:
        return kernels.deconv3d_accumulate(x, filter, None, zero_point(self.input), **self.linear)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        del chip
        return "a transposed 3-D convolution has no local form (layer_group.md 2)"

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One 3-D CONV of a global kernel that inserts elements into its input; the kernel is rotated."""
        view, before, after = ctx.input(0), list[int](), list[int]()
        for i, size in enumerate(shape_of(self.input)[2:]):
            whole = (0, shape_of(self.output)[2 + i])
            need = deconv_need(whole, size, self.reach[i], ints(self.strides)[i], ints(self.pads)[i])
            assert need is not None  # checked by deconv_extent
            (start, count), low, high = need
            before.append(low)
            after.append(high)
            if count < size:
                view = part_of(view, 2 + i, start, (*view.shape[: 2 + i], count, *view.shape[3 + i :]), ctx.chip)
        ctx.emit(
            isa.Conv, **self.coefficient_fields(ctx), input=view, output=ctx.output(), kernel=self.kernel,
            strides=(1, 1, 1), pads=(*before, *after), dilations=self.geometry["dilations"],
            inserts=tuple(stride - 1 for stride in ints(self.strides)), rotate=True,
            turned=is_set(self.filter_turned), groups=self.groups, pad_value=zero_point(self.input), relu=relu_of(self),
            relu_limit=relu_limit_of(self),
        )  # fmt: skip
