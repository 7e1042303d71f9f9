"""`tpu.Conv2D`: exact integer or float convolution, its slices, and its CONV or depthwise command."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, cast

import numpy as np
from msgspec.structs import replace
from tpusim_kernels import conv as kernels
from tpusim_kernels.conv_float import conv2d_float
from tpusim_kernels.prim.narrow import Narrow, narrow
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntegerAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, opt_attr_def

from tpusim.chips import ChipSpec
from tpusim.errors import ImportModelError
from tpusim.interfaces import rules
from tpusim.ir.attrs import flag, int_attr, ints, ints_attr, op_name, value_name
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa import commands as isa
from tpusim.isa.layout import align, ceil_div, channel_stride, lmem_bytes
from tpusim.isa.multiplications import of_convolution
from tpusim.isa.region import View
from tpusim.kernel_library.gathers import Gathers, WindowAxis, gathered
from tpusim.ops.conv.base import widened_shape
from tpusim.ops.conv.coeff import (
    MergedLayout,
    foldable_shape,
    merge_kernel,
    pack_filter,
    split_kernel,
    ungrouped_filter,
    unpack_filter,
)
from tpusim.ops.conv.packed import PackedConvTpu
from tpusim.ops.framework.base import (
    Array,
    Axis,
    EmitContext,
    GroupType,
    ReorderContext,
    Shape,
    TensorSlice,
    Window,
    is_none,
)
from tpusim.ops.framework.families import (
    MAX_AXIS,
    MAX_PAD,
    command_dtype,
    conv_extent,
    is_set,
    padded_window,
    relu_limit_of,
    relu_of,
    value_dtype,
    zero_point,
)
from tpusim.ops.interfaces import (
    ChannelOrder,
    GroupRules,
    KernelConstants,
    LaneCopies,
    Macs,
    SharedWindows,
    WindowRules,
)
from tpusim.ops.view import chip_of_module


@irdl_op_definition
class TpuConv2D(PackedConvTpu, KernelConstants, ChannelOrder, LaneCopies, Macs, SharedWindows):
    """`tpu.Conv2D`: filter (oc, ic/g, kh, kw) and bias (oc,) as constants, or packed for the chip after weight-reorder.

    `filter_packed`: the filter is (1, oc, h, w), rows of `pack_filter`. `coeff_merged`: the filter operand is one row
    per lane, which contains the requant parameters and, if `with_bias` is set, the bias (hardware.md 2.3).
    `channel_packed`: the bias operand is the bytes of `pack_channels` (bias, multiplier, shift), or in BF16 the planes
    of `bias_planes`. `use_3ic_optimize`: 1, 2 or 3 if h, w or both axes of the kernel are stored in the channels of the
    packed filter (2.4). `inserts`: numbers of zero points between the rows and between the columns of the input.
    `rows_in_channels`: the library treats the rows of the kernel as channels; then the op is in no group
    (layer_group.md 7.1).
    """

    name = "tpu.Conv2D"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("multiplier", "rshift"), ("channel_packed",), ("coeff_merged",)
    )  # fmt: skip

    coeff_merged = opt_attr_def(BoolAttr)
    inserts = opt_attr_def(ArrayAttr)
    use_3ic_optimize = opt_attr_def(IntegerAttr)
    rows_in_channels = opt_attr_def(BoolAttr)
    coeff_layout = opt_attr_def(ArrayAttr)
    weight_bits = opt_attr_def(IntegerAttr)

    @property
    def filter_bits(self) -> int:
        """Bits of a filter's integers; those of 4 bits are in bytes until they are merged."""
        return self.weight_bits.value.data if self.weight_bits else 8

    @override
    def take_form(self) -> str:
        """TPU-MLIR does not state the layout of merged coefficients, which follows from the chip."""
        declined, chip = super().take_form(), chip_of_module(self)
        if chip is not None and is_set(self.coeff_merged) and self.coeff_layout is None:
            (ic, oc), packing = self.channels, self._packing_on(chip)
            row = self.packed_rows(np.zeros((oc, ic, *self.kernel), np.int8), packing).shape[1]
            layout = self._layout(oc, row, chip)
            self.coeff_layout = _layout_attr(layout)
        return declined

    @override
    def _packing_taken(self, chip: ChipSpec) -> int:
        """Where coefficients are separate, rows have all channels of a tap one after another."""
        if chip.hardware.coefficients != "separate" or self.depthwise:
            return super()._packing_taken(chip)
        taps = prod(size for axis, size in enumerate(self.kernel) if axis not in self.merged_axes)
        return prod(shape_of(self.filter)) // self.channels[1] // taps

    @override
    def integer_forms(self) -> tuple[tuple[str, ...], ...]:
        """Always a requant: this op never leaves int32 accumulators."""
        return self.INTEGER_FORMS

    @property
    @override
    def packed(self) -> bool:
        return is_set(self.filter_packed) or is_set(self.coeff_merged)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(n, oc, oh, ow). Raises ValueError for operands that do not fit."""
        oc = self.logical_filter_shape()[0]
        x, (kh, kw), g = widened_shape(shape_of(self.input), self.inserts), self.kernel, self.geometry
        (top, left, bottom, right), (sh, sw), (dh, dw) = g["pads"], g["strides"], g["dilations"]
        return ((x[0], oc, conv_extent(x[2], kh, sh, top, bottom, dh), conv_extent(x[3], kw, sw, left, right, dw)),)

    # ------------------------------------------------------------------------------------------------------- inference

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Integers: sum, bias, requant, relu at the zero point, saturation (numerics.md 9.1)."""
        x, w, b, requant = self.unpacked(operands)
        if self.inserts is not None:
            x = kernels.dilated(x, zero_point(self.input), inserts=ints(self.inserts))
        if requant is None:
            return (conv2d_float(x, w, b, relu_limit=relu_limit_of(self), **self.geometry),)
        y = kernels.conv2d_int(
            x, self.for_kernel(1, w), self._narrowed(b, *requant), *requant, zero_point(self.input),
            zero_point(self.output), out_dtype=value_dtype(self.output), requant=self._requant, **self.geometry,
        )  # fmt: skip
        return (y,)

    @override
    def _accumulated(self, x: Array, filter: Array) -> Array:
        if self.inserts is not None:
            x = kernels.dilated(x, zero_point(self.input), inserts=ints(self.inserts))
        geometry = {name: value for name, value in self.geometry.items() if name != "do_relu"}
        return kernels.conv2d_accumulate(x, filter, zero_point(self.input), **geometry)

    @property
    def _requant(self) -> str:
        """The kernel's name of the quant_mode."""
        return _REQUANTS[self.quant_mode.data if self.quant_mode else ""]

    @override
    def for_kernel(self, index: int, constant: Array) -> Any:
        """The integer filter in the form of XLA's library; the bias with the multipliers in int32."""
        if index == 1 and self.integer and isinstance(constant, np.ndarray):
            return kernels.filter_of(cast("np.ndarray", constant), self.groups)
        if index == 2 and self.integer and not self.packed and self.multiplier is not None and self.rshift is not None:
            return self._narrowed(constant, np.array(ints(self.multiplier)), np.array(ints(self.rshift)))
        return constant

    @override
    def in_channel_order(self, constants: Mapping[int, np.ndarray], order: np.ndarray) -> Mapping[int, Any] | None:
        """Filter and bias, each in its form for the kernel; None unless both have one."""
        if not self.integer or self.packed or 1 not in constants or len(constants) + is_none(self.bias) < 2:  # noqa: PLR2004
            return None
        filter, bias = self.for_kernel(1, constants[1]), self.for_kernel(2, constants.get(2))
        if not isinstance(filter, kernels.Filter) or not isinstance(bias, Narrow):
            return None
        ordered = filter.in_channel_order(order, self.groups)
        return None if ordered is None else {1: ordered, 2: bias.in_channel_order(order)}

    def _narrowed(self, bias: Any, m: Array, r: Array) -> Any:
        """A constant or absent bias with the multipliers in the int32 form of the kernel; any other bias unchanged."""
        if self._requant != "multiply_shift" or not (bias is None or isinstance(bias, np.ndarray)):
            return bias
        found = narrow(m, r, cast("Any", bias), zero_point(self.output), value_dtype(self.output))
        return cast("Any", bias) if found is None else found

    @override
    def unpacked(self, operands: Sequence[Array]) -> tuple[Array, Array, Array, tuple[Array, Array] | None]:
        """Also from merged rows."""
        if not is_set(self.coeff_merged):
            return super().unpacked(operands)
        layout, image = self.merged_layout_of_type(), np.asarray(operands[1])
        rows, bias, requant = layout.unpack(image.reshape(layout.rows, -1), with_bias=is_set(self.with_bias))
        m, shift = requant[:, 0], requant[:, 1]
        if layout.requant_words == 2:
            shift = (shift & 0xFF).astype(np.uint8).view(np.int8).astype(np.int32)
        return operands[0], self.unpacked_filter(rows), bias, (m.astype(np.int64), -shift.astype(np.int64))

    @override
    def macs(self) -> int:
        return of_convolution(prod(shape_of(self.output)), self.channels[0], self.kernel)

    # --------------------------------------------------------------------------------------------- weights on the chip

    @property
    def merged_axes(self) -> tuple[int, ...]:
        """Axes of the kernel that are stored in the input channels of the packed filter."""
        return _MERGED[self._axes_and_copies & ALL_AXES]

    @property
    def _axes_and_copies(self) -> int:
        return self.use_3ic_optimize.value.data if self.use_3ic_optimize else 0

    @override
    def copies_over_lanes(self) -> bool:
        """If axes of the kernel are stored in the channels."""
        return bool(self.merged_axes)

    @override
    def copied_by_load(self) -> bool:
        """Loads of 8-bit images that no other op of the network reads (U-83); others are copied after their load."""
        return self.integer and self.copies_over_lanes() and not self._axes_and_copies & EXTRA

    @override
    def state_copies(self, *, loaded: bool) -> None:
        """Set `ON_CHIP` unless the load of the image makes the copies."""
        if self.copies_over_lanes():
            on_chip = not (self.copied_by_load() and loaded)
            self.use_3ic_optimize = int_attr(self._axes_and_copies & ~ON_CHIP | ON_CHIP * on_chip)

    @override
    def stated_copies(self) -> Attribute | None:
        return self.use_3ic_optimize

    @override
    def packed_rows(self, filter: np.ndarray, packing: int) -> np.ndarray:
        merged = self.merged_axes
        return pack_filter(merge_kernel(filter, merged), packing) if merged else super().packed_rows(filter, packing)

    @override
    def unpacked_filter(self, packed: np.ndarray) -> np.ndarray:
        if not (merged := self.merged_axes):
            return super().unpacked_filter(packed)
        assert self.filter_packing is not None  # set together with the packed filter
        (ic, oc), inside = self.channels, prod(self.kernel[axis] for axis in merged)
        left = (prod(self.kernel) // inside,)
        rows = unpack_filter(packed.reshape(oc, -1), ic * inside, left, self.filter_packing.value.data)
        return split_kernel(rows, self.kernel, merged)

    def _without_groups(self, filter: np.ndarray, ctx: ReorderContext) -> np.ndarray:
        """The filter without groups (zeros for other channels), if one step reads all input channels (2.3)."""
        size = filter.dtype.itemsize
        fits = self.groups * filter.shape[1] * size <= ctx.chip.ic_parallel_bytes
        if self.groups == 1 or size > 2 or ctx.chip.hardware.coefficients != "merged" or not fits:  # noqa: PLR2004  f32
            return filter
        found = ungrouped_filter(filter, self.groups)
        self.operands[1] = ctx.weight(value_name(self.filter) + "_g2normal", found)
        self.attributes["group"] = int_attr(1)
        return found

    def _mark_merged_axes(self, filter: np.ndarray, chip: ChipSpec) -> None:
        """Set `use_3ic_optimize`. It is not used with inserted zeros, several groups or gathered windows.

        Decision DC-09: nor is it used with large dilations, where TPU-MLIR sets it and fails.
        """
        if self.groups > 1 or self.inserts is not None or any(self._is_wide(axis, chip) for axis in (0, 1)):
            return
        kh, kw = self.kernel
        if axes := chip.merged_kernel_axes(filter.dtype.itemsize, filter.shape[1], (kh, kw)):
            shared = not self.input.has_one_use() or (self.integer and chip.ic_parallel_bytes > chip.lanes)
            copies = (ON_CHIP | EXTRA) * shared | ON_CHIP * (not self.integer)
            self.attributes["use_3ic_optimize"] = int_attr(_MERGED.index(axes) | copies)

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Pack filter, bias and requant parameters; in INT8 merge them into one row per lane if the chip does."""
        filter, bias = ctx.array(self.filter), None if is_none(self.bias) else ctx.array(self.bias)
        if filter is not None:
            filter = self._without_groups(filter, ctx)
            self._mark_merged_axes(filter, ctx.chip)
        if (
            filter is None
            or (bias is None and not is_none(self.bias))
            or not (self.integer and ctx.chip.hardware.coefficients == "merged")
        ):
            super().reorder_weights(ctx)
            return
        packing = ctx.chip.filter_packing(filter.dtype.itemsize, filter.shape[1], self.groups)
        self.filter_packing = int_attr(packing)
        self.with_bias = flag(bias is not None)
        self._merge(ctx, self.packed_rows(filter, packing), bias, value_name(self.filter))

    @override
    def library_types(self, chip: ChipSpec) -> Mapping[int, Attribute]:
        """The bias of a depthwise convolution of floats may have the type of the input."""
        if not chip.depthwise_bias_as_input or self.integer or not self.depthwise or is_none(self.bias):
            return super().library_types(chip)
        return {2: element_of(self.input)}

    @override
    def library_attributes(self, chip: ChipSpec) -> Mapping[str, Attribute]:
        """On chips whose filters have all input channels in a row: whether their number was made even."""
        packing = self.filter_packing.value.data if self.filter_packing else 0
        padded = not chip.ic_parallel_bytes and packing > self.channels[0]
        return {"use_3ic_optimize": int_attr(_EVEN_CHANNELS)} if padded else {}

    def _layout(self, channels: int, row: int, chip: ChipSpec) -> MergedLayout:
        """The layout of merged rows of `row` elements; `with_bias` is set."""
        return MergedLayout.of(
            channels, row, chip, with_bias=is_set(self.with_bias), depthwise=self.depthwise, bits=self.filter_bits
        )

    def _merge(self, ctx: ReorderContext, rows: np.ndarray, bias: np.ndarray | None, name: str) -> None:
        assert self.multiplier is not None and self.rshift is not None and self.filter_packing is not None
        layout = self._layout(len(rows), rows.shape[1], ctx.chip)
        m, r = np.array(ints(self.multiplier), np.int64), np.array(ints(self.rshift), np.int64)
        image = layout.pack(rows, bias, m, r, zero_point(self.output))
        shape = foldable_shape(len(image), image.shape[1], self.filter_packing.value.data)
        self.operands[1] = ctx.weight(name + "_merged", image.reshape(shape))
        self.operands[2] = ctx.none()
        self.attributes["coeff_merged"] = flag(True)
        self.coeff_layout = _layout_attr(layout)
        for key in ("multiplier", "rshift"):
            del self.attributes[key]

    def merged_layout_of_type(self) -> MergedLayout:
        """The layout in `coeff_layout`. Raises ImportModelError if it is missing or has not five numbers."""
        layout = self.coeff_layout
        numbers = ints(layout) if layout else ()
        if len(numbers) != 5:
            raise ImportModelError(
                f"tpu.Conv2D '{op_name(self)}': merged coefficients (coeff_merged) require a coeff_layout of five "
                f"numbers, got {layout}; group the module again"
            )
        words, pitch, bias_offset, filter_offset, row_bytes = numbers
        _, oc = self.channels
        rows = shape_of(self.filter)[1]
        elements = (row_bytes - filter_offset) // ceil_div(oc, rows) * 8 // self.filter_bits
        return MergedLayout(oc, elements, words, pitch, bias_offset, filter_offset, row_bytes, rows, self.filter_bits)

    # ----------------------------------------------------------------------------------------------------- local memory

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local if the filter is constant and channels, strides and pads are within limits (layer_group.md 2)."""
        ic, oc = shape_of(self.input)[1], self.channels[1]
        reach = max(*self.geometry["strides"], *self.geometry["dilations"])
        if not self.packed:
            return "the filter is not constant"
        if reach > chip.max_stride and not rules(chip, WindowRules).GATHERS_WIDE:
            return f"stride or dilation {reach} above {chip.max_stride}"
        if max(ic, oc) > chip.max_conv_channels:
            return f"{max(ic, oc)} channels, above {chip.max_conv_channels}"
        if max(self._command_pads(chip)) > MAX_PAD:
            return f"pads above {MAX_PAD}"
        if self.inserts is not None:
            return "an image with inserted zeros cannot be cut"
        return None

    def _axis(self, axis: int, size: int, count: int) -> WindowAxis:
        """One axis of the window. size: elements of the input; count: elements of the result."""
        g = self.geometry
        return WindowAxis(size, count, self.kernel[axis], g["strides"][axis], g["dilations"][axis])

    def _is_wide(self, axis: int, chip: ChipSpec) -> bool:
        """Whether stride or dilation along an axis exceeds those of a command."""
        return self._axis(axis, 1, 1).wide(chip)

    def is_gathered(self, chip: ChipSpec) -> bool:
        """Whether the elements of the windows are copied together first, with their padding (DC-09)."""
        return rules(chip, WindowRules).GATHERS_WIDE and (self._is_wide(0, chip) or self._is_wide(1, chip))

    def _command_pads(self, chip: ChipSpec) -> list[int]:
        """The pads that a command applies; those of gathered axes are copied."""
        return [pad for i, pad in enumerate(self.geometry["pads"]) if not self._is_wide(i % 2, chip)] or [0]

    def _gathers(self, chip: ChipSpec, output: Shape, x: Shape) -> Gathers:
        """The copies for a slice `output` (n, oc, oh, ow) of the result from a slice `x` of the input."""
        _, channels, height, width = x
        _, oc, oh, ow = output
        dtype = command_dtype(element_of(self.input))
        rows, columns = self._axis(0, height, oh), self._axis(1, width, ow)
        return Gathers(rows, columns, channels, dtype, (oc, oh, ow), chip)

    @override
    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """A convolution with `rows_in_channels` is in no group."""
        if is_set(self.rows_in_channels):
            return "the library treats the rows of its kernel as channels, which no group does"
        return super().why_not_in(kind, chip)

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """h, w: t = (s-1)*stride + max(K, stride), i = o*stride - pad (layer_group.md 7.2). Coefficients are whole."""
        if operand != 0:
            return None
        if axis == "c" and not self.depthwise:
            return None  # every output channel needs all input channels of its group
        if axis not in ("h", "w"):
            return window
        i = 0 if axis == "h" else 1
        stride = self.geometry["strides"][i]
        return window[0] * stride - self.geometry["pads"][i], (window[1] - 1) * stride + max(self.reach[i], stride)

    @override
    def reads_windows(self, chip: ChipSpec) -> bool:
        """Always with one group; with several groups if the family allows it (layer_group.md 7.3)."""
        return self.groups == 1 or rules(chip, GroupRules).GROUPED_MARGINS

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """int32 accumulators, the images of a merged kernel, gathered windows, copies of channel groups (9.3)."""
        total, stored = 0, storage_dtype(element_of(self.output)).itemsize
        # four bytes for each element of the result, alignment included
        out = lmem_bytes(output.shape, command_dtype(element_of(self.output)), chip) * 4 // stored
        if is_set(self.coeff_merged) and (chip.conv_accumulators or self.merged_axes):
            total += out
        if self.merged_axes:
            assert inputs[0] is not None
            total += self._merging_bytes(chip, output, inputs[0])
        if self.is_gathered(chip):
            assert inputs[0] is not None
            total += self._gathers(chip, output.shape, inputs[0].shape).work_bytes(depthwise=self.depthwise)
        if self.depthwise and self.integer and chip.conv_accumulators:
            total += out + ceil_div(output.shape[1], chip.lanes) * prod(self.kernel)
        elif self.groups > 1 and not is_set(self.channel_packed):
            x = inputs[0]
            assert x is not None
            n, c, h, w = x.shape
            dtype = command_dtype(element_of(self.input))
            size = storage_dtype(element_of(self.input)).itemsize
            rows = ceil_div(c // self.groups, chip.lanes)
            total += n * rows * channel_stride(h, w, dtype, chip, aligned=True) * size + 2 * rows * size
        return align(total, chip.eu_bytes)

    def _merging_bytes(self, chip: ChipSpec, output: TensorSlice, x: TensorSlice) -> int:
        """For a merged kernel: shifted image, ones and positions; a copy of the input if it has other users (9.3)."""
        n, c, h, w = x.shape
        inside = prod(self.kernel[axis] for axis in self.merged_axes)
        shifted = [output.shape[2 + axis] if axis in self.merged_axes else (h, w)[axis] for axis in (0, 1)]
        dtype, rows = command_dtype(element_of(self.input)), n * ceil_div(c * inside, chip.lanes)
        lane = channel_stride(shifted[0], shifted[1], dtype, chip, aligned=True) * rows
        if sum(1 for _ in self.input.uses) > 1:
            lane += channel_stride(h, w, dtype, chip, aligned=True) * rows
        ones = ceil_div(inside, chip.lanes)
        size = storage_dtype(element_of(self.input)).itemsize
        return lane * size + align((2 * chip.eu_bytes + inside * size) * ones, chip.eu_bytes)

    # ---------------------------------------------------------------------------------------------------------- codegen

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One CONV or depthwise command with bias, requant and relu (codegen.md DC-04)."""
        g, coefficients = self.geometry, self.coefficient_fields(ctx)
        fields: dict[str, object] = {
            **coefficients, **self._input_fields(ctx), "output": ctx.output(),
            "kernel": self.kernel, "strides": g["strides"], "dilations": g["dilations"],
            "pad_value": zero_point(self.input), "requant": self._constant_requant(coefficients.get("requant_table")),
            "relu": relu_of(self), "relu_limit": relu_limit_of(self),
        }  # fmt: skip
        cls: type[isa.Conv | isa.Depthwise] = isa.Depthwise
        if not self.depthwise:
            cls, copied = isa.Conv, self.copied_by_load() and ctx.loaded_alone(0)
            fields |= {"groups": self.groups, "merged": self.merged_axes, "spread": copied}
        if ctx.local and self.is_gathered(ctx.chip):
            whole = cls(id=0, dep=0, op=op_name(self), **fields)  # type: ignore[arg-type]
            for command in gathered(whole, ctx.buffer(), ctx.chip):
                ctx.emit(type(command), **command.content)
        else:
            ctx.emit(cls, **fields)

    def _input_fields(self, ctx: EmitContext) -> dict[str, object]:
        """The window of the input and the pads around it; all of an input with inserted zeros, which is never cut."""
        g = self.geometry
        if self.inserts is not None:
            return {"input": ctx.input(0), "pads": g["pads"], "inserts": ints(self.inserts)}
        out, x = ctx.output_slice(), TensorSlice.whole(shape_of(self.input))
        rows, (top, bottom) = padded_window(out.h, x.h[1], self.reach[0], g["strides"][0], g["pads"][0])
        columns, (left, right) = padded_window(out.w, x.w[1], self.reach[1], g["strides"][1], g["pads"][1])
        return {"input": ctx.input(0, h=rows, w=columns), "pads": (top, left, bottom, right)}

    def _constant_requant(self, table: View | None) -> isa.Requant | None:
        if table is not None or not self.integer:
            return None
        assert self.rshift is not None
        return isa.Requant(rshift=ints(self.rshift)[0], zero_point=zero_point(self.output))

    @override
    def coefficient_fields(self, ctx: EmitContext) -> dict[str, Any]:
        """Also the three blocks of merged rows."""
        if not is_set(self.coeff_merged):
            return super().coefficient_fields(ctx)
        filter, bias, table = self.merged_layout_of_type().views(ctx.input(1), with_bias=is_set(self.with_bias))
        return {"filter": self._within_axes(filter), "bias": bias, "requant_table": table}

    def _within_axes(self, filter: View) -> View:
        """A merged filter; a row that is longer than an axis may be is divided into rows of the kernel."""
        assert filter.strides is not None and self.filter_packing is not None  # of merged coefficients
        if filter.shape[3] <= MAX_AXIS or self.merged_axes:
            return filter
        (kh, kw), packing = self.kernel, self.filter_packing.value.data
        blocks = filter.shape[3] // (kh * kw * packing)
        shape = (blocks, filter.shape[1], kh, kw * packing)
        return replace(filter, shape=shape, strides=(kh * kw * packing, filter.strides[1], kw * packing, 1))


_MERGED = (), (0,), (1,), (0, 1)
"""The axes of the kernel in the channels, by the lowest bits of `use_3ic_optimize`."""
ALL_AXES, ON_CHIP, EXTRA = 3, 0x10, 0x20
"""Bits of `use_3ic_optimize`: the axes; whether the chip copies over lanes; whether it copies the image before."""
_EVEN_CHANNELS = 4
"""`use_3ic_optimize` on chips that read two channels at once: zeros make their number even."""
_REQUANTS = {"": "multiply_shift", "MultiplierShift": "multiply_shift", "OnlyShift": "only_shift", "QDM": "qdm"}
"""The kernel's names of quant_modes."""


def _layout_attr(layout: MergedLayout) -> ArrayAttr[Attribute]:
    return ints_attr(
        [layout.requant_words, layout.requant_pitch_words, layout.bias_offset, layout.filter_offset, layout.row_bytes]
    )
