"""`tpu.Pool2D`, and the base class that it shares with `tpu.Pool3D`: attributes, exact functions, PorD command."""

from collections.abc import Sequence
from typing import Any, ClassVar

from tpusim_kernels import pool as kernels
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, TensorType
from xdsl.ir import Attribute, Operation
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints
from tpusim.ir.modes import PoolModeAttr, RoundModeAttr, round_mode
from tpusim.ir.types import shape_of, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa.region import View
from tpusim.ops.framework.base import Array, Axis, EmitContext, Shape, TensorSlice, TpuOp, Window
from tpusim.ops.framework.families import (
    MAX_PAD,
    Requanted,
    clip,
    conv_extent,
    emit_limit,
    is_set,
    limited,
    relu_of,
    value_dtype,
    window_need,
    window_pads,
    zero_point,
)
from tpusim.ops.interfaces import LibraryKernel
from tpusim.ops.view import as_column, chip_of_module


def pool_shape(x: Shape, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> Shape:
    """(n, c, oh, ow) or (n, c, od, oh, ow). Raises ValueError if a window does not fit or contains only padding."""
    axes = len(kernel)
    if len(x) != 2 + axes or axes not in (2, 3):
        raise ValueError(
            f"an input (n, c, h, w) or (n, c, d, h, w) with a kernel of its axes is required, got {x}, {kernel}"
        )
    found: list[int] = []
    for i in range(axes):
        out = conv_extent(x[2 + i], kernel[i], strides[i], pads[i], pads[axes + i])
        if pads[i] >= kernel[i] or (out - 1) * strides[i] - pads[i] >= x[2 + i]:
            raise ValueError(f"pads below the kernel {list(kernel)} are required, got {list(pads)}")
        found.append(out)
    return x[0], x[1], *found


def kept_shape(op: Operation, shape: Shape) -> Shape:
    """The shape of the result of a pool that gives `shape`: (n, c) for keepdims = false.

    Raises ValueError if axes longer than 1 would be dropped.
    """
    if keeps_axes(op):
        return shape
    if set(shape[2:]) != {1}:
        raise ValueError(f"one window is required for keepdims = false, got {shape[2:]} of them")
    return shape[:2]


def keeps_axes(op: Operation) -> bool:
    """Whether a pool keeps the axes of a single window, as one does that says nothing."""
    keepdims = getattr(op, "keepdims", None)
    return keepdims is None or is_set(keepdims)


def pool_geometry(kernel: Attribute, strides: Attribute, pads: Attribute) -> dict[str, Any]:
    """kernel, strides and pads, as the kernels take them."""
    return {"kernel": ints(kernel), "strides": ints(strides), "pads": ints(pads)}


class PoolTpu(Requanted, TpuOp):
    """pool_mode "Max" (any stored type) or "Avg" (floats; integers with a requant or a real scale).

    first_round_mode HalfUp: the average is rounded half up and requantised in f32 (numerics.md 4.4, 9.6).
    """

    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("multiplier", "rshift"), ("scale", "offset"))

    input = operand_def(TensorType)
    output = result_def(TensorType)
    pool_mode = attr_def(PoolModeAttr)
    kernel_shape = attr_def(ArrayAttr)
    strides = attr_def(ArrayAttr)
    pads = attr_def(ArrayAttr)
    count_include_pad = opt_attr_def(BoolAttr)
    keepdims = opt_attr_def(BoolAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)
    scale = opt_attr_def(FloatAttr)
    offset = opt_attr_def(FloatAttr)
    first_round_mode = opt_attr_def(RoundModeAttr)

    @property
    def geometry(self) -> dict[str, Any]:
        """kernel, strides and pads (befores, then afters)."""
        return pool_geometry(self.kernel_shape, self.strides, self.pads)

    @override
    def take_form(self) -> str:
        """TPU-MLIR does not state that chips with a small multiplier round an average half up."""
        chip = chip_of_module(self)
        small = chip is not None and chip.hardware.scaling == "small_multiplier"
        if small and self.pool_mode.data == "Avg" and self.scaling is not None:
            self.first_round_mode = round_mode("HalfUp")
        return as_column(self) or super().take_form()

    @property
    def half_up(self) -> bool:
        """Whether the average is rounded half up."""
        return self.first_round_mode is not None and self.first_round_mode.data == "HalfUp"

    @override
    def integer_forms(self) -> tuple[tuple[str, ...], ...]:
        """None for a maximum, which needs no requant."""
        return ((),) if self.pool_mode.data == "Max" else super().integer_forms()

    def _requant(self, m: int, r: int) -> isa.Requant:
        return isa.Requant(m, r, mode="f32" if self.half_up else "shift")

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(n, c, oh, ow) or (n, c, od, oh, ow), or (n, c)."""
        return (kept_shape(self, pool_shape(shape_of(self.input), **self.geometry)),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The pooled windows; with keepdims = false without the axes of the single window."""
        y = self._pooled(operands[0])
        return (y.reshape(kept_shape(self, y.shape)),)

    def _pooled(self, x: Array) -> Array:
        """Max: of stored values; padding never wins (DN-17). Avg: round(sum*kernel/count), then the requant (9.6)."""
        relu = relu_of(self)
        if self.pool_mode.data == "Max":
            return limited(kernels.maxpool2d(x, **self.geometry, do_relu=relu), self)
        counted = is_set(self.count_include_pad)
        if self.scale is not None and self.offset is not None:
            return kernels.avgpool2d_asym(
                x, self.scale.value.data, self.offset.value.data, zero_point(self.input), zero_point(self.output),
                **self.geometry, count_include_pad=counted, do_relu=relu, out_dtype=value_dtype(self.output),
            )  # fmt: skip
        if self.scaling is None:
            y = kernels.avgpool2d_float(x, **self.geometry, count_include_pad=counted, do_relu=relu)
            return limited(y, self)
        dtype = value_dtype(self.output)
        return kernels.avgpool2d_int(
            x, *self.scaling, **self.geometry, count_include_pad=counted, do_relu=relu, out_dtype=dtype,
            first_round="half_up" if self.half_up else "half_away",
        )  # fmt: skip

    def emit_pool(self, ctx: EmitContext, x: View, pads: tuple[int, ...]) -> None:
        """A PorD over `x`; a float relu limit is another command."""
        g = self.geometry
        ctx.emit(
            isa.Pool, mode=self.pool_mode.data.lower(), input=x, output=ctx.output(), kernel=g["kernel"],
            strides=g["strides"], pads=pads, count_include_pad=is_set(self.count_include_pad), relu=relu_of(self),
            requant=None if self.scaling is None else self._requant(*self.scaling),
            first_rounding="half_up" if self.half_up else "half_away",
            scale=self.scale.value.data if self.scale else 0.0, offset=self.offset.value.data if self.offset else 0.0,
            pad_value=zero_point(self.input), zero_point=zero_point(self.output),
        )  # fmt: skip
        emit_limit(ctx, self)


