"""`tpu.Deconv`: int32 accumulators, requantised integers or floats; its slices, and a CONV with inserted elements."""

from collections.abc import Sequence
from typing import Any, ClassVar

from tpusim_kernels import deconv as kernels
from tpusim_kernels.deconv_float import deconv2d_float
from typing_extensions import override
from xdsl.irdl import irdl_op_definition

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa.layout import align, ceil_div, channel_stride
from tpusim.isa.region import View
from tpusim.ops.deconv.base import DeconvBase
from tpusim.ops.deconv.geometry import Need, deconv_need
from tpusim.ops.framework.base import Array, Axis, EmitContext, TensorSlice, Window
from tpusim.ops.framework.families import (
    MAX_AXIS,
    MAX_PAD,
    command_dtype,
    is_set,
    part_of,
    relu_limit_of,
    relu_of,
    value_dtype,
    zero_point,
)

MAX_INSERTED = 14
"""Most elements that a command inserts between two elements of its input (hardware.md 4)."""


@irdl_op_definition
class TpuDeconv(DeconvBase):
    """`tpu.Deconv`: transposed convolution, input (n, ic, h, w).

    The result is int32 (accumulator + bias, with relu; tpu.RequantIntAxis follows), or quantised by `multiplier`,
    `rshift` and `quant_mode` "OnlyShift" (DN-12) or "QDM", or a float. Inserted and padded elements have the zero point
    of the input.
    """

    name = "tpu.Deconv"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (("multiplier", "rshift"), ("channel_packed",))

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Exact integers, or f32 (numerics.md 9.1)."""
        x, w, b, requant = self.unpacked(operands)
        if not self.integer:
            return (deconv2d_float(x, w, b, relu_limit=relu_limit_of(self), **self.geometry),)
        zero = zero_point(self.input)
        if requant is None:
            return (kernels.deconv2d_accumulate(x, w, b, zero, **self.geometry),)
        mode = "qdm" if self.quant_mode is not None and self.quant_mode.data == "QDM" else "only_shift"
        y = kernels.deconv2d_int(
            x, w, b, *requant, zero, zero_point(self.output), out_dtype=value_dtype(self.output), requant=mode,
            **self.geometry,
        )  # fmt: skip
        return (y,)

    @override
    def _accumulated(self, x: Array, filter: Array) -> Array:
        return kernels.deconv2d_accumulate(x, filter, None, zero_point(self.input), **self.linear)

    # ----------------------------------------------------------------------------------------------------- local memory

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local if the filter is constant, the kernel covers the stride, and all is in limits (layer_group.md 2)."""
        if not self.packed:
            return "the filter is not constant"
        strides, row = ints(self.strides), shape_of(self.filter)
        if any(reach < stride for reach, stride in zip(self.reach, strides, strict=True)):
            return f"a dilated kernel {list(self.reach)} smaller than the stride {list(strides)}"
        largest = max(*strides, *self.geometry["dilations"])
        if largest > min(chip.max_stride, MAX_INSERTED + 1):
            return f"stride or dilation {largest} above {min(chip.max_stride, MAX_INSERTED + 1)}"
        channels = max(shape_of(self.input)[1], self.channels[1])
        if channels > chip.max_conv_channels:
            return f"{channels} channels, above {chip.max_conv_channels}"
        whole = [self._need(axis, (0, size)) for axis, size in zip("hw", shape_of(self.output)[2:], strict=True)]
        if any(need is None or max(need.before, need.after) > MAX_PAD for need in whole):
            return f"pads above {MAX_PAD}"
        return f"a filter row above {MAX_AXIS}" if row[2] * row[3] > MAX_AXIS else None

    def _need(self, axis: str, window: Window) -> Need | None:
        i = "hw".index(axis)
        size = shape_of(self.input)[2 + i]
        return deconv_need(window, size, self.reach[i], ints(self.strides)[i], ints(self.pads)[i])

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """h, w: the inputs that the window reads (layer_group.md 7.2); None without any. Coefficients are whole."""
        if operand != 0 or (axis == "c" and not self.depthwise):
            return None  # every output channel needs all input channels of its group
        if axis not in ("h", "w"):
            return window
        need = self._need(axis, window)
        return need and need.window

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """A copy of one channel group of a grouped op; in 8 bits of any op that is not depthwise (9.3)."""
        del output
        x = inputs[0]
        assert x is not None  # the operand is a tensor
        if self.depthwise or is_set(self.channel_packed) or (self.groups == 1 and not self.integer):
            return 0
        _, c, h, w = x.shape
        dtype, size = command_dtype(element_of(self.input)), storage_dtype(element_of(self.input)).itemsize
        rows = ceil_div(c // self.groups, chip.lanes)
        packed = chip.batch_factor(size)
        plane = channel_stride(h, w, dtype, chip, aligned=True) * size * packed
        return align(rows * (plane + (2 if self.integer else 0)), chip.eu_bytes)

    # ---------------------------------------------------------------------------------------------------------- codegen

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One CONV or depthwise command that inserts elements into its input (hardware.md 4)."""
        out = ctx.output_slice()
        needs = [self._need("h", out.h), self._need("w", out.w)]
        if any(need is None for need in needs):
            raise ValueError(f"tpu.Deconv: output rows {out.h}, columns {out.w} read no input")
        (rows, top, bottom), (columns, left, right) = (need for need in needs if need is not None)
        fields: dict[str, Any] = self.coefficient_fields(ctx) | {
            "input": self._window(ctx, rows, columns), "output": ctx.output(),
            "kernel": self.kernel, "dilations": self.geometry["dilations"], "pads": (top, left, bottom, right),
            "inserts": tuple(stride - 1 for stride in ints(self.strides)),
            "rotate": True, "turned": is_set(self.filter_turned),
            "pad_value": zero_point(self.input), "requant": self._requant(), "relu": relu_of(self),
            "relu_limit": relu_limit_of(self),
        }  # fmt: skip
        if self.depthwise:
            ctx.emit(isa.Depthwise, **fields)
        else:
            ctx.emit(isa.Conv, groups=self.groups, **fields)

    def _window(self, ctx: EmitContext, rows: Window, columns: Window) -> View:
        """The window of the input; a global layer cuts it out of the whole input."""
        view = ctx.input(0, h=rows, w=columns)
        if ctx.local or (rows[1], columns[1]) == view.shape[2:]:
            return view
        n, c, _, w = view.shape
        below = part_of(view, 2, rows[0], (n, c, rows[1], w), ctx.chip)
        return part_of(below, 3, columns[0], (n, c, rows[1], columns[1]), ctx.chip)

    def _requant(self) -> isa.Requant | None:
        if self.rshift is None or uniform_of(self.output) is None:
            return None
        return isa.Requant(rshift=ints(self.rshift)[0], zero_point=zero_point(self.output))
