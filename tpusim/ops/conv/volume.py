"""`tpu.Conv3D`: int32 accumulators or floats of a 3-D convolution, as 2-D CONVs that are summed over the depth."""

from collections.abc import Sequence
from math import prod

from msgspec.structs import replace
from tpusim_kernels import conv3d as kernels
from typing_extensions import override
from xdsl.irdl import irdl_op_definition

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa import commands as isa
from tpusim.isa.layout import activation_view, align, ceil_div, channel_stride, lmem_bytes
from tpusim.isa.multiplications import of_convolution
from tpusim.isa.region import View, itemsize
from tpusim.ops.conv.packed import PackedConvTpu
from tpusim.ops.framework.base import Array, Axis, EmitContext, Shape, TensorSlice, Window
from tpusim.ops.framework.families import (
    MAX_AXIS,
    command_dtype,
    conv_extent,
    part_of,
    relu_limit_of,
    relu_of,
    zero_point,
)
from tpusim.ops.framework.planes import Planes, VolumeTpu, depths_seen, why_volume_global
from tpusim.ops.interfaces import Macs


@irdl_op_definition
class TpuConv3D(VolumeTpu, PackedConvTpu, Macs):
    """`tpu.Conv3D`: input (n, ic, d, h, w), filter (oc, ic/g, kd, kh, kw).

    Integers give int32 (accumulator + bias, with relu; tpu.RequantIntAxis follows), floats a float. Padding has the
    zero point of the input.
    """

    name = "tpu.Conv3D"

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(n, oc, od, oh, ow)."""
        oc, *_ = self.logical_filter_shape()
        x, pads = shape_of(self.input), ints(self.pads)
        spatial = (
            conv_extent(x[2 + i], kernel, ints(self.strides)[i], pads[i], pads[3 + i], self.geometry["dilations"][i])
            for i, kernel in enumerate(self.kernel)
        )
        return ((x[0], oc, *spatial),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Exact integers, or f32 (numerics.md 9.1)."""
        x, w, b, _ = self.unpacked(operands)
        if self.integer:
            return (kernels.conv3d_accumulate(x, w, b, zero_point(self.input), **self.geometry),)
        return (kernels.conv3d_float(x, w, b, relu_limit=relu_limit_of(self), **self.geometry),)

    @override
    def _accumulated(self, x: Array, filter: Array) -> Array:
        return kernels.conv3d_accumulate(x, filter, None, zero_point(self.input), **self.linear)

    @override
    def macs(self) -> int:
        return of_convolution(prod(shape_of(self.output)), self.channels[0], self.kernel)

    # ----------------------------------------------------------------------------------------------------- local memory

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local if the filter is constant and all extents are within limits (layer_group.md 2)."""
        if not self.packed:
            return "the filter is not constant"
        dilation, channels = max(self.geometry["dilations"][1:]), max(shape_of(self.input)[1], self.channels[1])
        if dilation > chip.max_stride:
            return f"dilation {dilation} above {chip.max_stride}"
        if channels > chip.max_conv_channels:
            return f"{channels} channels, above {chip.max_conv_channels}"
        if prod(self.kernel[1:]) * self._packing > MAX_AXIS:
            return f"a filter row above {MAX_AXIS}"
        return why_volume_global(ints(self.strides), ints(self.pads), chip)

    @property
    def _packing(self) -> int:
        assert self.filter_packing is not None  # set with filter_packed
        return self.filter_packing.value.data

    @override
    def can_slice(self, axis: Axis) -> bool:
        """Along n, d, h and w; every output channel needs all input channels of its group (layer_group.md 4)."""
        return axis != "c"

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """d, h, w: t = (s-1)*stride + max(K, stride), i = o*stride - pad (layer_group.md 7.2)."""
        if axis == "c" or operand != 0:
            return None  # every output channel needs all input channels of its group; coefficients are needed whole
        if axis not in ("d", "h", "w"):
            return window
        i = "dhw".index(axis)
        stride = ints(self.strides)[i]
        return window[0] * stride - ints(self.pads)[i], (window[1] - 1) * stride + max(self.reach[i], stride)

    # work area: a depth of padding, then the 32-bit sums of one image, then copies of channel groups

    def _widens(self) -> bool:
        """Whether the sum over kd needs 32 bits but the result has fewer."""
        return self.kernel[0] > 1 and storage_dtype(element_of(self.output)).itemsize < 4

    def _pads_depth(self) -> bool:
        """Whether an output depth needs padding as an operand: padding that is not zero, or nothing but padding."""
        size, zero = shape_of(self.input)[2], zero_point(self.input)
        seen = (self._seen(o) for o in range(shape_of(self.output)[2]))
        return any((zero and len(at) < self.kernel[0]) or not at for at in (dict(depths_seen(s, size)) for s in seen))

    def _seen(self, depth: int) -> list[int]:
        """The input depth under each tap of the kernel at an output depth; it may be in the padding."""
        first = depth * ints(self.strides)[0] - ints(self.pads)[0]
        return [first + k * self.geometry["dilations"][0] for k in range(self.kernel[0])]

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """A 32-bit plane of one image for 16 bits and kd > 1; a copy of one group's image for several groups (9.3).

        Decision: one more vector with the zero point, if padding along the depth must be multiplied.
        """
        total = chip.eu_bytes if self._pads_depth() else 0
        if self._widens():
            total += lmem_bytes((1, *output.shape[1:]), "f32", chip)
        if self.groups > 1:
            assert inputs[0] is not None  # the operand is a tensor
            _, c, h, w = inputs[0].shape
            dtype, size = command_dtype(element_of(self.input)), storage_dtype(element_of(self.input)).itemsize
            rows = ceil_div(c // self.groups, chip.lanes)
            total += rows * channel_stride(h, w, dtype, chip, aligned=True) * size
        return align(total, chip.eu_bytes)

    # ---------------------------------------------------------------------------------------------------------- codegen

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Local: for each output depth one 2-D CONV per input depth of its window, summed in 32 bits.

        int32 and f32 results are summed in place, 16-bit results in the work area, image by image (layer_group.md 9.3).
        Global: one 3-D CONV.
        """
        if not ctx.local:
            ctx.emit(
                isa.Conv, **self.coefficient_fields(ctx), input=ctx.input(0), output=ctx.output(), kernel=self.kernel,
                strides=ints(self.strides), pads=ints(self.pads), dilations=self.geometry["dilations"],
                inserts=(0, 0, 0), groups=self.groups, pad_value=zero_point(self.input), relu=relu_of(self),
                relu_limit=relu_limit_of(self),
            )  # fmt: skip
            return
        planes = Planes.of(self.input, ctx, ints(self.strides), ints(self.pads), self.reach)
        out, result, images = ctx.output_slice(), ctx.output(), planes.images
        if self._pads_depth():
            planes.emit_padding(ctx, zero_point(self.input))
        for i in range(out.d[1]):
            plane = part_of(result, 0, i * images, (images, *result.shape[1:]), ctx.chip)
            taps = self._taps(ctx, planes, out.d[0] + i)
            if not self._widens():
                self._accumulate(ctx, planes, taps, plane, relu=relu_of(self))
                continue
            sums = self._sums(ctx)
            for image in range(images):
                one = [(k, part_of(x, 0, image, (1, *x.shape[1:]), ctx.chip)) for k, x in taps]
                self._accumulate(ctx, planes, one, sums, relu=False)
                ctx.emit(
                    isa.Arith, kind="copy", a=sums, output=part_of(plane, 0, image, sums.shape, ctx.chip),
                    relu=relu_of(self), relu_limit=relu_limit_of(self),
                )  # fmt: skip

    def _taps(self, ctx: EmitContext, planes: Planes, depth: int) -> list[tuple[int, View]]:
        """(kd, image under this tap) at an output depth. Taps on padding of zeros are left out, unless all taps are."""
        at = self._seen(depth)
        inside = dict(depths_seen(at, shape_of(self.input)[2]))
        if zero_point(self.input) == 0 and inside:
            return [(k, planes.input(ctx, at)) for k, at in inside.items()]
        padding = planes.padding(ctx)
        taps = range(len(at)) if inside or zero_point(self.input) else (0,)
        return [(k, planes.input(ctx, inside[k]) if k in inside else padding) for k in taps]

    def _sums(self, ctx: EmitContext) -> View:
        """The 32-bit plane of one image."""
        at = ctx.buffer() + (ctx.chip.eu_bytes if self._pads_depth() else 0)
        _, c, h, w = ctx.output().shape
        return activation_view(at, (1, c, h, w), "f32", ctx.chip)

    def _accumulate(
        self, ctx: EmitContext, planes: Planes, taps: Sequence[tuple[int, View]], output: View, *, relu: bool
    ) -> None:
        """One CONV per tap, summed in one output; the first has the bias, the last the relu."""
        g, coefficients = self.geometry, self.coefficient_fields(ctx)
        for i, (k, image) in enumerate(taps):
            last = relu and i == len(taps) - 1
            ctx.emit(
                isa.Conv, input=image, filter=self._filter_of(coefficients["filter"], k), output=output,
                bias=None if i else coefficients["bias"], kernel=self.kernel[1:], strides=g["strides"][1:],
                dilations=g["dilations"][1:], pads=planes.pads, groups=self.groups, pad_value=zero_point(self.input),
                relu=last, relu_limit=relu_limit_of(self) if last else -1.0, accumulate=i > 0,
            )  # fmt: skip

    def _filter_of(self, filter: View, k: int) -> View:
        """The filter of one depth of the kernel: a window of every block of packed channels (hardware.md 2.3)."""
        taps = prod(self.kernel[1:]) * self._packing
        row = filter.elements // filter.shape[1]
        return replace(
            filter, address=filter.address + k * taps * itemsize(filter.dtype), layout="strided",
            shape=(1, filter.shape[1], row // (taps * self.kernel[0]), taps),
            strides=(0, row, taps * self.kernel[0], 1),
        )  # fmt: skip
