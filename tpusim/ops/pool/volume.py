"""`tpu.Pool3D`: windows over volumes, as 2-D pools of each depth that are combined in the work area."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod

from msgspec.structs import replace
from typing_extensions import override
from xdsl.irdl import irdl_op_definition

from tpusim.chips import ChipSpec
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa.layout import activation_view, lmem_bytes, lmem_strides
from tpusim.isa.region import DType, View
from tpusim.ops.framework.base import Axis, EmitContext, TensorSlice, Window
from tpusim.ops.framework.families import command_dtype, emit_limit, is_set, part_of, relu_of, window_need, zero_point
from tpusim.ops.framework.planes import Planes, VolumeTpu, depths_seen, why_volume_global
from tpusim.ops.pool.tpu import PoolTpu

MOST_IN_16_BITS = 256
"""Most elements of a window of bytes whose sum fits 16 bits (layer_group.md 9.3)."""


@irdl_op_definition
class TpuPool3D(VolumeTpu, PoolTpu):
    """`tpu.Pool3D`: windows of a volume (n, c, d, h, w)."""

    name = "tpu.Pool3D"

    # ----------------------------------------------------------------------------------------------------- local memory

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local within the limits of volumes (layer_group.md 2), except averages with multiplier and shift."""
        if self.scaling is not None:
            return "a 3-D average by multiplier and shift has no local form"
        return why_volume_global(self.geometry["strides"], self.geometry["pads"], chip)

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """d, h, w: t = (s-1)*stride + k, i = o*stride - pad (layer_group.md 7.2)."""
        del operand
        if axis not in ("d", "h", "w"):
            return window
        i, g = "dhw".index(axis), self.geometry
        return window_need(window, g["kernel"][i], g["strides"][i], g["pads"][i])

    @property
    def _averages(self) -> bool:
        return self.pool_mode.data == "Avg"

    @property
    def _integer(self) -> bool:
        return uniform_of(self.output) is not None

    @property
    def _counts_all(self) -> bool:
        """Whether every average divides by all elements of the window."""
        return is_set(self.count_include_pad) or not any(self.geometry["pads"])

    @property
    def _plane_dtype(self) -> DType:
        """The type of planes in the work area: integer sums, f32 means of narrower results, else that of the result."""
        output = command_dtype(element_of(self.output))
        if not self._averages or storage_dtype(element_of(self.output)).itemsize == 4:
            return output
        if not self._integer:
            return "f32"
        if prod(self.geometry["kernel"]) > MOST_IN_16_BITS or not self._counts_all:
            return "i32"
        return "u16" if command_dtype(element_of(self.input)) == "u8" else "i16"

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Planes of one image: one; for an integer average one more than the output depths (layer_group.md 9.3).

        Decision: a 16-bit float average takes two f32 planes, so that it is rounded once.
        """
        del inputs
        planes = 1 if self.geometry["kernel"][0] > 1 else 0
        if self._averages and self._integer:
            planes = 1 + output.d[1]
        elif self._averages and self._plane_dtype != command_dtype(element_of(self.output)):
            planes = 2
        return planes * lmem_bytes((1, *output.shape[1:]), self._plane_dtype, chip)

    # ---------------------------------------------------------------------------------------------------------- codegen

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Local: image by image, the 2-D pools of the depths under each window, combined in the work area.

        Global: one PorD.
        """
        if not ctx.local:
            self.emit_pool(ctx, ctx.input(0), self.geometry["pads"])
            return
        g = self.geometry
        planes = Planes.of(self.input, ctx, g["strides"], g["pads"], g["kernel"])
        for image in range(planes.images):
            if self._averages and self._integer:
                self._emit_sums(ctx, planes, image)
                continue
            combine = self._emit_mean if self._averages else self._emit_maximum
            for i in range(ctx.output_slice().d[1]):
                target = part_of(ctx.output(), 0, i * planes.images + image, self._plane_shape(ctx), ctx.chip)
                combine(ctx, planes, self._images(ctx, planes, i, image), target)
        emit_limit(ctx, self)

    def _plane_shape(self, ctx: EmitContext) -> tuple[int, int, int, int]:
        _, c, h, w = ctx.output().shape
        return 1, c, h, w

    def _plane(self, ctx: EmitContext, index: int) -> View:
        """A plane of the work area."""
        plane = activation_view(ctx.buffer(), self._plane_shape(ctx), self._plane_dtype, ctx.chip)
        return replace(plane, address=plane.address + index * lmem_bytes(self._plane_shape(ctx), plane.dtype, ctx.chip))

    def _images(self, ctx: EmitContext, planes: Planes, i: int, image: int) -> list[View]:
        """One image at every input depth in the window of the slice's i-th output depth."""
        start, count = window_need(
            (ctx.output_slice().d[0] + i, 1), self.geometry["kernel"][0], self.geometry["strides"][0],
            self.geometry["pads"][0],
        )  # fmt: skip
        seen = depths_seen(range(start, start + count), shape_of(self.input)[2])
        inputs = (planes.input(ctx, depth) for _, depth in seen)
        return [part_of(x, 0, image, (1, *x.shape[1:]), ctx.chip) for x in inputs]

    def _pool(self, ctx: EmitContext, planes: Planes, image: View, output: View, *, counted: bool, relu: bool) -> None:
        """A 2-D pool of one image. counted: an average divides by all elements of the window, padding included."""
        g = self.geometry
        ctx.emit(
            isa.Pool, mode=self.pool_mode.data.lower(), input=image, output=output, kernel=g["kernel"][1:],
            strides=g["strides"][1:], pads=planes.pads, count_include_pad=counted, relu=relu,
            pad_value=zero_point(self.input),
        )  # fmt: skip

    def _emit_maximum(self, ctx: EmitContext, planes: Planes, images: Sequence[View], target: View) -> None:
        """The maximum of the planes' maxima; padding never wins, also along the depth (DN-17)."""
        for i, image in enumerate(images):
            output = self._plane(ctx, 0) if i else target
            self._pool(ctx, planes, image, output, counted=False, relu=relu_of(self))
            if i:
                ctx.emit(isa.Arith, kind="max", a=target, b=output, output=target)

    def _emit_mean(self, ctx: EmitContext, planes: Planes, images: Sequence[View], target: View) -> None:
        """Floats: the mean of the planes' means, in f32."""
        all_counted = is_set(self.count_include_pad)
        counted = self.geometry["kernel"][0] if all_counted else len(images)
        if counted == 1:
            self._pool(ctx, planes, images[0], target, counted=all_counted, relu=relu_of(self))
            return
        in_place = self._plane_dtype == target.dtype
        sums, last = (target, self._plane(ctx, 0)) if in_place else (self._plane(ctx, 0), self._plane(ctx, 1))
        for i, image in enumerate(images):
            self._pool(ctx, planes, image, last if i else sums, counted=all_counted, relu=False)
            if i:
                ctx.emit(isa.Arith, kind="add", a=sums, b=last, output=sums)
        ctx.emit(isa.Arith, kind="div", a=sums, b=float(counted), output=target, relu=relu_of(self))

    def _emit_sums(self, ctx: EmitContext, planes: Planes, image: int) -> None:
        """Integers: the exact sum of every window, then scale and offset, rounded once (9.6)."""
        (kd, kh, kw), zero, depths = self.geometry["kernel"], zero_point(self.input), ctx.output_slice().d[1]
        last = self._plane(ctx, depths)
        counts: list[int] = []
        for i in range(depths):
            sums, images = self._plane(ctx, i), self._images(ctx, planes, i, image)
            for k, one in enumerate(images):
                self._pool(ctx, planes, one, last if k else sums, counted=True, relu=False)
                if k:
                    ctx.emit(isa.Arith, kind="add", a=sums, b=last, output=sums)
            outside = zero * kh * kw * (kd - len(images))
            if outside:
                ctx.emit(isa.Arith, kind="add", a=sums, b=float(outside), output=sums)
            counts.append(kd if self._counts_all else len(images))
        result, n = ctx.output(), planes.images
        batch, row, h, w = lmem_strides(result, ctx.chip)
        whole = replace(
            part_of(result, 0, image, self._plane_shape(ctx), ctx.chip), shape=(depths, *result.shape[1:]),
            strides=(n * batch, row, h, w),
        )  # fmt: skip
        sums = replace(self._plane(ctx, 0), shape=(depths, *result.shape[1:]))
        for start, count, depth in _runs(counts):
            shape = (count, *sums.shape[1:])
            source, target = (part_of(v, 0, start, shape, ctx.chip) for v in (sums, whole))
            self._emit_scaled(ctx, source, target, depth)

    def _emit_scaled(self, ctx: EmitContext, sums: View, target: View, depth: int) -> None:
        """sat(round(sum*elements/count * scale + offset)), one command for each area of equal counts.

        depth: the depths that count. If padding is not counted, windows at the edges of h and w count fewer elements.
        """
        assert self.scale is not None and self.offset is not None  # why_global: no multiplier
        out, elements = ctx.output_slice(), prod(self.geometry["kernel"])
        n, c, *_ = sums.shape
        for top, rows, high in self._counts(1, out.h):
            for left, columns, wide in self._counts(2, out.w):
                source, result = (
                    part_of(part_of(v, 2, top, (n, c, rows, v.shape[3]), ctx.chip), 3, left, (n, c, rows, columns),
                            ctx.chip)
                    for v in (sums, target)
                )  # fmt: skip
                ctx.emit(
                    isa.Pool, mode="avg", input=source, output=result, kernel=(1, 1), scale=self.scale.value.data,
                    offset=self.offset.value.data, zero_point=zero_point(self.output), relu=relu_of(self),
                    summed=(elements, depth * high * wide),
                )  # fmt: skip

    def _counts(self, axis: int, window: Window) -> list[tuple[int, int, int]]:
        """(first, number, counted elements along the axis) of each run of outputs with equal counts."""
        kernel, stride, before = (self.geometry[key][axis] for key in ("kernel", "strides", "pads"))
        if self._counts_all:
            return [(0, window[1], kernel)]
        size = shape_of(self.input)[2 + axis]
        starts = (o * stride - before for o in range(window[0], sum(window)))
        return list(_runs([min(start + kernel, size) - max(start, 0) for start in starts]))


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(first, number, value) of each run of equal values."""
    start = 0
    for value, run in groupby(values):
        count = len(list(run))
        yield start, count, value
        start += count