@irdl_op_definition
class TpuPool2D(PoolTpu, LibraryKernel):
    """`tpu.Pool2D`: windows of an image (n, c, h, w)."""

    name = "tpu.Pool2D"

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local if strides and pads are within limits (layer_group.md 2)."""
        if max(self.geometry["strides"]) > chip.max_stride:
            return f"stride {max(self.geometry['strides'])} above {chip.max_stride}"
        return f"pads above {MAX_PAD}" if max(self.geometry["pads"]) > MAX_PAD else None

    @override
    def why_rather_global(self, chip: ChipSpec) -> str | None:
        """If the window is the whole plane, the library has a kernel on some chips."""
        if shape_of(self.input)[2:] != self.geometry["kernel"] or any(self.geometry["pads"]):
            return None
        floats = uniform_of(self.input) is None
        known = chip.lone_pools_are_global == "all" or (floats and chip.lone_pools_are_global == "floats")
        return "the library has a kernel for a pool of whole planes that is alone in its group" if known else None

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """h, w: t = (s-1)*stride + k, i = o*stride - pad (layer_group.md 7.2)."""
        del operand
        if axis not in ("h", "w"):
            return window
        i, g = ("h", "w").index(axis), self.geometry
        return window_need(window, g["kernel"][i], g["strides"][i], g["pads"][i])

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One PorD; its pads are the part of the slice's window that is outside the image."""
        out, x, g = ctx.output_slice(), TensorSlice.whole(shape_of(self.input)), self.geometry
        needs = [
            window_need(window, g["kernel"][i], g["strides"][i], g["pads"][i])
            for i, window in enumerate((out.h, out.w))
        ]
        rows, columns = clip(needs[0], x.h[1]), clip(needs[1], x.w[1])
        (top, bottom), (left, right) = window_pads(needs[0], rows), window_pads(needs[1], columns)
        self.emit_pool(ctx, ctx.input(0, h=rows, w=columns), (top, left, bottom, right))
